package load

import (
	"context"
	"sync"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// ahead is how long before the moment to begin the processes hear of it: time
// for all of them to clear away their garbage.
const ahead = 100 * time.Millisecond

// Run starts job.Load.Processes client processes, this program anew, lets them
// connect and warm up, starts them together, and puts together what they saw. It
// returns when all have ended, by themselves, by the first one's error or by ctx.
// Of the Trial it fills in all that clients know; the caller adds the rest.
//
// started is called when the load begins, and the faults may be counted from that
// moment; progress twice a second from then on. Both are called one after the other, and
// hold up nothing but each other.
func Run(ctx context.Context, job Job, started func(time.Time), progress func(Progress)) (record.Trial, error) {
	if err := job.check(); err != nil {
		return record.Trial{}, err
	}
	g := newGather(job)
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
			if err := p.follow(g); err != nil {
				cancel(err)
			}
		})
	}
	select {
	case <-g.ready:
	case <-ctx.Done():
		return record.Trial{}, context.Cause(ctx)
	}
	g.start = time.Now().Add(ahead)
	for _, p := range processes {
		if err := p.tell(beginning{Begin: g.start.UnixNano()}); err != nil {
			cancel(err) // unless the process has told more by now
			return record.Trial{}, context.Cause(ctx)
		}
	}
	waitUntil(ctx, g.start)
	if ctx.Err() == nil {
		started(g.start)
	}
	ticks := time.NewTicker(reporting)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
			progress(g.progress())
			continue
		case <-g.done:
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
	return g.finish(), nil
}
