package explore

import (
	"cmp"
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/explore"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

var (
	maxStates = flag.Int("states", 3_000, "states of each breadth-first search")
	showTable = flag.Bool("table", false, "print how far each search has come")
)

// A search is a world in which anything may happen next: any request that is the next on its way is run and
// answered, at once or with a gap, or is lost; any process does what is due; a caller does what it may. Time
// passes only when a process has nothing better to do than to wait for it.
//
// # What is not searched twice
//
// Two worlds are one state if they have the same hash. It takes times from now on, numbers values and ballots
// by where they are found, and leaves out what no longer matters (see hasher). Each is exact: worlds of one
// state go on alike, but for the names of values and the time that it is. The core rounds when it renews to a
// phase of the clock, so the phase is part of the state.
//
// Nodes are not interchangeable, although they look alike: the lots say which of them keeps the order, and
// which follows when that falls silent. Processes are not either: of two that lined up in the same
// microsecond the name decides.
type search struct {
	*world
	budget budget
	sum    uint64 // its hash, once that is known
	root
}

// A root is what all worlds of a search share.
type root struct {
	scenario
	phase   time.Duration // of the core's steps, and of the nodes'
	current *current
}

// The current world is the one that draws values.
type current struct{ *world }

// A budget is how often each thing may still happen.
type budget struct {
	Losses  int // messages that are lost
	Gaps    int // answers that come later than the requests are run
	Ticks   int // timers that fire
	Hurries int // those that fire while messages are on their way
	Extends int
	Lowers  int // writers that become readers
	Leaves  int // callers whose context ends
	Closes  int
	Forgets int // of nodes
	Lates   int // processes that are not run for a TTL
}

// A move is one thing that happens next. It has the same name in all worlds of one state.
type move struct {
	kind  kind
	of    int // a process
	node  int // or a caller of the process
	class what
}

type kind uint8

const (
	delivers kind = iota // the next message on a way; a request and its answer
	releases
	arrives // a caller tries again
	runs    // a request, whose answer comes later
	loses
	losesAnswer
	ticks
	closes
	extends
	lowers
	leaves
	forgets
	isLate
)

var kinds = [...]string{"deliver", "release", "arrive", "run", "lose", "lose the answer", "tick", "close", "extend", "lower", "leave", "forget", "late"}

func (m move) String() string {
	return fmt.Sprintf("%s: process %d, %d %v", kinds[m.kind], m.of, m.node, m.class)
}

// atOnce is a network in which a message arrives when the search says so.
type atOnce struct{}

func (atOnce) travel(int, int) (time.Duration, time.Duration, bool, bool) { return 0, 0, false, false }

// A scenario is where a search begins.
type scenario struct {
	name   string
	nodes  int
	budget budget
	ttl    time.Duration
	// The callers of each process: w waits, o in order (Fair), m with a MaxHold, f wants a token, s is a reader,
	// a adopts what one that died has left, t tries, r up to three times, l once it comes.
	procs  []string
	differ int // by how many milliseconds the wall clock of each process is ahead of the one before
}

// ofTheDead is a value of a process 0 that has died.
const ofTheDead = "p0v000"

// The first are small enough to be gone through whole, with each fault once. The last are not.
var scenarios = []scenario{
	{name: "wait against wait", nodes: 3, procs: []string{"w", "w"}, budget: budget{Ticks: 1}},
	{name: "wait against wait, two nodes", nodes: 2, procs: []string{"w", "w"}, budget: budget{Ticks: 2}},
	{name: "wait against wait, one node", nodes: 1, procs: []string{"w", "w"}, budget: budget{Ticks: 12}},
	{name: "try against try", nodes: 3, procs: []string{"t", "t"}, budget: budget{Ticks: 4}},
	{name: "try against wait", nodes: 3, procs: []string{"w", "t"}, budget: budget{Ticks: 2}},
	{name: "try at any moment", nodes: 1, procs: []string{"tl", "t"}, budget: budget{Ticks: 2, Gaps: 1, Hurries: 1}},
	{name: "MaxHold", nodes: 1, procs: []string{"m", "w"}, budget: budget{Ticks: 6}},
	{name: "tries again", nodes: 3, procs: []string{"r", "w"}, budget: budget{Ticks: 2}},
	{name: "tries again, two callers", nodes: 1, procs: []string{"rr", "w"}, budget: budget{Ticks: 3}},
	{name: "three processes", nodes: 1, procs: []string{"w", "w", "t"}, budget: budget{Ticks: 6}},
	{name: "loss", nodes: 1, procs: []string{"w", "w"}, budget: budget{Ticks: 4, Losses: 2}},
	{name: "loss, one process", nodes: 3, procs: []string{"w"}, budget: budget{Ticks: 6, Losses: 1}},
	{name: "late answer", nodes: 1, procs: []string{"w", "w"}, budget: budget{Ticks: 6, Gaps: 2}},
	{name: "early timer", nodes: 1, procs: []string{"w", "w"}, budget: budget{Ticks: 6, Hurries: 1}},
	{name: "early timer, late answer, loss", nodes: 1, procs: []string{"w", "w"}, budget: budget{Ticks: 2, Losses: 1, Gaps: 1, Hurries: 1}},
	{name: "handover, loss", nodes: 3, procs: []string{"ww"}, budget: budget{Ticks: 4, Losses: 1}},
	{name: "handover, leave, close", nodes: 3, procs: []string{"ww"}, budget: budget{Ticks: 4, Leaves: 1, Closes: 1}},
	{name: "handover against try, leave, close", nodes: 1, procs: []string{"ww", "t"}, budget: budget{Ticks: 4, Leaves: 1, Closes: 1}},
	{name: "extension, loss", nodes: 1, procs: []string{"w", "t"}, budget: budget{Ticks: 6, Extends: 1, Losses: 1}},
	{name: "paused process", nodes: 1, procs: []string{"w", "w"}, budget: budget{Ticks: 4, Lates: 1, Gaps: 1}},
	{name: "node that forgets, long TTL", nodes: 1, procs: []string{"w"}, budget: budget{Ticks: 8, Forgets: 1, Losses: 1}, ttl: 2048 * time.Millisecond},
	{name: "tokens, one node", nodes: 1, procs: []string{"ff", "f"}, budget: budget{Ticks: 4, Gaps: 1}, differ: -3},
	{name: "tokens, loss", nodes: 3, procs: []string{"f", "f"}, budget: budget{Ticks: 2, Losses: 1}, differ: -3},
	{name: "readers against a writer", nodes: 1, procs: []string{"ss", "s", "w"}, budget: budget{Ticks: 2}},
	{name: "reader against writers, one becomes a reader", nodes: 1, procs: []string{"sw", "w"}, budget: budget{Ticks: 3, Lowers: 1, Losses: 1}},
	{name: "fair, one node", nodes: 1, procs: []string{"oo", "o"}, budget: budget{Ticks: 2}},
	{name: "fair against a try, close", nodes: 1, procs: []string{"ow", "t"}, budget: budget{Ticks: 1, Leaves: 1, Closes: 1}},
	{name: "adoption", nodes: 1, procs: []string{"aw", "w"}, budget: budget{Ticks: 4, Losses: 1, Leaves: 1}},
	{name: "adoption, loss", nodes: 3, procs: []string{"aw"}, budget: budget{Ticks: 4, Losses: 1}},

	{name: "all at once, two nodes", nodes: 2, procs: []string{"w", "w"}, budget: budget{Ticks: 2, Losses: 1, Gaps: 1, Hurries: 1}},
	{name: "try against try, loss", nodes: 3, procs: []string{"t", "t"}, budget: budget{Ticks: 1, Losses: 1}},
	{name: "wait against try, loss", nodes: 3, procs: []string{"w", "t"}, budget: budget{Ticks: 1, Losses: 1}},
	{name: "wait against wait, late answer", nodes: 3, procs: []string{"w", "w"}, budget: budget{Ticks: 1, Gaps: 1}},
	{name: "release against renewal", nodes: 3, procs: []string{"w", "t"}, budget: budget{Ticks: 3, Hurries: 1}},
	{name: "close at any moment", nodes: 3, procs: []string{"ww", "t"}, budget: budget{Ticks: 1, Closes: 1}},
	{name: "leave at any moment", nodes: 3, procs: []string{"w", "w"}, budget: budget{Ticks: 1, Leaves: 1}},
	{name: "paused process, three nodes", nodes: 3, procs: []string{"w", "w"}, budget: budget{Ticks: 1, Lates: 1, Gaps: 1}},
}

func (sc scenario) begin() *search {
	ttl := cmp.Or(sc.ttl, 128*time.Millisecond) // a renewal has steps of half a millisecond
	s := &search{budget: sc.budget, root: root{scenario: sc, phase: min(20*time.Millisecond, ttl/256), current: &current{}}}
	if slices.ContainsFunc(sc.procs, func(p string) bool { return strings.Contains(p, "s") }) {
		s.phase = time.Millisecond // to which nodes round the ends of readers
	}
	s.world = newWorld(sc.nodes, len(sc.procs), atOnce{}, func(limit time.Duration) time.Duration { return limit / 2 })
	s.current.world = s.world
	waits := &core.Terms{TTL: ttl, Timeout: 30 * time.Millisecond, Renew: true, Patience: 50 * time.Millisecond}
	reads := *waits
	reads.Shared = true
	forLong := *waits
	forLong.MaxHold = ttl / 2
	fenced := *waits
	fenced.Fenced = true
	fair := *waits
	fair.Fair = true
	adopts := *waits
	adopts.Adopts = ofTheDead
	for i, p := range s.processes {
		current := s.current
		p.group.NewValue = func(string) string {
			p := current.processes[i]
			p.drawn++
			return fmt.Sprintf("p%dv%03d", i, p.drawn)
		}
		p.group.Propose = func() core.Proposal { return current.propose(current.processes[i]) }
		p.ahead = time.Duration(i*sc.differ) * time.Millisecond
		for _, kind := range sc.procs[i] {
			c := &caller{Caller: &core.Caller{Terms: waits, Try: strings.ContainsRune("trla", kind)}, process: p, acts: never, leaves: never}
			if kind == 'r' {
				c.again = 2
			}
			switch c.rests = kind == 'l'; kind {
			case 'm':
				c.Terms = &forLong
			case 'f':
				c.Terms = &fenced
			case 's':
				c.Terms = &reads
			case 'o':
				c.Terms = &fair
			case 'a':
				c.Terms = &adopts
				for _, node := range s.nodes[:sc.nodes/2+1] {
					node.Run(0, 0, &protocol.Request{Op: protocol.OpAcquire, Key: name, Value: ofTheDead, TTL: ttl})
				}
			}
			p.callers = append(p.callers, c)
		}
	}
	for _, p := range s.processes {
		for _, c := range p.callers {
			if !c.rests {
				s.arrive(c)
			}
		}
	}
	s.tidy()
	return s
}

// copy returns a copy, which has the processes and the nodes to itself once it changes them. s does not
// change any more.
func (s *search) copy() *search {
	c, w := *s, *s.world
	c.world = &w
	w.processes, w.nodes = slices.Clone(w.processes), slices.Clone(w.nodes)
	w.lent = sets{quorum.All(len(w.nodes)), quorum.All(len(w.processes))}
	return &c
}

// classOf is the kind of way that a message is on. Each is first in, first out.
func classOf(of what) what {
	if of == retry {
		return request
	}
	return of
}

// heads calls f with the next message on each way to or from a process, and its index.
func (p *process) heads(f func(i int, m *message)) {
	for i, m := range p.wire { // sorted by tidy
		if i == 0 || p.wire[i-1].node != m.node || classOf(p.wire[i-1].what) != classOf(m.what) {
			f(i, m)
		}
	}
}

func (s *search) isQuiet() bool {
	return !slices.ContainsFunc(s.processes, func(p *process) bool { return len(p.wire) > 0 })
}

// moves returns what can happen next.
func (s *search) moves() (all []move) {
	soonest, isQuiet := s.soonest(), s.isQuiet()
	for i, p := range s.processes {
		p.heads(func(_ int, m *message) {
			to := move{of: i, node: m.node, class: classOf(m.what)}
			add := func(k kind) { to.kind = k; all = append(all, to) }
			add(delivers)
			if m.what == request && s.budget.Gaps > 0 {
				add(runs)
			}
			if m.what == request && s.budget.Losses > 0 {
				add(loses)
				add(losesAnswer)
			}
		})
		if due := p.due(s.now); due != never && s.budget.Ticks > 0 && (isQuiet || s.budget.Hurries > 0) && due <= soonest+slack {
			all = append(all, move{kind: ticks, of: i})
		}
		if s.budget.Closes > 0 && !p.closed {
			all = append(all, move{kind: closes, of: i})
		}
		for j, c := range p.callers {
			switch {
			case c.hold != nil && c.asks == nil:
				all = append(all, move{kind: releases, of: i, node: j})
				if s.budget.Extends > 0 {
					all = append(all, move{kind: extends, of: i, node: j})
				}
				if s.budget.Lowers > 0 && !c.reads {
					all = append(all, move{kind: lowers, of: i, node: j})
				}
			case c.rests:
				all = append(all, move{kind: arrives, of: i, node: j})
			case !c.over && s.budget.Leaves > 0:
				all = append(all, move{kind: leaves, of: i, node: j})
			}
		}
		if s.budget.Lates > 0 {
			all = append(all, move{kind: isLate, of: i})
		}
	}
	if s.budget.Forgets > 0 {
		for i := range s.nodes {
			all = append(all, move{kind: forgets, node: i})
		}
	}
	return all
}

// due is when a process has something to do. Its clock is the true one.
func (p *process) due(now time.Duration) time.Duration {
	if due := p.key.Due(); due > 0 {
		return max(now, time.Duration(due))
	}
	return never
}

// soonest is when the first process has something to do.
func (s *search) soonest() time.Duration {
	at := never
	for _, p := range s.processes {
		at = min(at, p.due(s.now))
	}
	return at
}

// slack is how much later than the first another process may do what is due.
const slack = 5 * time.Millisecond

// make lets one thing happen.
func (s *search) make(m move) {
	s.current.world = s.world
	switch m.kind {
	case forgets:
		s.budget.Forgets--
		s.hint(m.node, s.node(m.node).Forget(s.now))
	case isLate: // the process is not run until all that it has is over
		s.budget.Lates--
		p := s.process(m.of)
		s.now += p.callers[0].Terms.TTL
		p.resumes = s.now
	case ticks:
		if s.budget.Ticks--; !s.isQuiet() {
			s.budget.Hurries--
		}
		p := s.process(m.of)
		s.now = p.due(s.now)
		s.tick(p)
	case closes:
		s.budget.Closes--
		p := s.process(m.of)
		p.closed = true
		p.key.Close(p.local(s.now))
		s.carry(p)
	case delivers, runs, loses, losesAnswer:
		s.makeMessage(m)
	default:
		s.makeCaller(m)
	}
	s.tidy()
	s.judge()
}

func (s *search) makeMessage(to move) {
	p := s.process(to.of)
	at := -1
	p.heads(func(i int, m *message) {
		if m.node == to.node && classOf(m.what) == to.class {
			at = i
		}
	})
	m := p.wire[at]
	switch to.kind {
	case runs: // the answer comes later
		s.budget.Gaps--
		s.deliver(p, at)
	case delivers: // a request, and its answer unless another is to come before
		isAnswered, ballot := m.what == request, m.ballot
		s.deliver(p, at)
		if !isAnswered || s.problem != "" {
			break
		}
		next := -1
		for i, a := range p.wire {
			if a.what == answer && a.node == to.node && (next < 0 || a.order < p.wire[next].order) {
				next = i
			}
		}
		if next >= 0 && p.wire[next].ballot == ballot {
			s.deliver(p, next)
		}
	case loses, losesAnswer:
		s.budget.Losses--
		p.take(at)
		if to.kind == losesAnswer {
			_, hints := s.serve(m)
			s.hint(m.node, hints)
		} else if m.asks().MayHold {
			again := *m
			again.what = retry
			s.enter(&again)
		}
		m.what, m.reply.Outcome = answer, protocol.Unknown
		s.enter(m)
	}
}

func (s *search) makeCaller(m move) {
	p := s.process(m.of)
	c, now := p.callers[m.node], p.local(s.now)
	switch m.kind {
	case releases:
		c.asks = &core.Caller{Shell: c}
		p.key.Release(c.hold, c.asks, now)
		s.carry(p)
		if c.hold != nil {
			s.fail("the context of a hold lives on after its release")
		}
	case extends:
		s.budget.Extends--
		c.asks = &core.Caller{Shell: c}
		p.key.Extend(c.hold, 0, c.asks, now)
		s.carry(p)
	case lowers:
		s.budget.Lowers--
		c.asks = &core.Caller{Shell: c}
		s.downgrade(c, c.asks)
	case arrives:
		s.arrive(c)
	case leaves:
		s.budget.Leaves--
		if p.key.Leave(c.Caller, now) != nil {
			c.over = true
		}
		s.carry(p)
	}
}

// tidy drops what no longer matters in the processes that were changed, and sorts their messages by their way.
func (s *search) tidy() {
	const later = 1 << 20 // what is entered from now on is behind all
	s.entered, s.turns = later, turns{}
	for i, p := range s.processes {
		if s.lent.processes.Has(i) {
			continue
		}
		slices.SortFunc(p.wire, func(a, b *message) int {
			return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(classOf(a.what), classOf(b.what)), cmp.Compare(a.order, b.order))
		})
		for j, m := range p.wire {
			m.order, m.at = j, 0
		}
		for _, c := range p.callers {
			if c.over && c.hold == nil && c.asks == nil && c.Hold != nil {
				c.Caller = &core.Caller{Terms: c.Terms, Try: c.Try}
			}
		}
	}
}

// atRest checks a world in which nothing can happen any more.
func (s *search) atRest() {
	for _, p := range s.processes {
		if p.key.Due() > 0 {
			return // but that time passes
		}
	}
	for i, p := range s.processes {
		for j, c := range p.callers {
			if !c.over || c.asks != nil {
				s.fail("P5: caller %d of process %d waits for ever", j, i)
			}
		}
		if !p.key.Idle(p.local(s.now)) {
			s.fail("the key of process %d is not idle", i)
		}
	}
	for i, node := range s.nodes {
		for _, key := range []string{name, keys.Readers.Of(name), keys.Intent.Of(name)} {
			if _, has := node.Keys(s.now)[key]; has && node.Value(s.now, key) != ofTheDead && (s.budget.Losses == s.scenario.budget.Losses || key != keys.Intent.Of(name)) {
				s.fail("P6: node %d has %s", i, key)
			}
		}
	}
}

// A result is what a search has found.
type result struct {
	explore.Result
	complete bool
	took     time.Duration
}

// breadthFirst goes through all states, the nearest first, until it has seen so many. If it doubts, it checks that all
// worlds of one state go on alike.
func (sc scenario) breadthFirst(limit int, doubts bool) (r result) {
	const enough = "enough"
	began, first := time.Now(), sc.begin()
	worlds := map[uint64]*search{first.hash(): first} // that are to be gone on from; with doubts the first of each state
	r.Result = explore.Space[search, uint64, move]{
		Start: *first,
		Key:   func(s *search) uint64 { s.sum = s.hash(); return s.sum },
		State: func(sum uint64) search {
			s := worlds[sum]
			if !doubts {
				delete(worlds, sum)
			}
			return *s
		},
		Steps: func(s *search, do func(move, *search)) {
			for _, m := range s.moves() {
				c := s.copy()
				c.make(m)
				do(m, c)
			}
		},
		Describe: func(m move, _, _ *search) string { return m.String() },
	}.Explore(func(_ move, s *search, isNew bool) string {
		if s.problem == "" && len(s.moves()) == 0 {
			s.atRest()
		}
		switch {
		case s.problem != "":
			return s.problem
		case isNew:
			worlds[s.sum] = s
			if limit--; limit == 0 {
				return enough
			}
		case doubts && !worlds[s.sum].isLike(s):
			return "another world of the same state goes on differently"
		}
		return ""
	})
	if r.complete = r.Violation == nil; !r.complete && r.Violation.Rule == enough {
		r.Violation = nil
	}
	r.took = time.Since(began)
	return r
}

// isLike reports whether the same can happen in two worlds, and leads to the same states.
func (s *search) isLike(o *search) bool {
	moves := s.moves()
	if !slices.Equal(moves, o.moves()) {
		return false
	}
	for _, m := range moves {
		c, d := s.copy(), o.copy()
		c.make(m)
		d.make(m)
		if c.hash() != d.hash() {
			return false
		}
	}
	return true
}

func TestBreadthFirst(t *testing.T) {
	t.Parallel()
	defer debug.SetGCPercent(debug.SetGCPercent(800))
	debug.SetMemoryLimit(4 << 30)
	var wg sync.WaitGroup
	gate := make(chan struct{}, runtime.GOMAXPROCS(0))
	for _, sc := range scenarios {
		wg.Go(func() {
			gate <- struct{}{}
			defer func() { <-gate }()
			r := sc.breadthFirst(*maxStates, false)
			if r.Violation != nil {
				t.Errorf("%s: %v", sc.name, r.Violation)
			}
			if *showTable {
				t.Logf("%-36s %-8s %d nodes %8d states %9d moves, all %-5v %6.1f s",
					sc.name, strings.Join(sc.procs, "+"), sc.nodes, r.States, r.Steps, r.complete, r.took.Seconds())
			}
		})
	}
	wg.Wait()
}

// TestWorldsOfOneStateGoOnAlike: what the hash of a world leaves out changes nothing of what can happen.
func TestWorldsOfOneStateGoOnAlike(t *testing.T) {
	t.Parallel()
	for _, sc := range scenarios {
		if r := sc.breadthFirst(*maxStates/8, true); r.Violation != nil {
			t.Errorf("%s: %v", sc.name, r.Violation)
		}
	}
}
