package load

import (
	"context"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
	"github.com/redquorum/redquorum/bench/internal/subject"
)

// cycleTrial is a trial of callers that acquire and release.
func (c *client) cycleTrial(ctx context.Context, spec subject.Spec, cfg subject.Config, mine part) (message, error) {
	client, closeClient, err := c.open(ctx, spec, cfg)
	if err != nil {
		return message{}, err
	}
	defer closeClient()

	cs := callers{client: client, load: c.job.Load, first: mine.first, names: c.job.names(mine), clock: c.clock}
	if warmup := cs.load; warmup.Warmup > 0 {
		warmup.Duration, warmup.Rate = warmup.Warmup, 0
		cs.rec = newRecorder(time.Now(), warmup, c.scrub)
		cs.run(ctx, newPace(cs.rec.start, warmup, 0))
	}

	start, err := c.ready(ctx)
	if err != nil {
		return message{}, err
	}
	cs.rec = newRecorder(start, cs.load, c.scrub)
	pace := newPace(start, cs.load, c.job.Process)
	var stuck int
	used, err := c.measure(ctx, start, cs.rec.end, func() { stuck = cs.run(ctx, pace) })
	if err != nil {
		return message{}, err
	}
	cs.rec.notBegun(pace.notBegun())
	return cs.rec.close(used, stuck), nil
}

// callers are the common state of the callers of one process.
type callers struct {
	client subject.Client
	load   record.Load
	first  int      // its number, of all processes
	names  []string // of the lock of each
	clock  clock
	rec    *recorder
	// asking ends when the trial does; releasing goes on until the process gives up, because locks
	// that are left behind would change the measurement. asking has no deadline, which libraries
	// would look at.
	asking, releasing context.Context
}

// run lets the callers make cycles until the recorder's end, and returns how many of them did not
// come back from the library.
func (cs callers) run(ctx context.Context, p *pace) (stuck int) {
	var stopAsking, stopReleasing context.CancelFunc
	cs.asking, stopAsking = context.WithCancel(ctx)
	defer stopAsking()
	cs.releasing, stopReleasing = context.WithCancel(context.WithoutCancel(ctx))
	defer stopReleasing()
	atEnd := time.AfterFunc(time.Until(cs.rec.end), stopAsking)
	defer atEnd.Stop()

	return start(len(cs.names), func(i int) {
		c := cs.caller(i)
		for from, ok := p.next(c.asking); ok; from, ok = p.next(c.asking) {
			c.cycle(from)
		}
	}).wait(cs.asking, stopReleasing)
}

// A caller acquires, holds and releases one lock after the other.
type caller struct {
	*callers
	number int // of all processes
	name   string
	timer  *time.Timer // of the hold
}

func (cs *callers) caller(index int) *caller {
	c := &caller{callers: cs, number: cs.first + index, name: cs.names[index], timer: time.NewTimer(time.Hour)}
	c.timer.Stop()
	return c
}

// cycle is one acquisition, counted from that moment, and its release.
func (c *caller) cycle(from time.Time) {
	lock, err := c.acquire()
	acquired := time.Now()
	if err != nil {
		c.rec.ended(c.number, acquired, err)
		return
	}
	c.rec.acquired(acquired, acquired.Sub(from))

	if c.load.Hold > 0 {
		c.keep()
	}
	if c.load.Names == "single" {
		until := lock.Until()
		if releasing := time.Now(); releasing.Before(until) {
			until = releasing
		}
		c.rec.held(hold{permitOf(lock), uint32(c.number), c.clock.nanos(acquired), c.clock.nanos(until)})
	}
	err = lock.Release(c.releasing)
	c.rec.ended(c.number, time.Now(), err)
}

func (c *caller) acquire() (subject.Lock, error) {
	if c.load.Patience == 0 {
		return c.client.Acquire(c.asking, c.name)
	}
	ctx, cancel := context.WithTimeout(c.asking, c.load.Patience)
	defer cancel()
	return c.client.Acquire(ctx, c.name)
}

// keep waits for as long as the lock should be held. If it is lost meanwhile, its release says so.
func (c *caller) keep() {
	c.timer.Reset(c.load.Hold)
	defer c.timer.Stop()
	select {
	case <-c.timer.C:
	case <-c.asking.Done():
	}
}
