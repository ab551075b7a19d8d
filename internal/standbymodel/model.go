package standbymodel

import (
	"fmt"

	"github.com/redquorum/redquorum/internal/explore"
)

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

// own is the identity of a primary that stands alone and whose data is its own, in any generation
// (record.DataSet).
const own = 255

// identity names the process and data of a primary.
func (m Model) identity(at *server) uint8 {
	isTaken := at.taken && m.Mistake != TakesAsOwn
	isPromoted := at.promoted && m.Mistake != Promotes
	if at.generation == 0 || isTaken || isPromoted || !m.Alone {
		return at.generation
	}
	return own
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

// describe puts a step into words, for a trace.
func describe(did step, _, after *state) string {
	server, client := string(rune('X'+did.who)), string(rune('A'+did.who))
	text := [...]string{
		promote: server + " is promoted", demote: server + " is demoted",
		replicate: server + " takes over what its primary has",
		rename:    server + " gets its first replica, or frees its backlog", reset: server + " resets its statistics",
		connectFirst: client + " connects to X", connectSecond: client + " connects to Y",
		look: client + " asks the other server for its role", confirm: client + " confirms its server",
		hangUp: client + " hangs up", bear: client + " writes a record", ask: client + " asks for a vote",
		run: "what " + client + " asked for is run", arrive: "what " + client + " asked for before is run", tick: "time passes",
	}[did.action]
	for i, at := range after.servers {
		text += fmt.Sprintf("; %c %v", 'X'+i, at)
	}
	for i, c := range after.clients {
		text += fmt.Sprintf("; %c %v", 'A'+i, c)
	}
	return text
}

func (s server) String() string {
	text := "replica"
	if s.generation != 0 {
		text = fmt.Sprint("primary ", s.generation)
	}
	return fmt.Sprintf("%s (mark %d, record %d of %d for %d, key %d for %d, taken %v, promoted %v)",
		text, s.mark, s.record, s.process, s.quarantine, s.holder, s.left, s.taken, s.promoted)
}

func (c client) String() string {
	return fmt.Sprintf("%s of %c, %d (valid for %d)",
		[...]string{"away", "noted", "seen", "waited", "open"}[c.stage], 'X'+rune(c.server), c.generation, c.valid)
}
