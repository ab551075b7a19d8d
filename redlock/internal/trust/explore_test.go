package trust

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/explore"
	"github.com/redquorum/redquorum/internal/long"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/race"
	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/redlock/internal/ballot"
	"github.com/redquorum/redquorum/redlock/internal/park"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// Every order of what can happen to a vote is tried here, on the Guard itself: three nodes, of which
// two have just granted A a lock, and each may forget its keys once; and B, which asks for the same
// lock. Requests of B take any time, and are run in order. The judge is P1: B does not win while A may
// believe in its lock. A world cannot be copied, so each is made anew from the steps that lead to it.

const (
	exploredTTL = 3 * time.Second // of both locks; A believes for less, by the drift allowance
	noHolder    = 0
	holderA     = 1
	holderB     = 2
)

// A bound keeps the worlds few, and may change what the guard goes by.
type bound struct {
	ticks, tries int        // seconds, and ballots of B
	forgets      quorum.Set // the nodes that may forget
	unjudged     bool       // B counts votes without the guard
	stale        bool       // replies tell the life of the record that was there at the beginning
	survives     bool       // the record outlives the keys that a node forgets
}

// An event is one thing that happens, on a node or, with a negative one, elsewhere.
type event struct {
	what string
	node int
}

// A world is one state of everything.
type world struct {
	bound
	now     int // ticks
	nodes   [3]*server
	guard   *Guard
	voters  *ballot.Voters
	ballots []*poll
	path    []event
	id      string // see text
}

func (w *world) Now() clock.Instant                          { return clock.Instant(w.now+1) * clock.Instant(time.Second) }
func (w *world) AfterFunc(time.Duration, func()) clock.Timer { panic("nothing waits here") }

// A server is a node, and B's requests on their way to it.
type server struct {
	world  *world
	name   string
	holder int
	until  int // ticks
	record string
	dies   time.Duration // when the record does
	first  time.Duration // when the record of the beginning does
	forgot bool
	queue  []message
}

type message struct {
	req  *protocol.Request
	slot int
	to   protocol.Receiver
}

func (s *server) String() string { return s.name }
func (s *server) Close() error   { return nil }
func (s *server) clock() time.Duration {
	return 1e7*time.Second + time.Duration(s.world.now)*time.Second
}

func (s *server) Submit(req *protocol.Request, slot int, to protocol.Receiver) error {
	s.queue = append(s.queue, message{req, slot, to})
	return nil
}

// handle has the server run the first request, and B take the answer.
func (s *server) handle() {
	m := s.queue[0]
	s.queue = s.queue[1:]
	reply := protocol.Reply{Outcome: protocol.Granted, Run: s.name}
	switch a := m.req.Admit; {
	case a != nil:
		if a.New != "" && a.Old == s.record {
			s.record = strings.ReplaceAll(a.New, "@", fmt.Sprint(s.clock().Milliseconds()))
			if a.Life > 0 {
				s.dies = s.clock() + a.Life
			}
		}
		reply.Epoch = &protocol.Epoch{Record: s.record, Clock: s.clock()}
	case s.holder == holderA && s.until > s.world.now:
		reply.Outcome = protocol.Refused
	default: // what B had of a try before is released
		s.holder, s.until = holderB, s.world.now+int(exploredTTL/time.Second)
	}
	if s.record != "" {
		reply.Life = s.dies - s.clock()
	}
	if s.world.stale {
		reply.Life = s.first - s.clock()
	}
	m.to.Receive(m.slot, reply)
}

// A poll is a ballot of B.
type poll struct {
	ballot.Ballot
	world *world
	trial Trial
	req   protocol.Request
}

func (p *poll) Request() *protocol.Request { return &p.req }
func (p *poll) HadKey(int) bool            { return false }

func (p *poll) Receive(i int, reply protocol.Reply) {
	if p.world.unjudged || p.trial.Judge(i, &reply) != NotYet {
		p.Count(i, &reply)
	}
}

func (p *poll) Count(i int, reply *protocol.Reply) {
	if c, _ := p.CountVote(i, reply, ballot.VoteKind{IsPromise: reply.Err == ErrEarly}); c.IsDue {
		p.trial.Proceed()
	}
}

// after is the world behind some events.
func (b bound) after(path []event) *world {
	w := &world{bound: b}
	var nodes []protocol.Node
	for i := range w.nodes {
		s := &server{world: w, name: fmt.Sprint("n", i)}
		if i < 2 {
			s.holder, s.until = holderA, int(exploredTTL/time.Second)
		}
		born := s.clock() - 1000*time.Hour
		settled := record.Record{Run: s.name, Generation: "settled", Nodes: 3, Born: born, Basis: record.Asked,
			Steps: []record.Step{{TTL: exploredTTL, Entered: born, Used: s.clock()}}}
		s.record, s.dies = settled.String(), s.clock()+1<<42*time.Millisecond
		s.first = s.dies
		w.nodes[i], nodes = s, append(nodes, s)
	}
	config := Config{Nodes: nodes, Clock: w, Key: record.Key, Timeout: time.Second, MaxTTL: exploredTTL}
	w.guard = New(config)
	w.voters = ballot.NewVoters(nodes, &park.Lot{Clock: w}, func(time.Duration) time.Duration { return 0 })
	for _, e := range path {
		w.does(e)
	}
	return w
}

func (w *world) does(e event) {
	w.path = append(w.path, e)
	switch e.what {
	case "a second passes":
		w.now++
	case "B asks all nodes":
		p := &poll{world: w, req: protocol.Request{Op: protocol.OpAcquire, Key: "x", TTL: exploredTTL, Epoch: record.Key}}
		w.ballots = append(w.ballots, p)
		p.Begin(w.voters, w.Now())
		p.trial.Begin(w.guard, p)
		p.Ask(w.voters.All(), &p.req, p)
	case "runs a request":
		w.nodes[e.node].handle()
	case "forgets":
		s := w.nodes[e.node]
		s.holder, s.forgot = noHolder, true
		if !w.survives {
			s.record, s.dies = "", 0
		}
	}
}

// events are all that can happen next.
func (w *world) events() (all []event) {
	if w.now < w.ticks {
		all = append(all, event{"a second passes", -1})
	}
	if n := len(w.ballots); n == 0 || n < w.tries && w.ballots[n-1].Start() < w.Now() && !w.isWon() {
		all = append(all, event{"B asks all nodes", -1})
	}
	for i, s := range w.nodes {
		if len(s.queue) > 0 {
			all = append(all, event{"runs a request", i})
		}
		if w.forgets.Has(i) && !s.forgot && w.now < int(exploredTTL/time.Second) {
			all = append(all, event{"forgets", i})
		}
	}
	return all
}

func (w *world) isWon() bool {
	return slices.ContainsFunc(w.ballots, func(p *poll) bool { return p.IsWon() })
}

func (w *world) broken() string {
	if w.now < int(exploredTTL/time.Second) && w.isWon() {
		return "A and B hold the lock"
	}
	return ""
}

// drawn matches what is drawn by lot: a record's generation, and moments that come of its life.
var drawn = regexp.MustCompile(`\b[A-Z2-7]{20}\b|\b\d{18,}\b`)

// text tells worlds apart. What is drawn is named by the order in which it is met.
func (w *world) text() string {
	if w.id != "" {
		return w.id
	}
	var b strings.Builder
	fmt.Fprint(&b, w.now)
	for i, s := range w.nodes {
		fmt.Fprintf(&b, "\n%d %d %q %d %v:", s.holder, s.until, s.record, s.dies, s.forgot)
		for _, m := range s.queue {
			fmt.Fprintf(&b, " %v %v", m.req.Op, slices.IndexFunc(w.ballots, func(p *poll) bool { return &p.req == m.req }))
			if a := m.req.Admit; a != nil {
				fmt.Fprintf(&b, " %q %q %d", a.Old, a.New, a.Life)
			}
		}
		m := &w.guard.nodes[i]
		fmt.Fprintf(&b, "\n%q %v %q %d %+v %v %v %+v", m.text, m.record != nil, m.run, m.ends, m.generation, m.forgot, m.steps, m.knownTTLs)
		fmt.Fprintf(&b, " %+v %d %d %d %d %d", m.offset, m.noVotesUntil, m.skewTotal, m.keepStepsUntil, m.readAt, m.failed)
		fmt.Fprintf(&b, " %d %d %d %v", m.lastGood.life+m.clock, m.clock, m.entries, m.asking != nil)
		if r := m.asking; r != nil {
			fmt.Fprintf(&b, " %d %d %d", r.begin, r.sent, r.tries)
		}
		for _, v := range m.parked {
			fmt.Fprintf(&b, " %d %v %d", v.start, v.entry, v.reply.Life+v.clock)
		}
	}
	for _, p := range w.ballots {
		s := p.State()
		fmt.Fprintf(&b, "\n%d %+v %d %d %d %d", p.Start(), s.Tally, s.Promised, s.Judging, s.With(0), s.With(protocol.Granted))
		if waits := p.trial.waiting.Load(); waits != nil {
			fmt.Fprint(&b, " ", len(waits.votes))
		}
	}
	names := map[string]string{}
	w.id = drawn.ReplaceAllStringFunc(b.String(), func(of string) string {
		if names[of] == "" {
			names[of] = fmt.Sprint("#", len(names))
		}
		return names[of]
	})
	return w.id
}

// explore shows each new world to look.
func (b bound) explore(look func(*world)) explore.Result {
	worlds := map[string]*world{} // whose events have not been tried
	start := b.after(nil)
	worlds[start.text()] = start
	return explore.Space[world, string, event]{
		Start: *start,
		Key:   (*world).text,
		State: func(k string) world {
			w := worlds[k]
			delete(worlds, k)
			return *w
		},
		Steps: func(w *world, do func(event, *world)) {
			for _, e := range w.events() {
				do(e, b.after(append(slices.Clone(w.path), e)))
			}
		},
		Describe: func(e event, _, _ *world) string {
			if e.node < 0 {
				return e.what
			}
			return fmt.Sprintf("node %d %s", e.node+1, e.what)
		},
	}.Explore(func(_ event, w *world, isNew bool) string {
		if isNew {
			worlds[w.text()] = w
			look(w)
		}
		return w.broken()
	})
}

func TestInEveryOrderOfEvents(t *testing.T) {
	t.Parallel()
	if race.Enabled() {
		t.Skip("an exploration is one goroutine")
	}
	bounds := []bound{{ticks: 3, tries: 1}, {ticks: 1, tries: 1, forgets: quorum.Of(0)}}
	if long.Exploration() {
		bounds = append(bounds, bound{ticks: 2, tries: 1, forgets: quorum.Of(0)})
	}
	won := false
	for _, b := range bounds {
		res := b.explore(func(w *world) { won = won || w.isWon() })
		require.Nil(t, res.Violation, "%v", res.Violation)
		t.Logf("%+v: %d states, %d steps", b, res.States, res.Steps)
	}
	assert.True(t, won, "B wins when A's time is over")
}

func TestMistakesAreFound(t *testing.T) {
	t.Parallel()
	for mistake, b := range map[string]bound{
		"votes count without the guard":    {ticks: 0, tries: 1, forgets: quorum.Of(0), unjudged: true},
		"a reply tells of a record before": {ticks: 1, tries: 2, forgets: quorum.Of(0), stale: true},
		"a record outlives the keys":       {ticks: 0, tries: 1, forgets: quorum.Of(0), survives: true},
	} {
		t.Run(mistake, func(t *testing.T) {
			t.Parallel()
			res := b.explore(func(*world) {})
			require.NotNil(t, res.Violation, "not found in %d states", res.States)
			t.Logf("found in %d states: %v", res.States, res.Violation)
		})
	}
}
