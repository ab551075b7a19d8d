package quorum

import "time"

// ReadingError is the greatest error of a server's answer about its clock: Redis reads its clock
// once per event loop or command, and reports milliseconds.
const ReadingError = 5 * time.Millisecond

// DriftRate limits the difference of the rates of two clocks: one part in DriftRate. It is slightly
// more than the promised one per cent, which may consist of half a per cent for each clock in
// opposite directions.
const DriftRate = 98

// An Offset bounds how far a server's clock is ahead of ours, whose readings have the type I. Each
// reading of the server's clock narrows the bounds to the round-trip time plus the error of the
// reading. Between readings they widen by one per cent of the elapsed time, because the rates of
// the clocks may differ by that. A reading outside of the bounds means that one of the clocks was
// set, or runs too fast.
//
// The error belongs to each reading and never to the bounds. A busy client reads every millisecond,
// and a tolerance per reading would add up to any rate.
type Offset[I ~int64] struct {
	lo, hi time.Duration
	at     I // time of the last reading
	known  bool
}

// Read adds a reading of the server's clock, made between sent and heard by our clock. If it
// contradicts the earlier readings, jump is the size of the step that the server's clock made, at
// most if it went ahead. The bounds are then based on this reading alone.
func (o Offset[I]) Read(reading time.Duration, sent, heard I) (next Offset[I], jump time.Duration) {
	doubt := ReadingError + time.Duration(heard-sent)/DriftRate // the reading may be from any moment in between
	next = Offset[I]{
		lo: reading - time.Duration(heard) - doubt, hi: reading - time.Duration(sent) + doubt,
		at: heard, known: true,
	}
	if !o.known {
		return next, 0
	}
	drift := o.drift(heard)
	switch {
	case next.lo > o.hi+drift:
		return next, next.hi - o.lo + drift
	case next.hi < o.lo-drift:
		return next, next.lo - o.hi - drift
	}
	next.lo = max(next.lo, o.lo-drift)
	next.hi = min(next.hi, o.hi+drift)
	return next, 0
}

// Age returns the time since the last reading.
func (o Offset[I]) Age(now I) time.Duration { return time.Duration(now - o.at) }

// Latest returns the highest reading that the server's clock can show at now.
func (o Offset[I]) Latest(now I) time.Duration { return time.Duration(now) + o.hi + o.drift(now) }

// Earliest returns the lowest reading that the server's clock can show at now.
func (o Offset[I]) Earliest(now I) time.Duration { return time.Duration(now) + o.lo - o.drift(now) }

// drift returns the greatest drift between the clocks since the last reading.
func (o Offset[I]) drift(now I) time.Duration { return time.Duration(now-o.at).Abs() / DriftRate }

// Since bounds the moment, by our clock, at which the server's clock showed then. The server's
// clock showed reading between sent and heard. If the moment is in the future, the server's clock
// was set back since, by an unknown amount.
func Since[I ~int64](then, reading time.Duration, sent, heard I) (earliest, latest I) {
	if then > reading {
		earliest, _ = Since(0, reading, sent, heard)
		return earliest, heard + I(ReadingError)
	}
	age := reading - then
	doubt := age/DriftRate + ReadingError
	return sent - I(age+doubt), heard - I(age-doubt)
}
