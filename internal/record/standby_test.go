package record_test

import (
	"flag"
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/explore"
	"github.com/redquorum/redquorum/internal/long"
	"github.com/redquorum/redquorum/internal/record"
)

// Every order of what can happen to a node of two servers and two clients is tried here, to hold it to one promise:
// no two clients believe to have the node's vote at one moment. What names a server's data, the code decides
// (record.DataSet). How a primary is confirmed is a model, because package pool asks servers and waits for that:
//
//	open     A client takes a primary that has a mark of its present generation.
//	look     Where it has none, the client notes the generation first, and sees the other server as a replica then.
//	confirm  A while later it writes the mark of that generation.
//	vote     A vote counts if the server was of the generation that the client opened, when the client last looked.
//	born     The first client of a generation writes its record, and votes count a TTL later. An extension counts at
//	         once while the client knows that the key must be there.
//
// It holds because votes of two generations, both confirmed, say that one of them was first: its server was seen as a
// replica when the other had begun, and a server that was a replica is never of an earlier generation again. Where
// clients know one server only, the record counts in all generations of a process that tells neither of data that it
// took nor of a promotion.
//
// Promotions and demotions come as they like, both servers are primaries for any time, requests are late, also behind
// the end of their connection. Left out are a third server, of which each pair is two, servers that forget otherwise,
// and one that loads its primary's data and is promoted while a client goes by an older look.

// everything explores larger models, which takes some minutes and gigabytes.
var everything = flag.Bool("everything", false, "explore larger models of a node with a standby")

const ttl = 2 // in ticks

// A Model says which of all worlds to explore.
type Model struct {
	Promotions uint8   // how many there may be
	Renames    uint8   // how many other changes of a generation there may be
	Late       bool    // requests may arrive behind the end of their connection
	Alone      bool    // the clients know server 0 alone, and the other is none of the node's
	Resets     bool    // servers may forget that they took data
	Backlog    uint8   // for how long a server that was promoted keeps its past generation at least
	Mistake    Mistake // changes the protocol, if there is one
}

// A Mistake changes the protocol, and breaks the promise.
type Mistake string

// The mistakes. The comments say what the faulty protocol does.
const (
	Follows    Mistake = "follows"      // takes any primary
	MarksAlone Mistake = "marks alone"  // takes a primary with a mark of any generation
	LooksFirst Mistake = "looks first"  // looks at the other server before it notes the generation
	Hurries    Mistake = "hurries"      // confirms at once
	Unborn     Mistake = "unborn"       // lets votes count at once
	Carries    Mistake = "carries"      // goes on with the generation that follows on its connection
	TakesAsOwn Mistake = "takes as own" // has a server's data be its own though it was taken
	Promotes   Mistake = "promotes"     // has it be its own though the server was promoted
)

// A state is one moment of a world. It is what tells moments apart, too.
type state struct {
	servers [2]server
	clients [2]client
	last    uint8 // generation
	renames uint8 // that there may yet be
}

type server struct {
	generation uint8 // that it is the primary of; zero: it is a replica
	before     uint8 // that of its last time as primary, while clients may not know that it has ended
	fresh      bool  // that time has ended in this tick
	mark       uint8 // the generation that it confirms
	record     uint8 // the identity that it is of
	process    uint8 // that the record names; zero: there is none
	quarantine uint8 // what is left of it
	holder     uint8 // of the key: 1 + a client; zero: there is none
	left       uint8 // of the key

	taken    bool  // it has taken over the other's data
	promoted bool  // it tells of a generation before its promotion
	backlog  bool  // it keeps a backlog for replicas
	keeps    uint8 // for how long it does not free that
}

// own is the identity of a primary whose data is its own, in any generation.
const own = 255

// dataSets are identities by what a server tells: whether it took data and was promoted, and clients know no other.
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

// identity names the process and data of a primary.
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

// remembers reports whether the record of server i is one of the identity.
func (s *state) remembers(i, identity uint8) bool {
	at := &s.servers[i]
	return at.process == i+1 && (at.record == identity || identity == own)
}

type client struct {
	stage      stage
	server     uint8
	generation uint8
	identity   uint8 // of the server, while the stage is open
	looked     bool  // it has seen the other server as a replica; with LooksFirst
	valid      uint8
	asked      request
	counts     uint8 // for how long what was asked would be believed

	late   request // that was on its way when the client hung up; its answer is not heard
	lateAt uint8   // the server
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

// A step is one thing that happens.
type step struct {
	action action
	who    int // a server or a client
}

type action uint8

const (
	promote action = iota
	demote
	replicate // to the server
	rename    // it gets its first replica, or frees its backlog
	reset     // its statistics
	firstOfClients
	connectFirst // to server 0
	connectSecond
	look
	confirm
	hangUp
	bear
	ask
	run
	arrive // what is late
	tick
)

// Explore tries all steps that can happen, breadth first, until two clients have the vote or no step
// is left. look is shown each new state.
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

// steps calls do with each step that can happen next and the state after it.
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

// key leaves out what cannot matter any more: a generation does not return.
func (m Model) key(s *state) state {
	k := *s
	if at := &k.servers[1]; m.Alone { // which no client knows
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

// mayMatter reports whether the record of a server can be one that it remembers, or the other when it
// takes it over.
func (m Model) mayMatter(at *server, process uint8) bool {
	isTaken := !m.Resets && m.Mistake != TakesAsOwn // for good
	if at.process != process {
		return m.Alone && !isTaken
	}
	return m.Alone && !(at.taken && isTaken) || at.record == at.generation || at.record == at.before
}

// does changes the state by a step that can happen, and leaves it as it is otherwise.
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
			c.looked = s.servers[1].generation == 0 // to go to server 0
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

// manages is what happens to the servers without a client.
func (m Model) manages(s *state, did step) {
	at, other := &s.servers[did.who], &s.servers[1-did.who]
	if m.Alone && did.who == 1 && did.action != replicate {
		at.generation = 0
		if did.action == promote {
			at.generation = 1 // which counts for no client
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

// connects takes a client to a server.
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

// run has the server run what the client asked for, and the client take the answer.
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

// grants has the server run a request for the holder own, and reports whether it grants it.
func (at *server) grants(asked request, own uint8) bool {
	isGranted := asked == acquire && at.holder == 0 || asked == extend && at.holder == own
	if at.generation == 0 || !isGranted {
		return false
	}
	at.holder, at.left = own, ttl
	return true
}

// tick lets time pass.
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

// describe tells a step by its number, with what it leads to.
func describe(did step, _, after *state) string {
	return fmt.Sprintf("step %d by %d: servers %+v, clients %+v", did.action, did.who, after.servers, after.clients)
}

func TestNoTwoClientsHaveTheVoteOfANode(t *testing.T) {
	t.Parallel()
	if long.Race() {
		t.Skip("an exploration is one goroutine")
	}
	models := []Model{
		{Promotions: 1}, {Promotions: 1, Renames: 1, Alone: true, Backlog: 1},
	}
	if long.Exploration() {
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

func TestMistakesWithStandbysAreFound(t *testing.T) {
	t.Parallel()
	if !long.Exploration() {
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
