package redlock

import (
	"time"

	"github.com/redquorum/redquorum/clock"
)

// readingError is how far a server's answer may be off its clock: Redis reads
// it once per event loop or command, and tells milliseconds.
const readingError = 5 * time.Millisecond

// A skew bounds how far a server's clock is ahead of ours. It is pure. Each
// look at the server's clock narrows the bounds to the time that the question and
// its answer were under way; between looks they widen by one per cent, by which
// the clocks' rates may differ. A reading outside of them means that one of the
// clocks was set.
type skew struct {
	lo, hi time.Duration
	at     clock.Instant // of the last look
	known  bool
}

// look takes a reading of the server's clock, made between sent and heard by
// ours. If it contradicts the looks before, jump is by how much the server's
// clock went ahead (at most) or back; the bounds then are those of this
// look alone.
func (s skew) look(reading time.Duration, sent, heard clock.Instant) (next skew, jump time.Duration) {
	next = skew{lo: reading - time.Duration(heard), hi: reading - time.Duration(sent), at: heard, known: true}
	if !s.known {
		return next, 0
	}
	slack := readingError + heard.Sub(s.at).Abs()/100
	switch {
	case next.lo > s.hi+slack:
		return next, next.hi - s.lo + slack
	case next.hi < s.lo-slack:
		return next, next.lo - s.hi - slack
	}
	next.lo = max(next.lo, s.lo-slack)
	next.hi = min(next.hi, s.hi+slack)
	return next, 0
}
