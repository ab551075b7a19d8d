package quorum

import "time"

// ReadingError is how far a server's answer may be off its clock: Redis reads its clock
// once per event loop or command, and tells milliseconds.
const ReadingError = 5 * time.Millisecond

// DriftRate bounds the difference of the rates of two clocks: one part in DriftRate. It is
// a little above the one per cent that is promised, because that can be half a per cent
// of each in opposite directions.
const DriftRate = 98

// An Offset bounds how far a server's clock is ahead of ours, whose moments have the type
// I. Each reading of the server's clock narrows the bounds to the time that the question
// and its answer were under way, and the error of the reading; between readings they widen
// by one per cent of the time that passes, by which the clocks' rates may differ. A reading
// outside of the bounds means that one of the clocks was set, or goes too fast.
//
// The error belongs to each reading and never to the bounds, because a busy client reads
// every millisecond: what it forgave each time would add up to any rate.
type Offset[I ~int64] struct {
	lo, hi time.Duration
	at     I // of the last reading
	known  bool
}

// Read takes a reading of the server's clock, made between sent and heard by
// ours. If it contradicts the readings before, jump is by how much the server's
// clock went ahead (at most) or back; the bounds then are those of this
// reading alone.
func (o Offset[I]) Read(reading time.Duration, sent, heard I) (next Offset[I], jump time.Duration) {
	doubt := ReadingError + time.Duration(heard-sent)/DriftRate // it may be of any moment in between
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

// Age returns how long ago the last reading was taken.
func (o Offset[I]) Age(now I) time.Duration { return time.Duration(now - o.at) }

// Latest returns the highest reading that the server's clock can show at now.
func (o Offset[I]) Latest(now I) time.Duration { return time.Duration(now) + o.hi + o.drift(now) }

// Earliest returns the lowest reading that the server's clock can show at now.
func (o Offset[I]) Earliest(now I) time.Duration { return time.Duration(now) + o.lo - o.drift(now) }

// drift is by how much the clocks may have drifted apart since the last reading.
func (o Offset[I]) drift(now I) time.Duration { return time.Duration(now-o.at).Abs() / DriftRate }

// Since bounds the moment, by our clock, at which the server's clock showed then. The
// server's clock is known to show reading between sent and heard. Where the moment is still
// to come, the server's clock was set back since, by an unknown amount.
func Since[I ~int64](then, reading time.Duration, sent, heard I) (earliest, latest I) {
	if then > reading {
		earliest, _ = Since(0, reading, sent, heard)
		return earliest, heard + I(ReadingError)
	}
	age := reading - then
	doubt := age/DriftRate + ReadingError
	return sent - I(age+doubt), heard - I(age-doubt)
}
