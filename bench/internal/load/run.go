package load

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// ahead is how long before the moment to begin the processes hear of it: time for all of them to
// clear away their garbage.
const ahead = 100 * time.Millisecond

// Run starts job.Load.Processes client processes, this program anew, lets them connect and warm up,
// starts them together, and adds up their results. It returns when all have ended, by themselves,
// by the first one's error or by ctx. Of the Trial it fills in all that clients know; the caller
// adds the rest.
//
// started is called when the load begins, and the faults may be counted from that moment; progress
// twice a second from then on. Both are called one after the other, and hold up nothing but each
// other.
func Run(ctx context.Context, job Job, started func(time.Time), progress func(Progress)) (record.Trial, error) {
	if err := job.check(); err != nil {
		return record.Trial{}, err
	}
	c := newCollector(job)
	var children sync.WaitGroup
	ctx, cancel := context.WithCancelCause(ctx)
	defer children.Wait() // the last of all
	defer cancel(nil)

	var processes []*process
	for i := range job.Load.Processes {
		p, err := startProcess(ctx, job, i)
		if err != nil {
			return record.Trial{}, err
		}
		processes = append(processes, p)
		children.Go(func() {
			if err := p.follow(c); err != nil {
				cancel(err)
			}
		})
	}
	select {
	case <-c.ready:
	case <-ctx.Done():
		return record.Trial{}, context.Cause(ctx)
	}
	c.start = time.Now().Add(ahead)
	for _, p := range processes {
		if err := p.send(beginning{Begin: c.start.UnixNano()}); err != nil {
			cancel(err) // unless the process has sent a better error by now
			return record.Trial{}, context.Cause(ctx)
		}
	}
	waitUntil(ctx, c.start)
	if ctx.Err() == nil {
		started(c.start)
	}
	ticks := time.NewTicker(reportEvery)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
			progress(c.progress())
			continue
		case <-c.done:
		case <-ctx.Done():
		}
		break
	}
	if ctx.Err() == nil {
		children.Wait()
	}
	if err := context.Cause(ctx); err != nil {
		return record.Trial{}, err
	}
	return c.finish(), nil
}

// A collector adds up the messages of all processes of one trial.
type collector struct {
	job   Job
	start time.Time     // set before any process begins
	ready chan struct{} // closed when all processes are
	done  chan struct{} // closed when all results are here

	mu      sync.Mutex
	unready int
	undone  int
	latest  []Progress // by process
	trial   record.Trial
	slices  []*counts
	holds   []hold
}

func newCollector(job Job) *collector {
	load := job.Load
	c := &collector{
		job: job, ready: make(chan struct{}), done: make(chan struct{}),
		unready: load.Processes, undone: load.Processes, latest: make([]Progress, load.Processes),
		trial: record.Trial{
			Subject: job.Subject, Load: load, Elapsed: load.Duration,
			Outcomes: map[string]int64{}, Errors: map[string]int64{},
			Millis: make([]uint16, millisecondsOf(load.Duration)),
		},
	}
	if load.Held == 0 {
		c.slices = make([]*counts, slicesOf(load.Duration, job.Slice))
	}
	if load.Names == "single" && load.Held == 0 {
		c.trial.Callers = make([]int64, load.Callers)
	}
	return c
}

// add adds a message of a process.
func (c *collector) add(number int, m message) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case m.Ready:
		if c.unready--; c.unready == 0 {
			close(c.ready)
		}
	case m.Progress != nil:
		c.latest[number] = *m.Progress
	case m.Holds != nil:
		c.holds, err = decodeHolds(c.holds, m.Holds)
	case m.Slice != nil:
		return c.slice(m.Slice)
	case m.Result != nil:
		c.result(number, m.Result)
		if c.undone--; c.undone == 0 {
			close(c.done)
		}
	}
	return err
}

func (c *collector) slice(s *counts) error {
	if s.Index < 0 || s.Index >= len(c.slices) {
		return errors.New("a slice that is not of this trial")
	}
	sum := c.slices[s.Index]
	if sum == nil {
		sum = &counts{Acquire: record.Coarse(), Outcomes: map[string]int64{}}
		c.slices[s.Index] = sum
	}
	sum.Acquire.Merge(s.Acquire)
	addUp(sum.Outcomes, s.Outcomes)
	return nil
}

func (c *collector) result(number int, r *result) {
	t, of := &c.trial, &r.Trial
	t.Cycles += of.Cycles
	t.Acquire.Merge(of.Acquire)
	t.Release.Merge(of.Release)
	t.Cycle.Merge(of.Cycle)
	addUp(t.Outcomes, of.Outcomes)
	addUp(t.Errors, of.Errors)
	t.CPU += of.CPU
	t.Allocs += of.Allocs
	if t.Callers != nil {
		theirs := c.job.share(c.job.Load.Callers, number)
		copy(t.Callers[theirs.first:theirs.end], of.Callers)
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

// progress is of all processes, as of their latest messages.
func (c *collector) progress() Progress {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := Progress{Elapsed: time.Since(c.start)}
	for _, l := range c.latest {
		p.Cycles += l.Cycles
		p.Failed += l.Failed
		p.P99 = max(p.P99, l.P99)
	}
	return p
}

// finish is the whole, after all processes have ended.
func (c *collector) finish() record.Trial {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.trial
	t.Start = c.start
	t.Errors = mostFrequent(t.Errors)
	for i, s := range c.slices {
		from := time.Duration(i) * c.job.Slice
		slice := record.Slice{From: from, Length: min(c.job.Slice, t.Elapsed-from)}
		if s != nil {
			slice.Acquire, slice.Acquired, slice.Outcomes = s.Acquire.Quantiles(), s.Acquire, s.Outcomes
		}
		t.Slices = append(t.Slices, slice)
	}
	t.Checked = int64(len(c.holds))
	pairs, first := overlaps(c.holds)
	if t.Violations = pairs; pairs > 0 {
		t.Violation = describe(c.job.Subject, first, c.start.UnixNano())
	}
	return t
}
