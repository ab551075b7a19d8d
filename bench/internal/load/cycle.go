package load

import (
	"context"
	"time"

	"github.com/redquorum/redquorum/bench/internal/subject"
)

// cycleTrial is a trial of callers that acquire and release.
func (c *client) cycleTrial(ctx context.Context, spec subject.Spec, cfg subject.Config, mine part) (message, error) {
	load := c.job.Load
	client, closeClient, err := c.open(ctx, spec, cfg)
	if err != nil {
		return message{}, err
	}
	defer closeClient()

	cs := callers{client: client, names: newNames(spec.Name, load, mine), holdFor: load.Hold, waitFor: load.Patience,
		clock: c.clock, first: mine.first, n: cfg.Callers}
	if load.Warmup > 0 {
		warmup := load
		warmup.Duration = load.Warmup
		cs.rec = newRecorder(time.Now(), warmup, c.scrub)
		cs.run(ctx, func(ctx context.Context) pace { return closedLoop{ctx, cs.rec.end} })
	}

	start, err := c.ready(ctx)
	if err != nil {
		return message{}, err
	}
	cs.rec = newRecorder(start, load, c.scrub)
	var schedule *openLoop
	var stuck int
	measured, err := c.measure(ctx, cs.rec.start, cs.rec.end, func() {
		stuck = cs.run(ctx, func(ctx context.Context) pace {
			if load.Rate == 0 {
				return closedLoop{ctx, cs.rec.end}
			}
			schedule = newOpenLoop(ctx, start, load, c.job.Process)
			return schedule
		})
	})
	if err != nil {
		return message{}, err
	}
	if schedule != nil {
		cs.rec.notBegun(schedule.notBegun())
	}
	return cs.rec.close(measured, stuck), nil
}

// measure calls run at start, and returns the CPU time and allocations of this process from then to
// end.
func (c *client) measure(ctx context.Context, start, end time.Time, run func()) (metered, error) {
	meter := c.meter()
	if err := meter.start(ctx, start); err != nil {
		return metered{}, err
	}
	var measured metered
	stopped := make(chan error, 1)
	go func() {
		waitUntil(ctx, end)
		var err error
		measured, err = meter.stop()
		stopped <- err
	}()
	run()
	err := <-stopped
	if ctx.Err() != nil {
		return metered{}, context.Cause(ctx)
	}
	return measured, err
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

	return start(cs.n, func(i int) { cs.caller(i).run(pace) }).wait(cs.asking, stopReleasing)
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
	number int         // of all processes
	timer  *time.Timer // of the hold
}

func (cs *callers) caller(index int) *caller {
	c := &caller{callers: cs, number: cs.first + index, timer: time.NewTimer(time.Hour)}
	c.timer.Stop()
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
	lock, err := c.acquire(c.names.of(c.number))
	acquired := time.Now()
	if err != nil {
		c.rec.ended(c.number, acquired, err)
		return
	}
	c.rec.acquired(acquired, acquired.Sub(from))

	if c.holdFor > 0 {
		c.keep()
	}
	if c.names.shared {
		until := lock.Until()
		if releasing := time.Now(); releasing.Before(until) {
			until = releasing
		}
		c.rec.held(hold{permitOf(lock), uint32(c.number), c.clock.nanos(acquired), c.clock.nanos(until)})
	}
	err = lock.Release(c.releasing)
	c.rec.ended(c.number, time.Now(), err)
}

func (c *caller) acquire(name string) (subject.Lock, error) {
	if c.waitFor == 0 {
		return c.client.Acquire(c.asking, name)
	}
	ctx, cancel := context.WithTimeout(c.asking, c.waitFor)
	defer cancel()
	return c.client.Acquire(ctx, name)
}

// keep waits for as long as the lock should be held. If it is lost meanwhile, its release says so.
func (c *caller) keep() {
	c.timer.Reset(c.holdFor)
	defer c.timer.Stop()
	select {
	case <-c.timer.C:
	case <-c.asking.Done():
	}
}
