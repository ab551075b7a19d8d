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

var deviations = flag.Int("deviations", 1, "moves of a schedule of the systematic search that are not the usual ones, at most")

// A search is a world in which a schedule decides what happens next. Usually the oldest message is delivered, a request
// is answered at once, callers release their locks when no message is on its way, and time passes when nothing else can
// happen. A deviation is any other move: another message, one that is lost, an answer or a timer that is late, a caller
// that leaves.
//
// TestSystematic runs every schedule with a few deviations, each from the beginning. So it needs no copies of worlds,
// and does not compare states.
type search struct {
	*world
	scenario
	isLossy bool // a message was lost
}

// A move is one thing that happens next.
type move struct {
	kind kind
	of   int // a process
	at   int // a message on its wire, its caller, or a node
}

type kind uint8

const (
	delivers kind = iota // a message; a request and its answer
	releases
	arrives // a caller tries again
	ticks
	runs  // a request, whose answer comes later
	loses // a request
	losesAnswer
	closes
	extends
	lowers // a writer becomes a reader
	leaves
	forgets
	isLate // no process is run for a TTL
)

var kinds = [...]string{"deliver", "release", "arrive", "tick", "run", "lose", "lose the answer", "close", "extend", "lower", "leave", "forget", "late"}

// atOnce is a network in which a message arrives when the search says so.
type atOnce struct{}

func (atOnce) travel(int, int) (time.Duration, time.Duration, bool, bool) { return 0, 0, false, false }

// A scenario is where a search begins.
type scenario struct {
	servers int
	// The callers of each process: w waits, o in order (Fair), m with a MaxHold, f wants a token, s is a reader,
	// a adopts what one that died has left, t tries, r up to three times, l once it comes.
	procs   string
	differ  int           // by how many milliseconds the wall clock of each process is ahead of the one before
	ttl     time.Duration // zero: short
	forgets bool          // a node may
	isWide  bool          // it has too many schedules for the gate
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

// ofTheDead is a value of a process 0 that has died.
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

// isNext reports whether a message is the oldest on its way. Each way is first in, first out.
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

// due is when a process has something to do. Its clock is the true one.
func (p *process) due(now time.Duration) time.Duration {
	if due := p.key.Due(); due > 0 {
		return max(now, time.Duration(due))
	}
	return never
}

// slack is how much later than the first another process may do what is due.
const slack = 5 * time.Millisecond

// moves returns what can happen next, and the index of the usual move; -1: there is none.
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

// make lets one thing happen.
func (s *search) make(m move) {
	p, ask := s.processes[m.of], &core.Caller{}
	var c *caller
	switch m.kind {
	case releases, extends, lowers, arrives, leaves:
		c = p.callers[m.at]
		ask.Shell = c
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
			s.fail("process %d: the context of a hold lives on after its release", p.index)
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
	case runs: // the answer comes later
		s.deliver(p, m.at)
	case delivers: // a request, and its answer unless another is to come before
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

// lose loses a request, or its answer.
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

// atRest checks a world in which nothing can happen any more.
func (s *search) atRest() {
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
			if _, has := node.Keys(s.now)[key]; has && node.Value(s.now, key) != ofTheDead && !(s.isLossy && key == keys.Intent.Of(name)) {
				s.fail("P6: node %d has %s", i, key)
			}
		}
	}
}

// A deviation is another move than the usual one at a step.
type deviation struct{ step, move int }

// A tour goes through the schedules of a scenario.
type tour struct {
	scenario
	runs, steps atomic.Uint64
	stops       atomic.Bool
	mu          sync.Mutex
	problem     string
}

// mostSteps is more than any schedule takes that comes to an end.
const mostSteps = 1000

// run runs a schedule. It returns how many moves there were at each step, and which was the usual one.
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

// from goes through all schedules that begin with a way, and have so many deviations more.
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

// TestSystematic runs every schedule of two or three processes with up to -deviations moves that are not the usual ones;
// in wide scenarios with up to one, or one less.
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
