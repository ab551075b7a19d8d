package explore

import (
	"flag"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/core"
)

var deviations = flag.Int("deviations", 1, "maximum number of unusual moves in a schedule of the systematic search")

// A search is a world in which a schedule selects the next event. Usually the oldest message is
// delivered, a request is answered at once, callers release their locks when no message is in
// transit, and time passes when nothing else can happen. A deviation is any other move: another
// message, a lost message, a late answer or timer, or a caller that leaves.
//
// TestSystematic runs every schedule with a few deviations, each from the beginning. It therefore
// copies no worlds and compares no states.
type search struct {
	*world
	scenario
	isLossy bool // a message was lost
}

// A move is a possible next event.
type move struct {
	kind kind
	of   int // index of a process
	at   int // index of a message on the process's wire, of a caller, or of a node
}

type kind uint8

const (
	delivers kind = iota // a message; for a request, also its answer
	releases
	arrives // a caller tries again
	ticks
	runs  // a request; its answer arrives later
	loses // a request
	losesAnswer
	closes
	extends
	lowers // a writer becomes a reader
	leaves
	forgets
	isLate // all processes stop for a TTL
)

var kinds = [...]string{"deliver", "release", "arrive", "tick", "run", "lose", "lose the answer", "close", "extend", "lower", "leave", "forget", "late"}

// atOnce is a network in which the search decides when a message arrives.
type atOnce struct{}

func (atOnce) travel(int, int) (time.Duration, time.Duration, bool, bool) { return 0, 0, false, false }

// A scenario is the beginning of a search.
type scenario struct {
	servers int
	// The callers of each process: w waits, o is Fair, m has a MaxHold, f requests a token, s is a
	// reader, a adopts the lock of a dead process, t tries once, r tries up to three times, l tries
	// once, later than the others.
	procs   string
	differ  int           // lead of each process's wall clock over the previous one, in milliseconds
	ttl     time.Duration // zero: a short TTL
	forgets bool          // a node may forget
	isWide  bool          // too many schedules for the gate
}

var scenarios = []scenario{
	{servers: 3, procs: "w+w"},
	{servers: 3, procs: "ww+t"},
	{servers: 3, procs: "wt+t"},
	{servers: 3, procs: "sw+s", isWide: true},
	{servers: 3, procs: "w+sr"},
	{servers: 3, procs: "ff+f", differ: -3, isWide: true},
	{servers: 3, procs: "f+ff", differ: 3},
	{servers: 3, procs: "m+w"},
	{servers: 3, procs: "aw+w", isWide: true},
	{servers: 3, procs: "oo+o", isWide: true},
	{servers: 3, procs: "ow+t"},
	{servers: 2, procs: "w+w"},
	{servers: 1, procs: "w+w+t"},
	{servers: 1, procs: "ss+s+w"},
	{servers: 1, procs: "tl+t"},
	{servers: 1, procs: "rr+w"},
	{servers: 1, procs: "w", ttl: 2048 * time.Millisecond, forgets: true},
}

// ofTheDead is a lock's value from an earlier process 0, which has died.
const ofTheDead = "p0v000"

func (sc scenario) begin() *search {
	procs := strings.Split(sc.procs, "+")
	jitter := func(limit time.Duration) time.Duration { return limit / 2 }
	s := &search{scenario: sc, world: newWorld(sc.servers, len(procs), atOnce{}, jitter)}
	s.judged = true
	plain := core.Terms{TTL: max(sc.ttl, 128*time.Millisecond), Timeout: 30 * time.Millisecond, Renew: true, Patience: 50 * time.Millisecond}
	for i, p := range s.processes {
		p.ahead = time.Duration(i*sc.differ) * time.Millisecond
		for _, kind := range procs[i] {
			t := plain
			t.Shared, t.Fair, t.Fenced = kind == 's', kind == 'o', kind == 'f'
			switch kind {
			case 'm':
				t.MaxHold = t.TTL / 2
			case 'a':
				t.Adopts = ofTheDead
				for _, node := range s.nodes[:sc.servers/2+1] {
					node.Run(0, 0, &protocol.Request{Op: protocol.OpAcquire, Key: name, Value: ofTheDead, TTL: t.TTL})
				}
			}
			c := &caller{Caller: &core.Caller{Terms: &t, Try: strings.ContainsRune("trla", kind)}, process: p, acts: never, leaves: never}
			if c.rests = kind == 'l'; kind == 'r' {
				c.again = 2
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
	return s
}

// isNext reports whether a message is the oldest in its direction. Messages in one direction arrive
// in order.
func (p *process) isNext(m *message) bool {
	way := func(of what) what {
		if of == retry {
			return request
		}
		return of
	}
	return !slices.ContainsFunc(p.wire, func(o *message) bool {
		return o.node == m.node && way(o.what) == way(m.what) && o.order < m.order
	})
}

// due returns the time at which a process has work to do. Its clock is exact.
func (p *process) due(now time.Duration) time.Duration {
	if due := p.key.Due(); due > 0 {
		return max(now, time.Duration(due))
	}
	return never
}

// slack limits the delay of one process's due work after another's.
const slack = 5 * time.Millisecond

// moves returns the possible moves, and the index of the usual one, or -1.
func (s *search) moves() (all []move, usual int) {
	least := math.MaxInt
	usual = -1
	add := func(rank int, m move) {
		if rank < least {
			least, usual = rank, len(all)
		}
		all = append(all, m)
	}
	const rarely = math.MaxInt
	soonest := never
	for _, p := range s.processes {
		soonest = min(soonest, p.due(s.now))
	}
	for i, p := range s.processes {
		for j, m := range p.wire {
			if !p.isNext(m) {
				continue
			}
			add(m.order, move{delivers, i, j})
			if m.what == request {
				add(rarely, move{runs, i, j})
				add(rarely, move{loses, i, j})
				add(rarely, move{losesAnswer, i, j})
			}
		}
		if due := p.due(s.now); due <= soonest+slack && due != never {
			add(1<<42+int(min(due, 1<<40)), move{ticks, i, 0})
		}
		if !p.closed {
			add(rarely, move{closes, i, 0})
		}
		for j, c := range p.callers {
			switch {
			case c.hold != nil && c.asks == nil:
				add(1<<40+j, move{releases, i, j})
				add(rarely, move{extends, i, j})
				if !c.reads {
					add(rarely, move{lowers, i, j})
				}
			case c.rests:
				add(1<<41+j, move{arrives, i, j})
			case !c.over:
				add(rarely, move{leaves, i, j})
			}
		}
	}
	add(rarely, move{kind: isLate})
	if s.forgets {
		for i := range s.nodes {
			add(rarely, move{forgets, 0, i})
		}
	}
	return all, usual
}

// make carries out a move.
func (s *search) make(m move) {
	p, ask := s.processes[m.of], &core.Caller{}
	var c *caller
	switch m.kind {
	case releases, extends, lowers, arrives, leaves:
		c = p.callers[m.at]
		ask.Ref = c
	}
	now := p.local(s.now)
	switch m.kind {
	case forgets:
		s.hint(m.at, s.nodes[m.at].Forget(s.now))
	case isLate:
		s.now += p.callers[0].Terms.TTL
		for _, o := range s.processes {
			o.resumes = s.now
		}
	case ticks:
		s.now = p.due(s.now)
		s.tick(p)
	case closes:
		p.closed = true
		p.key.Close(now)
		s.carry(p)
	case releases:
		c.asks = ask
		p.key.Release(c.hold, ask, now)
		if s.carry(p); c.hold != nil {
			s.fail("process %d: the context of a hold is alive after its release", p.index)
		}
	case extends:
		c.asks = ask
		p.key.Extend(c.hold, 0, ask, now)
		s.carry(p)
	case lowers:
		c.asks = ask
		s.downgrade(c, ask)
	case arrives:
		s.arrive(c)
	case leaves:
		p.vote.mayBeUntold = true
		if p.key.Leave(c.Caller, now) != nil {
			c.over = true
		}
		s.carry(p)
	case runs: // the answer arrives later
		s.deliver(p, m.at)
	case delivers: // a request, and its answer unless another answer precedes it
		s.deliverBoth(p, m.at)
	default:
		s.lose(p, m.at, m.kind == losesAnswer)
	}
	s.judge()
}

func (s *search) deliverBoth(p *process, at int) {
	m := p.wire[at]
	isAnswered, ballot, node := m.what == request, m.ballot, m.node
	if s.deliver(p, at); !isAnswered || s.problem != "" {
		return
	}
	for i, a := range p.wire {
		if a.what == answer && a.node == node && a.ballot == ballot && p.isNext(a) {
			s.deliver(p, i)
			return
		}
	}
}

// lose loses a request or its answer.
func (s *search) lose(p *process, at int, isRun bool) {
	s.isLossy = true
	m := p.take(at)
	if isRun {
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

// atRest checks a world in which no event is left.
func (s *search) atRest() {
	for i, p := range s.processes {
		for j, c := range p.callers {
			if !c.over || c.asks != nil {
				s.fail("P5: caller %d of process %d waits without end", j, i)
			}
		}
		if !p.key.Idle(p.local(s.now)) {
			s.fail("the key of process %d is not idle", i)
		}
	}
	for i, node := range s.nodes {
		for _, key := range []string{name, keys.Readers.Of(name), keys.Intent.Of(name)} {
			if _, has := node.Keys(s.now)[key]; has && node.Value(s.now, key) != ofTheDead && !(s.isLossy && key == keys.Intent.Of(name)) {
				s.fail("P6: node %d has %s", i, key)
			}
		}
	}
}

// A deviation is the choice of an unusual move at a step.
type deviation struct{ step, move int }

// A tour runs the schedules of a scenario.
type tour struct {
	scenario
	runs, steps atomic.Uint64
	stops       atomic.Bool
	mu          sync.Mutex
	problem     string
}

// mostSteps is above the length of any schedule that ends.
const mostSteps = 1000

// run runs a schedule. It returns, for each step, the number of moves and the usual one.
func (t *tour) run(way []deviation) (choices []deviation) {
	s, next, story := t.begin(), 0, []string{}
	for s.problem == "" {
		moves, at := s.moves()
		if at < 0 {
			s.atRest()
			break
		}
		if len(choices) == mostSteps {
			s.fail("P5: no end")
		}
		choices = append(choices, deviation{len(moves), at})
		if next < len(way) && way[next].step == len(choices)-1 {
			at = way[next].move
			next++
			story = append(story, fmt.Sprintf("step %d: %s: process %d, %d", len(choices), kinds[moves[at].kind], moves[at].of, moves[at].at))
		}
		s.make(moves[at])
	}
	t.runs.Add(1)
	t.steps.Add(uint64(len(choices)))
	if s.problem != "" && !t.stops.Swap(true) {
		t.mu.Lock()
		t.problem = s.problem + "\n\t" + strings.Join(story, "\n\t")
		t.mu.Unlock()
	}
	return choices
}

// from runs all schedules that begin with the deviations of way. Each schedule has at most more
// further deviations.
func (t *tour) from(way []deviation, more int, do func(longer []deviation, more int)) {
	choices, first := t.run(way), 0
	if len(way) > 0 {
		first = way[len(way)-1].step + 1
	}
	for step := first; step < len(choices) && more > 0; step++ {
		for move := range choices[step].step {
			if move != choices[step].move && !t.stops.Load() {
				do(append(slices.Clone(way), deviation{step, move}), more-1)
			}
		}
	}
}

// TestSystematic runs every schedule of two or three processes with up to -deviations unusual
// moves. Wide scenarios have one deviation less, but at least one if the other scenarios have any.
func TestSystematic(t *testing.T) {
	t.Parallel()
	type branch struct {
		*tour
		way  []deviation
		more int
	}
	var tours []*tour
	var branches []branch
	began := time.Now()
	for _, sc := range scenarios {
		o, most := &tour{scenario: sc}, *deviations
		if sc.isWide && most > 1 {
			most--
		}
		tours = append(tours, o)
		o.from(nil, most, func(way []deviation, more int) { branches = append(branches, branch{o, way, more}) })
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for n := next.Add(1) - 1; n < int64(len(branches)); n = next.Add(1) - 1 {
				b := branches[n]
				var deeper func(way []deviation, more int)
				deeper = func(way []deviation, more int) { b.from(way, more, deeper) }
				if !b.stops.Load() {
					deeper(b.way, b.more)
				}
			}
		})
	}
	wg.Wait()
	for _, o := range tours {
		t.Logf("%-6s %d nodes: %8d schedules, %10d moves", o.procs, o.servers, o.runs.Load(), o.steps.Load())
		if o.problem != "" {
			t.Errorf("%s of %d nodes: %s", o.procs, o.servers, o.problem)
		}
	}
	t.Logf("%v", time.Since(began).Round(time.Millisecond))
}
