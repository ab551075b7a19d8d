package load

import (
	"context"
	"errors"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
	"github.com/redquorum/redquorum/bench/internal/subject"
)

// cycleTrial is a trial of callers that acquire and release.
func (c *client) cycleTrial(ctx context.Context, spec subject.Spec, cfg subject.Config, mine part) error {
	load := c.Job.Load
	names, err := newNames(spec.Name, load, mine)
	if err != nil {
		return err
	}
	client, closeClient, err := c.open(ctx, spec, cfg)
	if err != nil {
		return err
	}
	defer closeClient()

	cs := callers{client: client, names: names, holdFor: load.Hold, waitFor: load.Patience,
		clock: c.clock, first: mine.first, n: cfg.Callers}
	if load.Warmup > 0 {
		cs.rec = newRecorder(time.Now(), load.Warmup, load.Warmup, c.scrub)
		cs.rec.checked = mostHolds // so that none is kept
		cs.run(ctx, func(ctx context.Context) pace { return closedLoop{ctx, cs.rec.end} })
	}

	start, err := c.ready(ctx)
	if err != nil {
		return err
	}
	cs.rec = newRecorder(start, load.Duration, c.Job.Slice, c.scrub)
	if load.Names == "single" {
		cs.rec.perCaller = make([]int64, cfg.Callers)
	}
	var res result
	var schedule *openLoop
	var stuck int
	err = c.measure(ctx, cs.rec, &res, func() {
		stuck = cs.run(ctx, func(ctx context.Context) pace {
			if load.Rate == 0 {
				return closedLoop{ctx, cs.rec.end}
			}
			schedule = newOpenLoop(ctx, start, load, c.Process)
			return schedule
		})
	})
	if err != nil {
		return err
	}
	if schedule != nil {
		cs.rec.notBegun(schedule.notBegun())
	}
	if load.Patience > 0 {
		res.Trial.Allocs = max(0, res.Trial.Allocs-timeoutAllocs*cs.rec.begun())
	}
	if load.Names == "new" {
		res.Trial.Allocs = max(0, res.Trial.Allocs-newNameAllocs*cs.rec.begun())
	}
	return c.finish(cs.rec, &res, stuck)
}

// measure calls run from the recorder's start to its end, and fills in the CPU time and allocations
// of this process meanwhile.
func (c *client) measure(ctx context.Context, rec *recorder, res *result, run func()) error {
	meter := c.meter()
	if err := meter.start(ctx, rec.start); err != nil {
		return err
	}
	reported := c.report(rec)
	stopped := make(chan error, 1)
	go func() {
		waitUntil(ctx, rec.end)
		stopped <- meter.stop(&res.Trial)
	}()
	run()
	err := errors.Join(<-stopped, reported())
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// run lets the callers make cycles until the recorder's end, and returns how many of them did not
// come back from the library.
func (cs callers) run(ctx context.Context, at func(context.Context) pace) (stuck int) {
	var stopAsking, stopReleasing context.CancelFunc
	cs.asking, stopAsking = context.WithCancel(ctx)
	defer stopAsking()
	cs.releasing, stopReleasing = context.WithCancel(context.WithoutCancel(ctx))
	defer stopReleasing()
	pace := at(cs.asking)
	atEnd := time.AfterFunc(time.Until(cs.rec.end), stopAsking)
	defer atEnd.Stop()

	calls := newGroup(cs.n)
	for i := range cs.n {
		go func() {
			defer calls.done()
			cs.caller(i).run(pace)
		}()
	}
	select {
	case <-calls.all:
	case <-cs.asking.Done():
		stuck = calls.wait(stopReleasing)
	}
	return stuck
}

// callers are the common state of the callers of one process.
type callers struct {
	client   subject.Client
	first, n int // their numbers, of all processes
	names    names
	holdFor  time.Duration
	waitFor  time.Duration // record.Load.Patience
	clock    clock
	rec      *recorder
	// asking ends when the trial does; releasing goes on until the process gives up, because locks
	// that are left behind would change the measurement. asking has no deadline, which libraries
	// would look at.
	asking, releasing context.Context
}

// A caller acquires, holds and releases one lock after the other.
type caller struct {
	*callers
	number int // of all processes
	index  int // of this process
	pick   func() int
	timer  *time.Timer // of the hold
}

func (cs *callers) caller(index int) *caller {
	c := &caller{callers: cs, number: cs.first + index, index: index, timer: time.NewTimer(time.Hour)}
	c.timer.Stop()
	c.pick = cs.names.picker(c.number)
	return c
}

// run makes cycles at the pace until there are no more.
func (c *caller) run(p pace) {
	for from, ok := p.next(); ok; from, ok = p.next() {
		c.cycle(from)
	}
}

// cycle is one acquisition, counted from that moment, and its release.
func (c *caller) cycle(from time.Time) {
	name := c.pick()
	lock, err := c.acquire(c.names.name(name))
	acquired := time.Now()
	if err != nil {
		c.rec.ended(acquired, subject.Outcome(err), err)
		return
	}
	c.rec.acquired(acquired, acquired.Sub(from))

	lost := c.holdFor > 0 && c.keep(lock)
	var until time.Time
	if c.names.shared() {
		until = lock.Until()
	}
	releasing := time.Now()
	if c.names.shared() && !isShared(lock) {
		if releasing.Before(until) {
			until = releasing
		}
		c.rec.held(hold{name: heldName(name, lock), caller: uint32(c.number), from: c.clock.nanos(acquired),
			until: c.clock.nanos(until)})
	}
	err = lock.Release(c.releasing)
	released := time.Now()
	switch took := released.Sub(releasing); {
	case lost:
		c.rec.ended(released, record.Lost, err)
	case err != nil:
		c.rec.ended(released, subject.Outcome(err), err)
	default:
		c.rec.succeeded(c.index, released, acquired.Sub(from)+took, took)
	}
}

func (c *caller) acquire(name string) (subject.Lock, error) {
	if c.waitFor == 0 {
		return c.client.Acquire(c.asking, name)
	}
	ctx, cancel := context.WithTimeout(c.asking, c.waitFor)
	defer cancel()
	return c.client.Acquire(ctx, name)
}

// timeoutAllocs is how many heap objects a context with a timeout takes, before any library looks
// at it. They are not counted.
const timeoutAllocs = 4

// keep keeps the lock for as long as it should be held, and reports whether it was lost before.
func (c *caller) keep(lock subject.Lock) (lost bool) {
	c.timer.Reset(c.holdFor)
	defer c.timer.Stop()
	select {
	case <-c.timer.C:
	case <-lock.Lost():
		lost = true
	case <-c.asking.Done():
	}
	return lost
}
