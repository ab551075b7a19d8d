package load

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redquorum/redquorum/internal/evidence/check"
)

// A hold is a time in which a caller relied on a lock: from the return of Acquire to the call of
// Release, or to the end of the validity that the library reported at that moment, whichever is
// first. The library promises all of it, so two holds that overlap are a violation.
type hold struct {
	Permit, Caller uint32 // one holder at a time for each permit
	From, Until    int64  // by the clock of the machine
}

// overlaps returns the number of pairs of holds of one permit that overlap, and a description of the
// first, with times since start.
func overlaps(holds []hold, start int64) (pairs int64, first string) {
	earliest := int64(0)
	slices.SortFunc(holds, func(a, b hold) int { return cmp.Compare(a.Permit, b.Permit) })
	for len(holds) > 0 {
		n := slices.IndexFunc(holds, func(h hold) bool { return h.Permit != holds[0].Permit })
		if n < 0 {
			n = len(holds)
		}
		for _, o := range check.Overlaps(holds[:n], func(h hold) check.Hold { return check.Hold{From: h.From, Until: h.Until} }) {
			if pairs == 0 || o.Later.From < earliest {
				earliest = o.Later.From
				at := func(nanos int64) time.Duration { return time.Duration(nanos - start).Round(time.Microsecond) }
				a, b := o.First, o.Later
				first = fmt.Sprintf("callers %d (%v to %v) and %d (%v to %v) held it for %v at once",
					a.Caller, at(a.From), at(a.Until), b.Caller, at(b.From), at(b.Until), time.Duration(min(a.Until, b.Until)-b.From))
			}
			pairs += int64(o.Others)
		}
		holds = holds[n:]
	}
	return pairs, first
}

// A clock converts between times of this process and the monotonic clock of the machine, which all
// processes share.
type clock struct {
	base  time.Time
	reads int64 // the machine's clock at base
}

func newClock() clock {
	for {
		before := monotonic()
		base := time.Now()
		if after := monotonic(); after-before < int64(10*time.Microsecond) { // the readings were not interrupted
			return clock{base, before + (after-before)/2}
		}
	}
}

func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // with these arguments it cannot fail
	return t.Nano()
}

func (c clock) nanos(t time.Time) int64    { return c.reads + int64(t.Sub(c.base)) }
func (c clock) time(nanos int64) time.Time { return c.base.Add(time.Duration(nanos - c.reads)) }
