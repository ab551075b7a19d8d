package load

import (
	"context"
	"sync"
	"time"
)

// A pace says when the callers of a process begin their cycles.
type pace interface {
	// next returns, when a caller shall begin a cycle, the moment from which its time
	// counts; false when there is nothing to begin any more. Callers share it.
	next() (from time.Time, ok bool)
}

// closed is the loop in which a caller begins anew as soon as it is done: when
// the servers are slow, so is the asking.
type closed struct {
	ctx context.Context
	end time.Time
}

func (p closed) next() (time.Time, bool) {
	now := time.Now()
	return now, now.Before(p.end) && p.ctx.Err() == nil
}

// open is the loop in which cycles are begun by a schedule, however slow the
// servers are. Where all callers are busy the next cycle waits for one, and its time
// counts from when it was due: to leave that waiting out is coordinated omission.
// https://www.scylladb.com/2021/04/22/on-coordinated-omission/
type open struct {
	ctx   context.Context
	start time.Time
	end   time.Time
	every time.Duration                              // between two cycles of this process
	total int                                        // cycles that are due before the end
	wait  func(ctx context.Context, until time.Time) // returns early if ctx ends

	// turn is held by the one free caller that waits for the next cycle's time; the
	// other free ones wait for turn.
	turn  sync.Mutex
	begun int
}

// newOpen is process p's part of the schedule of all: each processes-th cycle.
func newOpen(ctx context.Context, start time.Time, duration time.Duration, rate float64, p, processes int) *open {
	between := float64(time.Second) / rate
	offset := time.Duration(between * float64(p))
	every := time.Duration(between * float64(processes))
	o := &open{ctx: ctx, start: start.Add(offset), end: start.Add(duration), every: max(every, 1), wait: waitUntil}
	if duration > offset {
		o.total = int((duration - offset + o.every - 1) / o.every)
	}
	return o
}

// lateness is how late a timer may be without the library being the reason: it
// is not counted, if a caller was free and waiting. Beyond it, the process had no
// processor, which its library may well have caused.
const lateness = time.Millisecond

func (o *open) next() (time.Time, bool) {
	o.turn.Lock()
	defer o.turn.Unlock()
	if o.begun == o.total {
		return time.Time{}, false
	}
	due := o.start.Add(time.Duration(o.begun) * o.every)
	from, now := due, time.Now()
	if now.Before(due) {
		o.wait(o.ctx, due)
		now = time.Now()
		if now.Sub(due) <= lateness {
			from = now
		}
	}
	if !now.Before(o.end) || o.ctx.Err() != nil {
		return time.Time{}, false
	}
	o.begun++
	return from, true
}

// notBegun is how many cycles were due and found no caller. Call it when all
// callers have ended.
func (o *open) notBegun() int64 {
	o.turn.Lock()
	defer o.turn.Unlock()
	return int64(o.total - o.begun)
}

// waitUntil sleeps precisely, but for most of a long time as cheaply as can be
// and such that ctx ends it.
func waitUntil(ctx context.Context, until time.Time) {
	const precise = 2 * time.Millisecond
	if d := time.Until(until); d > precise {
		timer := time.NewTimer(d - precise)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
	for d := time.Until(until); d > 0; d = time.Until(until) {
		nap(d)
	}
}
