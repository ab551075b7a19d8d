package doctor

import (
	"fmt"
	"slices"
	"time"
)

// samples is the number of round trips: enough for a median that one slow answer does not move, few
// enough for a server far away.
const samples = 7

// readClock reads the server's clock, by the shortest of several round trips, because the server
// answered at some moment between two readings of our clock. The reading is the zero value if the
// server does not tell the time.
func (v *visit) readClock() (best reading, trips []time.Duration, err error) {
	for range samples {
		q := newQuestion("TIME")
		r := reading{sent: time.Now()}
		if err := v.ask(q); err != nil {
			return reading{}, nil, err
		}
		r.heard = time.Now()
		trips = append(trips, r.trip())
		ok := false
		if r.clock, ok = q.time(); ok && (best.sent.IsZero() || r.trip() < best.trip()) {
			best = r
		}
	}
	return best, trips, nil
}

// latency measures round trips, and the server's clock.
func (v *visit) latency() error {
	first, trips, err := v.readClock()
	if err != nil {
		return err
	}
	slices.Sort(trips)
	median, longest := trips[len(trips)/2], trips[len(trips)-1]
	if half := first.trip() / 2; !first.sent.IsZero() {
		v.clock = first
		v.timing = &Timing{Trip: median, Longest: longest, Offset: first.clock.Sub(first.sent.Add(half).Round(0)), Uncertainty: half}
	}
	found := fmt.Sprintf("round trips take %v, at most %v", Short(median), Short(longest))
	switch limit := v.settings.NodeTimeout; {
	case longest >= limit:
		v.add(Finding{Warning, checkLatency, found, fmt.Sprintf("a vote waits for %v only, so the reply comes too late", limit), "find the cause, or raise --node-timeout and the TTLs"})
	case median >= limit/4:
		v.add(Finding{Note, checkLatency, found, fmt.Sprintf("that is a large part of the %v that a vote waits", limit), "raise --node-timeout if replies come too late"})
	default:
		v.fine(checkLatency, "%s", found)
	}
	return nil
}

// time reads the answer to TIME.
func (q *question) time() (time.Time, bool) {
	list, _ := q.value.([]any)
	if len(list) != 2 {
		return time.Time{}, false
	}
	seconds, err := number(list[0])
	micros, err2 := number(list[1])
	return time.Unix(seconds, micros*1000), err == nil && err2 == nil
}

// Short returns d rounded for people.
func Short(d time.Duration) time.Duration {
	switch {
	case d.Abs() >= 10*time.Second:
		return d.Round(time.Second)
	case d.Abs() >= 10*time.Millisecond:
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}
