package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/bench/internal/subject"
)

// driveTrial is a trial of a subject that makes the cycles itself. It runs from the warm-up to the
// end without a break; only cycles that begin after the trial's start are recorded.
func (c *client) driveTrial(ctx context.Context, spec subject.Spec, cfg subject.Config) (message, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	running, stop := context.WithCancel(ctx)
	defer stop()
	d := &driven{begun: make(chan struct{})}
	call := start(1, func(int) {
		err := spec.Drive(running, c.job.URLs, cfg, d)
		if running.Err() == nil && err == nil {
			err = errors.New("it ended by itself")
		}
		if err != nil {
			cancel(fmt.Errorf("%s: %w", spec.Name, err))
		}
	})

	select {
	case <-d.begun:
	case <-time.After(connectLimit):
		return message{}, fmt.Errorf("%s: there was no cycle within %v", spec.Name, connectLimit)
	case <-ctx.Done():
		return message{}, context.Cause(ctx)
	}
	waitUntil(ctx, time.Now().Add(c.job.Load.Warmup))
	start, err := c.ready(ctx)
	if err != nil {
		return message{}, err
	}
	rec := newRecorder(start, c.job.Load, c.scrub)
	d.rec.Store(rec)
	measured, err := c.measure(ctx, rec.start, rec.end, func() {
		waitUntil(ctx, rec.end)
		stop()
		call.wait(running, stop)
	})
	return rec.close(measured, 0), err
}

// driven is where such a subject reports to.
type driven struct {
	once  sync.Once
	begun chan struct{} // closed after the first cycle
	rec   atomic.Pointer[recorder]
}

func (d *driven) Cycle(caller int, began time.Time, acquire, release time.Duration) {
	rec := d.rec.Load()
	if rec == nil {
		d.once.Do(func() { close(d.begun) })
		return
	}
	if began.Before(rec.start) {
		return
	}
	acquired := began.Add(acquire)
	rec.acquired(acquired, acquire)
	rec.ended(caller, acquired.Add(release), nil)
}
