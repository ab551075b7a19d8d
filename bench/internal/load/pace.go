package load

import (
	"context"
	"sync"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// A pace says when the callers of a process begin their cycles.
//
// Without a rate it is a closed loop, in which a caller begins anew as soon as it is done: when the
// servers are slow, so is the asking. With one it is an open loop, in which cycles are begun by a
// schedule, however slow the servers are. Where all callers are busy the next cycle waits for one,
// and its time counts from when it was due: to leave that waiting out is coordinated omission.
// https://www.scylladb.com/2021/04/22/on-coordinated-omission/
type pace struct {
	start time.Time
	end   time.Time
	every time.Duration                              // between two cycles of this process; zero: closed loop
	total int                                        // cycles that are due before the end
	wait  func(ctx context.Context, until time.Time) // returns early if ctx ends

	// mu is held by the one free caller that waits for the next cycle's time; the other free ones
	// wait for mu.
	mu    sync.Mutex
	begun int
}

// newPace is a process's part of the schedule of all: with three processes, each third cycle.
func newPace(start time.Time, l record.Load, process int) *pace {
	p := &pace{start: start, end: start.Add(l.Duration), wait: waitUntil}
	if l.Rate == 0 {
		return p
	}
	between := float64(time.Second) / l.Rate
	offset := time.Duration(between * float64(process))
	p.start = start.Add(offset)
	p.every = max(time.Duration(between*float64(l.Processes)), 1)
	if l.Duration > offset {
		p.total = int((l.Duration - offset + p.every - 1) / p.every)
	}
	return p
}

// lateness is how late a timer may be without the library being the reason. It is not counted if a
// caller was free and waiting. A process whose timer is later had no processor, which its library
// may have caused.
const lateness = time.Millisecond

// next returns, when a caller shall begin a cycle, the moment from which its time counts; false when
// there is nothing to begin any more. Callers share it.
func (p *pace) next(ctx context.Context) (from time.Time, ok bool) {
	if p.every == 0 {
		now := time.Now()
		return now, now.Before(p.end) && ctx.Err() == nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.begun == p.total {
		return time.Time{}, false
	}
	due := p.start.Add(time.Duration(p.begun) * p.every)
	from, now := due, time.Now()
	if now.Before(due) {
		p.wait(ctx, due)
		now = time.Now()
		if now.Sub(due) <= lateness {
			from = now
		}
	}
	if !now.Before(p.end) || ctx.Err() != nil {
		return time.Time{}, false
	}
	p.begun++
	return from, true
}

// notBegun is how many cycles were due and found no caller. Call it when all callers have ended.
func (p *pace) notBegun() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return int64(p.total - p.begun)
}
