package load

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
	"github.com/redquorum/redquorum/bench/internal/subject"
)

// names returns the names of locks from first up to end.
func (j Job) names(first, end int) (all []string) {
	for i := first; i < end; i++ {
		all = append(all, fmt.Sprintf("bench:%s:%d:%d", j.Subject, j.Round, i))
	}
	return all
}

// cycle measures callers that acquire and release.
func (c *client) cycle(ctx context.Context, library subject.Client, first, end int) (r result, err error) {
	load := c.job.Load
	// Names are made in advance, because only the library should allocate during the trial.
	names := c.job.names(first, end)
	if load.Names == "single" {
		names = slices.Repeat(c.job.names(0, 1), len(names))
	}
	cs := callers{library: library, load: load, first: first, names: names, clock: c.clock}
	if warmup := load; warmup.Warmup > 0 {
		warmup.Duration, warmup.Rate = warmup.Warmup, 0
		cs.rec = newRecorder(time.Now(), warmup)
		if err := cs.run(ctx, newPace(cs.rec.start, warmup, 0)); err != nil {
			return r, err
		}
	}
	start, err := c.ready()
	if err != nil {
		return r, err
	}
	cs.rec = newRecorder(start, load)
	cs.rec.sampling = c.job.Sampling
	pace := newPace(start, load, c.job.Process)
	var failed error
	cpu, allocs, err := measure(ctx, start, cs.rec.end, func() { failed = cs.run(ctx, pace) })
	if failed != nil || err != nil {
		return r, cmp.Or(failed, err)
	}
	r = cs.rec.close()
	r.Trial.CPU, r.Trial.Allocs = cpu, allocs
	if n := pace.total - pace.begun; n > 0 {
		r.Trial.Errors["no caller was free to begin the cycle"] = int64(n)
	}
	return r, nil
}

// callers are all callers of one process.
type callers struct {
	library subject.Client
	load    record.Load
	first   int      // number of the first caller, counted over all processes
	names   []string // name of each caller's lock
	clock   clock
	rec     *recorder
}

// run makes the callers run cycles until the recorder ends.
//
// Acquiring ends with the trial. Releasing may take returnLimit longer, because remaining locks
// would change the next measurement. Neither context has a deadline, because a deadline would
// change the behaviour of libraries.
func (cs *callers) run(ctx context.Context, p *pace) (err error) {
	asking, stop := context.WithCancel(ctx)
	defer stop()
	defer time.AfterFunc(time.Until(cs.rec.end), stop).Stop()
	if steps, ok := cs.library.(subject.Stepper); ok {
		for _, ok := p.next(asking); ok && err == nil; _, ok = p.next(asking) {
			err = cs.step(steps)
		}
		return err
	}
	releasing := context.WithoutCancel(ctx)
	all(asking, len(cs.names), func(i int) {
		timer := time.NewTimer(time.Hour)
		defer timer.Stop()
		c := caller{callers: cs, number: cs.first + i, name: cs.names[i], asking: asking, releasing: releasing, timer: timer}
		for from, ok := p.next(asking); ok; from, ok = p.next(asking) {
			c.cycle(from)
		}
	})
	return nil
}

// step runs one cycle of all callers in a single step.
func (cs *callers) step(steps subject.Stepper) error {
	began, acquired, released, err := steps.Step()
	for i := 0; i < len(cs.names) && err == nil; i++ {
		cs.rec.acquired(acquired, acquired.Sub(began))
		cs.rec.ended(cs.first+i, released, nil)
	}
	return err
}

// A caller acquires, holds and releases its lock repeatedly.
type caller struct {
	*callers
	number            int // of all processes
	name              string
	asking, releasing context.Context
	timer             *time.Timer // of the hold
}

// cycle makes one acquisition and its release. The time of the acquisition counts from the given
// moment.
func (c *caller) cycle(from time.Time) {
	lock, err := c.acquire()
	acquired := time.Now()
	if err != nil {
		c.rec.ended(c.number, acquired, err)
		return
	}
	c.rec.acquired(acquired, acquired.Sub(from))
	if c.load.Hold > 0 {
		c.timer.Reset(c.load.Hold)
		select {
		case <-c.timer.C:
		case <-c.asking.Done():
		}
	}
	if c.load.Names == "single" {
		until := lock.Until()
		if now := time.Now(); now.Before(until) {
			until = now
		}
		permit := 0
		if of, ok := lock.(interface{ Permit() int }); ok {
			permit = of.Permit()
		}
		c.rec.held(hold{uint32(permit), uint32(c.number), c.clock.nanos(acquired), c.clock.nanos(until)})
	}
	err = lock.Release(c.releasing)
	c.rec.ended(c.number, time.Now(), err)
}

func (c *caller) acquire() (subject.Lock, error) {
	if c.load.Patience == 0 {
		return c.library.Acquire(c.asking, c.name)
	}
	ctx, cancel := context.WithTimeout(c.asking, c.load.Patience)
	defer cancel()
	return c.library.Acquire(ctx, c.name)
}
