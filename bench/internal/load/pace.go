package load

import (
	"context"
	"sync"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// A pace says when the callers of a process begin their cycles.
type pace interface {
	// next returns, when a caller shall begin a cycle, the moment from which its time counts; false
	// when there is nothing to begin any more. Callers share it.
	next() (from time.Time, ok bool)
}

// A closedLoop is the loop in which a caller begins anew as soon as it is done: when the servers
// are slow, so is the asking.
type closedLoop struct {
	ctx context.Context
	end time.Time
}

func (p closedLoop) next() (time.Time, bool) {
	now := time.Now()
	return now, now.Before(p.end) && p.ctx.Err() == nil
}

// An openLoop is the loop in which cycles are begun by a schedule, however slow the servers are.
// Where all callers are busy the next cycle waits for one, and its time counts from when it was
// due: to leave that waiting out is coordinated omission.
// https://www.scylladb.com/2021/04/22/on-coordinated-omission/
type openLoop struct {
	ctx   context.Context
	start time.Time
	end   time.Time
	every time.Duration                              // between two cycles of this process
	total int                                        // cycles that are due before the end
	wait  func(ctx context.Context, until time.Time) // returns early if ctx ends

	// mu is held by the one free caller that waits for the next cycle's time; the other free ones
	// wait for mu.
	mu    sync.Mutex
	begun int
}

// newOpenLoop is a process's part of the schedule of all: with three processes, each third cycle.
func newOpenLoop(ctx context.Context, start time.Time, l record.Load, process int) *openLoop {
	between := float64(time.Second) / l.Rate
	offset := time.Duration(between * float64(process))
	every := time.Duration(between * float64(l.Processes))
	o := &openLoop{ctx: ctx, start: start.Add(offset), end: start.Add(l.Duration),
		every: max(every, 1), wait: waitUntil}
	if l.Duration > offset {
		o.total = int((l.Duration - offset + o.every - 1) / o.every)
	}
	return o
}

// lateness is how late a timer may be without the library being the reason. It is not counted if a
// caller was free and waiting. A process whose timer is later had no processor, which its library
// may have caused.
const lateness = time.Millisecond

func (o *openLoop) next() (time.Time, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
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

// notBegun is how many cycles were due and found no caller. Call it when all callers have ended.
func (o *openLoop) notBegun() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return int64(o.total - o.begun)
}
