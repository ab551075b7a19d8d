package clock

import "time"

// An Instant is a reading of one Clock, in nanoseconds since that clock's origin. Do not compare
// Instants of different clocks.
type Instant int64

// Add returns the instant d later.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub returns the time from j to i.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i - j) }

// A Clock measures time and calls functions later. It is safe for concurrent use.
type Clock interface {
	// Now returns the current reading. It never decreases.
	Now() Instant
	// AfterFunc calls f in its own goroutine after d has passed on this clock.
	AfterFunc(d time.Duration, f func()) Timer
}

// A Timer is the pending call of one AfterFunc. Its methods work like the methods of time.Timer.
// They are safe for concurrent use.
type Timer interface {
	// Stop prevents the call, and reports whether the call was pending.
	Stop() bool
	// Reset moves the call to d from now, whether or not it was pending, and reports whether it was
	// pending.
	Reset(d time.Duration) bool
}
