package load

import (
	"errors"
	"sync"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// A gather puts together what the processes of one trial say.
type gather struct {
	job   Job
	start time.Time     // set before any process begins
	ready chan struct{} // closed when all processes are
	done  chan struct{} // closed when all results are here

	mu       sync.Mutex
	unready  int
	undone   int
	latest   []Progress // by process
	trial    record.Trial
	slices   []*interval
	holdings []holding
}

func newGather(job Job) *gather {
	load := job.Load
	g := &gather{
		job: job, ready: make(chan struct{}), done: make(chan struct{}),
		unready: load.Processes, undone: load.Processes, latest: make([]Progress, load.Processes),
		trial: record.Trial{
			Subject: job.Subject, Load: load, Elapsed: load.Duration,
			Outcomes: map[string]int64{}, Errors: map[string]int64{},
			Millis: make([]uint16, millisecondsOf(load.Duration)),
		},
	}
	if load.Held == 0 {
		g.slices = make([]*interval, slicesOf(load.Duration, job.Slice))
	}
	if load.Names == "single" && load.Held == 0 {
		g.trial.Callers = make([]int64, load.Callers)
	}
	return g
}

// take adds what a process said.
func (g *gather) take(number int, m message) (err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case m.Ready:
		if g.unready--; g.unready == 0 {
			close(g.ready)
		}
	case m.Progress != nil:
		g.latest[number] = *m.Progress
	case m.Holdings != nil:
		g.holdings, err = decodeHoldings(g.holdings, m.Holdings)
	case m.Slice != nil:
		return g.slice(m.Slice)
	case m.Result != nil:
		g.result(number, m.Result)
		if g.undone--; g.undone == 0 {
			close(g.done)
		}
	}
	return err
}

func (g *gather) slice(s *interval) error {
	if s.Index < 0 || s.Index >= len(g.slices) {
		return errors.New("a slice that is not of this trial")
	}
	sum := g.slices[s.Index]
	if sum == nil {
		sum = &interval{Acquire: record.Coarse(), Outcomes: map[string]int64{}}
		g.slices[s.Index] = sum
	}
	sum.Acquire.Merge(s.Acquire)
	addUp(sum.Outcomes, s.Outcomes)
	return nil
}

func (g *gather) result(number int, r *result) {
	t, of := &g.trial, &r.Trial
	t.Cycles += of.Cycles
	t.Acquire.Merge(of.Acquire)
	t.Release.Merge(of.Release)
	t.Cycle.Merge(of.Cycle)
	addUp(t.Outcomes, of.Outcomes)
	addUp(t.Errors, of.Errors)
	t.CPU += of.CPU
	t.Allocs += of.Allocs
	if t.Callers != nil {
		first, end := g.job.share(g.job.Load.Callers, number)
		copy(t.Callers[first:end], of.Callers)
	}
	for i := range min(len(r.Millis), len(t.Millis)) {
		t.Millis[i] = uint16(min(int(t.Millis[i])+int(r.Millis[i]), 1<<16-1))
	}
	if h := of.Held; h != nil {
		if t.Held == nil {
			t.Held = &record.HeldLocks{}
		}
		t.Held.Wanted += h.Wanted
		t.Held.Acquired += h.Acquired
		t.Held.Lost += h.Lost
		t.Held.Bytes += h.Bytes
		t.Held.CPU += h.CPU
		t.Held.For = max(t.Held.For, h.For)
	}
}

func addUp(to, from map[string]int64) {
	for k, n := range from {
		to[k] += n
	}
}

// progress is of all processes, as of their last words.
func (g *gather) progress() Progress {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := Progress{Elapsed: time.Since(g.start)}
	for _, l := range g.latest {
		p.Cycles += l.Cycles
		p.Failed += l.Failed
		p.P99 = max(p.P99, l.P99)
	}
	return p
}

// finish is the whole, after all processes have ended.
func (g *gather) finish() record.Trial {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.trial
	t.Start = g.start
	t.Errors = mostFrequent(t.Errors)
	for i, s := range g.slices {
		from := time.Duration(i) * g.job.Slice
		slice := record.Slice{From: from, Length: min(g.job.Slice, t.Elapsed-from)}
		if s != nil {
			slice.Acquire, slice.Acquired, slice.Outcomes = s.Acquire.Quantiles(), s.Acquire, s.Outcomes
		}
		t.Slices = append(t.Slices, slice)
	}
	var first [2]holding
	t.Checked = int64(len(g.holdings))
	if t.Violations, first = overlaps(g.holdings); t.Violations > 0 {
		t.Violation = describe(g.job.Subject, first, g.start.UnixNano())
	}
	return t
}
