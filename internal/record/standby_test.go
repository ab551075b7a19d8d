package record_test

import (
	"flag"
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/evidence/explore"
	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/internal/testenv"
)

// The tests of this file explore every order of events for a node with two servers and two clients.
// They check one promise: two clients never believe at the same moment that they have the node's
// vote. The name of a server's data comes from the code (record.DataSet). The confirmation of a
// primary is a model, because package pool sends requests and waits for it:
//
//	open     A client accepts a primary that has a mark of its present generation.
//	look     Without such a mark, the client notes the generation first, and then sees the other server as a replica.
//	confirm  A while later it writes the mark of that generation.
//	vote     A vote counts if the server was of the generation that the client opened, when the client last looked.
//	born     The first client of a generation writes its record, and votes count a TTL later. An extension counts at
//	         once while the client knows that the key must exist.
//
// The promise holds for the following reason. If votes of two confirmed generations exist, one of
// the generations was first. Its server was seen as a replica after the start of the other
// generation, and a server that was a replica never returns to an earlier generation. If clients
// use only one of the servers, the record counts in all generations of a process that reports
// neither foreign data nor a promotion.
//
// Promotions and demotions happen in any order, both servers can be primaries for any time, and
// requests are late, even after the end of their connection. The model omits a third server, which
// is covered by its pairs, servers that forget in other ways, and a server that loads its primary's
// data and is promoted while a client relies on an older look.

// everything explores larger models, which takes minutes and gigabytes.
var everything = flag.Bool("everything", false, "explore larger models of a node with a standby")

const ttl = 2 // in ticks

// A Model selects the worlds to explore.
type Model struct {
	Promotions uint8   // maximum number of promotions
	Renames    uint8   // maximum number of other changes of a generation
	Late       bool    // requests may arrive after the end of their connection
	Alone      bool    // the clients use only server 0, and the other does not belong to the node
	Resets     bool    // servers may forget that they took over data
	Backlog    uint8   // minimum time for which a promoted server keeps its past generation
	Mistake    Mistake // changes the protocol; empty for none
}

// A Mistake changes the protocol, and breaks the promise.
type Mistake string

// The mistakes. The comments describe the faulty protocol.
const (
	Follows    Mistake = "follows"      // accepts any primary
	MarksAlone Mistake = "marks alone"  // accepts a primary with a mark of any generation
	LooksFirst Mistake = "looks first"  // looks at the other server before it notes the generation
	Hurries    Mistake = "hurries"      // confirms at once
	Unborn     Mistake = "unborn"       // lets votes count at once
	Carries    Mistake = "carries"      // continues with the next generation on the same connection
	TakesAsOwn Mistake = "takes as own" // treats foreign data as own data
	Promotes   Mistake = "promotes"     // treats data as the server's own although the server was promoted
)

// A state is one moment of a world. It is also the identity of that moment.
type state struct {
	servers [2]server
	clients [2]client
	last    uint8 // generation
	renames uint8 // changes of a generation that are still possible
}

type server struct {
	generation uint8 // current generation as primary; zero for a replica
	before     uint8 // generation of its last time as primary, as long as clients may not know that it has ended
	fresh      bool  // the last time as primary has ended in this tick
	mark       uint8 // confirmed generation
	record     uint8 // identity in the record
	process    uint8 // process in the record; zero without a record
	quarantine uint8 // remaining quarantine
	holder     uint8 // holder of the key: 1 + a client; zero without one
	left       uint8 // remaining life of the key

	taken    bool  // the server has taken over the data of the other one
	promoted bool  // the server reports a generation before its promotion
	backlog  bool  // the server keeps a backlog for replicas
	keeps    uint8 // minimum time until the server frees the backlog
}

// own is the identity of a primary whose data is its own, in any generation.
const own = 255

// dataSets are identities as reported by servers: whether a server took over data and was promoted,
// and whether clients use only this server.
var dataSets = func() (own [2][2][2]bool) {
	for taken := range 2 {
		for promoted := range 2 {
			for confirmed := range 2 {
				primary := [2]string{"", "run/id"}[confirmed]
				own[taken][promoted][confirmed] = record.DataSet("id", strconv.Itoa(promoted*100-1+promoted), strconv.Itoa(100*taken), primary) == record.OwnData
			}
		}
	}
	return own
}()

// identity returns the name of a primary's process and data.
func (m Model) identity(at *server) uint8 {
	taken, promoted := at.taken && m.Mistake != TakesAsOwn, at.promoted && m.Mistake != Promotes
	if at.generation != 0 && dataSets[bit(taken)][bit(promoted)][bit(!m.Alone)] {
		return own
	}
	return at.generation
}

func bit(is bool) uint8 {
	if is {
		return 1
	}
	return 0
}

// remembers reports whether the record of server i has this identity.
func (s *state) remembers(i, identity uint8) bool {
	at := &s.servers[i]
	return at.process == i+1 && (at.record == identity || identity == own)
}

type client struct {
	stage      stage
	server     uint8
	generation uint8
	identity   uint8 // of the server, while the stage is open
	looked     bool  // has seen the other server as a replica; with LooksFirst
	valid      uint8
	asked      request
	counts     uint8 // time for which a grant of the last request would count

	late   request // outstanding when the client disconnected; its answer is ignored
	lateAt uint8   // server of late
}

type stage uint8

const (
	away stage = iota
	noted
	seen   // the other server is a replica
	waited // since then
	open
)

type request uint8

const (
	none request = iota
	acquire
	extend
)

// A step is one event.
type step struct {
	action action
	who    int // server or client
}

type action uint8

const (
	promote action = iota
	demote
	replicate // take over the data of this server
	rename    // get the first replica, or free the backlog
	reset     // reset the statistics
	firstOfClients
	connectFirst // to server 0
	connectSecond
	look
	confirm
	hangUp
	bear
	ask
	run
	arrive // the late request arrives
	tick
)

// Explore tries all possible steps, breadth first, until two clients own the vote or no step is
// left. It calls look with each new state.
func (m Model) Explore(look func(*state)) explore.Result {
	space := explore.Space[state, state, step]{
		Start:    state{servers: [2]server{{generation: 1}}, last: 1, renames: m.Renames},
		Key:      m.key,
		State:    func(s state) state { return s },
		Steps:    m.steps,
		Describe: describe,
	}
	return space.Explore(func(_ step, s *state, isNew bool) string {
		if isNew {
			look(s)
		}
		if s.clients[0].valid > 0 && s.clients[1].valid > 0 {
			return "both clients have the vote"
		}
		return ""
	})
}

// steps calls do with each possible next step and the resulting state.
func (m Model) steps(s *state, do func(step, *state)) {
	for a := promote; a <= tick; a++ {
		for who := range 2 {
			next := *s
			m.does(&next, step{a, who})
			if next != *s {
				do(step{a, who}, &next)
			}
			if a == tick {
				break
			}
		}
	}
}

// key returns the state without the data that no longer matter: a past generation never comes back.
func (m Model) key(s *state) state {
	k := *s
	if at := &k.servers[1]; m.Alone { // unknown to the clients
		*at = server{generation: at.generation, record: at.record, process: at.process, quarantine: at.quarantine, holder: at.holder, left: at.left}
	}
	for i := range k.servers {
		at := &k.servers[i]
		if at.mark != at.generation && m.Mistake != MarksAlone {
			at.mark = 0
		}
		if !m.Alone {
			at.taken, at.promoted = false, false
		}
		if k.renames == 0 {
			at.backlog, at.keeps = false, 0
		}
		if !m.mayMatter(at, uint8(i+1)) {
			at.record, at.process, at.quarantine = 0, 0, 0
		}
	}
	for i := range k.clients {
		if c := &k.clients[i]; c.stage == away {
			*c = client{valid: c.valid, looked: c.looked, late: c.late, lateAt: c.lateAt}
		}
	}
	return k
}

// mayMatter reports whether the record of a server can still match the server itself, or the other
// server after it takes over the data.
func (m Model) mayMatter(at *server, process uint8) bool {
	isTaken := !m.Resets && m.Mistake != TakesAsOwn // permanently
	if at.process != process {
		return m.Alone && !isTaken
	}
	return m.Alone && !(at.taken && isTaken) || at.record == at.generation || at.record == at.before
}

// does applies a possible step to the state, and does nothing for an impossible one.
func (m Model) does(s *state, did step) {
	if did.action == tick {
		s.tick()
		return
	}
	if did.action < firstOfClients {
		m.manages(s, did)
		return
	}
	c := &s.clients[did.who]
	at, other := &s.servers[c.server], &s.servers[1-c.server]
	if m.Mistake == Carries && c.stage == open && at.generation != 0 {
		c.generation, c.identity = at.generation, m.identity(at)
	}
	switch did.action {
	case connectFirst, connectSecond:
		m.connects(s, c, uint8(did.action-connectFirst))
	case look:
		switch {
		case c.stage == noted && other.generation == 0:
			c.stage = seen
		case m.Mistake == LooksFirst && c.stage == away:
			c.looked = s.servers[1].generation == 0 // the client connects to server 0
		}
	case confirm:
		if c.stage == waited || m.Mistake == Hurries && c.stage == seen {
			c.stage = away
			if at.generation != 0 {
				at.mark, c.stage, c.identity = c.generation, open, c.generation
			}
		}
	case hangUp:
		late, lateAt := c.late, c.lateAt
		if m.Late && c.asked != none && late == none {
			late, lateAt = c.asked, c.server
		}
		*c = client{valid: c.valid, late: late, lateAt: lateAt}
	case bear:
		if c.stage == open && m.identity(at) == c.identity && !s.remembers(c.server, c.identity) {
			at.record, at.process, at.quarantine = c.identity, c.server+1, ttl
			if m.Mistake == Unborn {
				at.quarantine = 0
			}
		}
	case ask:
		if c.stage == open && c.asked == none {
			c.asked, c.counts = acquire, ttl
			if c.valid > 0 {
				c.asked = extend
			}
		}
	case run:
		m.run(s, did.who)
	case arrive:
		if c.late != none {
			s.servers[c.lateAt].grants(c.late, uint8(did.who+1))
			c.late, c.lateAt = none, 0
		}
	}
}

// manages applies events of the servers without a client.
func (m Model) manages(s *state, did step) {
	at, other := &s.servers[did.who], &s.servers[1-did.who]
	if m.Alone && did.who == 1 && did.action != replicate {
		at.generation = 0
		if did.action == promote {
			at.generation = 1 // counts for no client
		}
		return
	}
	switch {
	case did.action == promote && at.generation == 0 && s.last <= m.Promotions+m.Renames-s.renames:
		s.last++
		at.generation, at.promoted, at.keeps = s.last, true, m.Backlog
	case did.action == rename && at.generation != 0 && (at.keeps == 0 || !at.backlog) && s.renames > 0:
		s.last, s.renames = s.last+1, s.renames-1
		at.before, at.fresh, at.generation = m.identity(at), true, s.last
		at.promoted, at.backlog = false, !at.backlog
	case did.action == reset && m.Resets:
		at.taken = false
	case did.action == demote && at.generation != 0:
		at.before, at.fresh, at.generation = m.identity(at), true, 0
	case did.action == replicate && at.generation == 0 && other.generation != 0:
		at.mark, at.record, at.process, at.quarantine = other.mark, other.record, other.process, other.quarantine
		at.taken, at.promoted, at.backlog = true, false, true
		at.holder, at.left = other.holder, other.left
		at.before, at.fresh = 0, false
	}
}

// connects connects a client to a server.
func (m Model) connects(s *state, c *client, to uint8) {
	at := &s.servers[to]
	if c.stage != away || at.generation == 0 || m.Alone && to != 0 {
		return
	}
	c.server, c.generation, c.stage = to, at.generation, noted
	isMarked := at.mark == at.generation || m.Mistake == MarksAlone && at.mark != 0
	switch {
	case isMarked, m.Alone, m.Mistake == Follows:
		c.stage, c.identity = open, m.identity(at)
	case c.looked && to == 0:
		c.stage = seen
	}
	c.looked = false
}

// run makes the server run the client's request, and the client process the answer.
func (m Model) run(s *state, who int) {
	c := &s.clients[who]
	at, asked, counts := &s.servers[c.server], c.asked, c.counts
	if asked == none {
		return
	}
	c.asked, c.counts = none, 0
	if !at.grants(asked, uint8(who+1)) {
		return
	}
	isSame := m.identity(at) == c.identity || at.before == c.identity
	isTrusted := at.quarantine == 0 || asked == extend && c.valid > 0
	if isSame && s.remembers(c.server, c.identity) && isTrusted && counts > 0 {
		c.valid = counts
	}
}

// grants makes the server run a request for the holder own, and reports whether it grants the
// request.
func (at *server) grants(asked request, own uint8) bool {
	isGranted := asked == acquire && at.holder == 0 || asked == extend && at.holder == own
	if at.generation == 0 || !isGranted {
		return false
	}
	at.holder, at.left = own, ttl
	return true
}

// tick advances the time.
func (s *state) tick() {
	for i := range s.servers {
		at := &s.servers[i]
		at.quarantine, at.keeps = less(at.quarantine), less(at.keeps)
		if at.left = less(at.left); at.left == 0 {
			at.holder = 0
		}
		if !at.fresh {
			at.before = 0
		}
		at.fresh = false
	}
	for i := range s.clients {
		c := &s.clients[i]
		c.valid, c.counts = less(c.valid), less(c.counts)
		if c.stage == seen {
			c.stage = waited
		}
	}
}

func less(n uint8) uint8 { return max(n, 1) - 1 }

// describe describes a step by its number, with the resulting state.
func describe(did step, _, after *state) string {
	return fmt.Sprintf("step %d by %d: servers %+v, clients %+v", did.action, did.who, after.servers, after.clients)
}

func TestAtMostOneClientHasTheVoteOfANode(t *testing.T) {
	t.Parallel()
	if testenv.Race() {
		t.Skip("an exploration is one goroutine")
	}
	models := []Model{
		{Promotions: 1}, {Promotions: 1, Renames: 1, Alone: true, Backlog: 1},
	}
	if testenv.LongExploration() {
		models = append(models, Model{Promotions: 2}, Model{Promotions: 1, Late: true}, Model{Promotions: 1, Renames: 1},
			Model{Promotions: 1, Renames: 1, Alone: true, Backlog: ttl, Resets: true})
	}
	if *everything {
		models = []Model{{Promotions: 3, Backlog: 1}, {Promotions: 2, Late: true}}
	}
	for _, m := range models {
		t.Run(fmt.Sprintf("%+v", m), func(t *testing.T) {
			t.Parallel()
			votes := map[uint8]bool{} // by identity
			res := m.Explore(func(s *state) {
				for _, c := range s.clients {
					if c.valid > 0 && c.stage == open {
						votes[c.identity] = true
					}
				}
			})
			require.Nil(t, res.Violation)
			t.Log(res.States, "states,", res.Steps, "steps")
			assert.Len(t, votes, 1+int(m.Promotions+m.Renames), "each identity votes in its turn: %v", votes)
		})
	}
}

func TestExplorationFindsMistakesWithStandbys(t *testing.T) {
	t.Parallel()
	if !testenv.LongExploration() {
		t.Skip("these explorations are long")
	}
	models := map[Mistake]Model{
		TakesAsOwn: {Promotions: 1, Renames: 1, Alone: true, Backlog: 1},
		Promotes:   {Promotions: 1, Renames: 1, Alone: true, Backlog: ttl, Resets: true},
	}
	for _, mistake := range []Mistake{Follows, MarksAlone, LooksFirst, Hurries, Unborn, Carries} {
		models[mistake] = Model{Promotions: 2}
	}
	for mistake, m := range models {
		t.Run(string(mistake), func(t *testing.T) {
			t.Parallel()
			m.Mistake = mistake
			res := m.Explore(func(*state) {})
			require.NotNil(t, res.Violation, "it does no harm")
			t.Log(res.Violation)
		})
	}
}
