package load

import (
	"context"
	"slices"
	"time"
)

// A clock turns this process's moments into nanoseconds of the system's wall clock and back. It
// reads the wall clock once, at the process's start, and counts by the monotonic clock from there,
// because a step of the wall clock in the middle of a trial must move nothing. Processes of one
// machine can be compared as far as their one reading is true: to about a microsecond, plus the
// wall clock's adjustment between the starts of two of them.
type clock struct {
	base time.Time
	wall int64 // at base
}

func newClock() clock {
	base := time.Now()
	// The two clocks are read one after the other, and the process may be paused in between: the
	// median of many readings is one where it was not.
	var readings [101]int64
	for i := range readings {
		t := time.Now()
		readings[i] = t.UnixNano() - int64(t.Sub(base))
	}
	slices.Sort(readings[:])
	return clock{base: base, wall: readings[len(readings)/2]}
}

func (c clock) nanos(t time.Time) int64      { return c.wall + int64(t.Sub(c.base)) }
func (c clock) moment(nanos int64) time.Time { return c.base.Add(time.Duration(nanos - c.wall)) }

// waitUntil sleeps precisely. For most of a long time it sleeps by a timer, which is cheap and ends
// with ctx.
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
