package load

import (
	"slices"
	"time"
)

// A clock turns this process's moments into nanoseconds of the system's wall
// clock and back. It reads the wall clock once, at the process's start, and counts
// by the monotonic clock from there: a step of the wall clock in the middle of a
// trial moves nothing. Processes of one machine can be compared as far as their one
// reading is true: to about a microsecond, plus what the wall clock was adjusted
// between the starts of two of them.
type clock struct {
	base time.Time
	wall int64 // at base
}

func newClock() clock {
	base := time.Now()
	// The two clocks are read one after the other, and the process may be set aside
	// in between: the median of many readings is one where it was not.
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
