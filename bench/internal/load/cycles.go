package load

import (
	"context"
	"errors"
	"time"

	"github.com/redquorum/redquorum/bench/internal/subject"
)

// cycles is a trial of callers that acquire and release.
func (c *client) cycles(ctx context.Context, spec subject.Spec, cfg subject.Config, first int) error {
	load := c.Job.Load
	names, err := newNames(spec.Name, load.Names, load.Seed, first, first+cfg.Callers)
	if err != nil {
		return err
	}
	client, closeClient, err := c.open(ctx, spec, cfg)
	if err != nil {
		return err
	}
	defer closeClient()

	cs := callers{client: client, names: names, hold: load.Hold, patience: load.Patience, clock: c.clock, first: first, n: cfg.Callers}
	if load.Warmup > 0 {
		cs.rec = newRecorder(time.Now(), load.Warmup, load.Warmup, c.scrub)
		cs.rec.checked = mostHoldings // of which none is kept
		cs.run(ctx, func(ctx context.Context) pace { return closed{ctx, cs.rec.end} })
	}

	start, err := c.ready(ctx)
	if err != nil {
		return err
	}
	cs.rec = newRecorder(start, load.Duration, c.Job.Slice, c.scrub)
	if load.Names == "single" {
		cs.rec.callers = make([]int64, cfg.Callers)
	}
	var res result
	var schedule *open
	var stuck int
	err = c.measure(ctx, cs.rec, &res, func() {
		stuck = cs.run(ctx, func(ctx context.Context) pace {
			if load.Rate == 0 {
				return closed{ctx, cs.rec.end}
			}
			schedule = newOpen(ctx, start, load.Duration, load.Rate, c.Process, load.Processes)
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
		res.Trial.Allocs = max(0, res.Trial.Allocs-patienceAllocs*cs.rec.begun())
	}
	return c.finish(cs.rec, &res, stuck)
}

// measure runs what is measured from the recorder's start to its end, and fills
// in what this process used meanwhile.
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

// run lets the callers make cycles until the recorder's end, and returns how many
// of them did not come back from the library.
func (cs callers) run(ctx context.Context, at func(context.Context) pace) (stuck int) {
	var stopAsking, stopReleasing context.CancelFunc
	cs.asking, stopAsking = context.WithCancel(ctx)
	defer stopAsking()
	cs.releasing, stopReleasing = context.WithCancel(context.WithoutCancel(ctx))
	defer stopReleasing()
	pace := at(cs.asking)
	atEnd := time.AfterFunc(time.Until(cs.rec.end), stopAsking)
	defer atEnd.Stop()

	back := newGathering(cs.n)
	for i := range cs.n {
		go func() {
			defer back.one()
			cs.caller(i).run(pace)
		}()
	}
	select {
	case <-back.all:
	case <-cs.asking.Done():
		stuck = back.wait(stopReleasing)
	}
	return stuck
}
