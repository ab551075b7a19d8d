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
	var rec atomic.Pointer[recorder]
	var first sync.Once
	begun := make(chan struct{})
	call := start(1, func(int) {
		err := spec.Drive(running, c.job.URLs, cfg, func(caller int, began time.Time, acquire, release time.Duration) {
			first.Do(func() { close(begun) })
			if rec := rec.Load(); rec != nil && !began.Before(rec.start) {
				acquired := began.Add(acquire)
				rec.acquired(acquired, acquire)
				rec.ended(caller, acquired.Add(release), nil)
			}
		})
		if running.Err() == nil && err == nil {
			err = errors.New("it ended by itself")
		}
		if err != nil {
			cancel(fmt.Errorf("%s: %w", spec.Name, err))
		}
	})

	select {
	case <-begun:
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
	measured := newRecorder(start, c.job.Load, c.scrub)
	rec.Store(measured)
	used, err := c.measure(ctx, start, measured.end, func() {
		waitUntil(ctx, measured.end)
		stop()
		call.wait(running, stop)
	})
	return measured.close(used, 0), err
}
