package changemodel

import "fmt"

// A state is one moment of a world. It is what tells moments apart, too.
type state struct {
	lists   [MaxLists]list // all there are; the first has no members
	count   uint8          // of them
	servers [MaxServers]server
	clients [MaxClients]client

	forgot, restarted uint8 // how many times servers and clients have
}

// IDs are identities of servers, at most one for each place: two bits each, zero for none. A
// server that forgets has another identity, the next number.
type ids uint16

func (i ids) at(n int) uint8 { return uint8(i>>(2*n)) & 3 }

func (i *ids) set(n int, id uint8) { *i = *i&^(3<<(2*n)) | ids(id)<<(2*n) }

// count is how many identities both have.
func (i ids) count(other ids) (same int) {
	for n := range MaxServers {
		if id := i.at(n); id != 0 && id == other.at(n) {
			same++
		}
	}
	return same
}

// majorityOf reports whether a majority of some servers are among these.
func (i ids) majorityOf(set Set) bool {
	all, have := 0, 0
	for n := range MaxServers {
		if set.has(n) {
			all++
			if i.at(n) != 0 {
				have++
			}
		}
	}
	return have > all/2
}

// A list of members, below its version. So lists have an order, in which no two are equal.
type list uint16

const versionShift = 2 * MaxServers

func (l list) members() ids { return ids(l) & (1<<versionShift - 1) }

func (l list) majority() int { return l.members().count(l.members())/2 + 1 }

// newList is a list of these members above another one.
func newList(members ids, above list) list {
	return (above>>versionShift+1)<<versionShift | list(members)
}

// Lists are some of those in a state, by their places there.
type lists uint8

func (l lists) has(i int) bool { return l>>i&1 != 0 }

// top and bottom are the places of the highest and of the lowest of some lists, or zero.
func (s *state) top(some lists) (place int) {
	for i := range s.lists {
		if some.has(i) && s.lists[i] > s.lists[place] {
			place = i
		}
	}
	return place
}

func (s *state) bottom(some lists) (place int) {
	for i := MaxLists - 1; i >= 0; i-- {
		if some.has(i) && (!some.has(place) || s.lists[i] < s.lists[place]) {
			place = i
		}
	}
	return place
}

// below are those of some lists that are lower than the one at a place.
func (s *state) below(some lists, place int) (lower lists) {
	for i := range s.lists {
		if some.has(i) && s.lists[i] < s.lists[place] {
			lower |= 1 << i
		}
	}
	return lower
}

// A server is one machine at one address.
type server struct {
	id    uint8 // from 1 on
	owner uint8 // of the lock: 0, or 1 and the client
	left  uint8 // of the lock's TTL
	lists lists // that stand in the record; none: there is no record
	age   uint8 // of the highest of several, up to the TTL
	mute  uint8 // how long its votes count for nothing, since it was without a record
}

// A client is one process and its claim.
type client struct {
	valid uint8 // how long it believes to hold
	round uint8 // how long it will believe what the round under way grants; zero: there is none
	blind bool  // this round does not look; with BlindRounds or BlindExtensions

	votes    ids   // of the round
	standing lists // in the records of those that voted

	known lists // that it has seen in records
	force uint8 // the place of the highest one that it knows to be in force, or zero
	carry ids   // have carried the highest of several for long enough
	seen  ids   // that answered since it has known all of these, and are in no list or not in each
	fresh Set   // of those, without a record
}

// start is the first state.
func (m *Model) start() state {
	var s state
	s.count = 1
	for n := range s.servers {
		s.servers[n].id = 1
	}
	if m.Begins == 0 {
		return s
	}
	var members ids
	for n := range s.servers {
		if m.Begins.has(n) {
			members.set(n, 1)
			s.servers[n].lists = 1 << 1
		}
	}
	s.lists[1], s.count = newList(members, 0), 2
	return s
}

// broken names the clients that hold together. It looks at what they believe, and at true time.
func (s *state) broken() string {
	if s.clients[0].valid > 0 && s.clients[1].valid > 0 {
		return "A and B hold the lock"
	}
	return ""
}

// text is a list in words: the servers, with a prime for each time that one has forgotten.
func (l list) text() string {
	text := ""
	for n := range MaxServers {
		if id := l.members().at(n); id != 0 {
			text += fmt.Sprintf(" %d%.*s", n+1, int(id)-1, "''")
		}
	}
	return "{" + text + " }"
}
