package load

import (
	"context"
	"sync"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// A pace schedules the cycles of the callers of a process.
//
// Without a rate it is a closed loop: a caller begins the next cycle at the end of the last. With a
// rate it is an open loop: cycles are due by a schedule, even if the servers are slow. If all
// callers are busy, the next cycle waits for a caller, and its time counts from its due time.
// Ignoring this wait would be coordinated omission.
// https://www.scylladb.com/2021/04/22/on-coordinated-omission/
type pace struct {
	start, end time.Time
	every      time.Duration // interval between two cycles of this process; zero: closed loop
	total      int           // cycles that are due before the end

	// mu is held by the one free caller that waits for the next cycle. Other free callers wait for mu.
	mu    sync.Mutex
	begun int
}

// newPace returns the process's part of the common schedule: with three processes, every third
// cycle.
func newPace(start time.Time, l record.Load, process int) *pace {
	p := &pace{start: start, end: start.Add(l.Duration)}
	if l.Rate == 0 {
		return p
	}
	between := float64(time.Second) / l.Rate
	offset := time.Duration(between * float64(process))
	p.start = start.Add(offset)
	p.every = max(time.Duration(between*float64(l.Processes)), 1)
	p.total = max(0, int((l.Duration-offset+p.every-1)/p.every))
	return p
}

// lateness is the delay of a timer that does not count if a caller was waiting. Timers of an idle
// Go process are up to a millisecond late. A timer that is later had no processor, perhaps because
// of the library.
const lateness = 1500 * time.Microsecond

// next waits until the caller must begin a cycle, and returns the time from which the cycle counts.
// It returns false at the end. Callers may call it concurrently.
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
		SleepUntil(ctx, due)
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
