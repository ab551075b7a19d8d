package doctor

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// latency measures round trips, and the server's clock.
func (v *visit) latency() error {
	first, trips, err := readClock(v.Conn)
	if err != nil {
		return err
	}
	v.answered = true
	slices.Sort(trips)
	median, longest := trips[len(trips)/2], trips[len(trips)-1]
	if half := first.trip() / 2; !first.sent.IsZero() {
		v.clock = first
		v.timing = &Timing{Trip: median, Longest: longest, Offset: first.clock.Sub(first.sent.Add(half).Round(0)), Uncertainty: half}
	}
	found := fmt.Sprintf("round trips take %v, at most %v", Short(median), Short(longest))
	switch limit := v.settings.NodeTimeout; {
	case longest >= limit:
		v.add(Finding{Warning, CheckLatency, found, fmt.Sprintf("the node timeout is %v, so such a reply arrives too late", limit), "find the cause, or raise --node-timeout and the TTLs"})
	case median >= limit/4:
		v.add(Finding{Note, CheckLatency, found, fmt.Sprintf("that is a large part of the node timeout of %v", limit), "raise --node-timeout if replies arrive too late"})
	default:
		v.fine(CheckLatency, "%s", found)
	}
	return nil
}

// A server's clock is watched until a difference of two per cent exceeds the time of the readings themselves,
// within reasonable bounds.
const (
	shortWatch = 50 * time.Millisecond
	longWatch  = 500 * time.Millisecond
	tripsWatch = 150 // round trips
)

// watch reads the server's clock again, late enough after latency to compare the rates.
func (v *visit) watch(ctx context.Context) error {
	if v.timing == nil {
		return nil
	}
	first, longest := v.clock, min(longWatch, v.settings.Timeout/4)
	for d := min(max(shortWatch, tripsWatch*first.trip()), longest); ; d = longest {
		select {
		case <-time.After(time.Until(first.heard.Add(d))):
		case <-ctx.Done():
		}
		last, _, err := readClock(v.Conn)
		if err != nil || last.sent.IsZero() {
			return err
		}
		// A server that rarely reads its clock seems fast or slow for a moment.
		v.rate = rateBetween(first, last)
		if d == longest || !v.rate.isFast() && !v.rate.isSlow() {
			return nil
		}
	}
}
