package record

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// A Sample is one acquisition: the time at which it ended, and its duration.
type Sample struct{ At, Took time.Duration }

// The service counts as back when its rate over a window is at this share of its rate before the
// fault. A window lasts for shortestWindow, or for the time of windowCycles cycles if that is
// longer, because the rate of fewer cycles would be random.
const (
	recovered      = 0.9
	shortestWindow = 100 * time.Millisecond
	windowCycles   = 20
)

// Feel computes the effect of the fault on callers with these acquisitions, in a trial of the given
// length.
//
// Recovery ends at the start of the first window that is within the trial and fast enough. Without
// is the longest time between two acquisitions (or the trial's start or end) that overlaps with the
// fault or its recovery.
func (f *Fault) Feel(samples []Sample, length time.Duration) {
	slices.SortFunc(samples, func(a, b Sample) int { return cmp.Compare(a.At, b.At) })
	before := 0
	perSlice := make([]Histogram, (length+SliceLength-1)/SliceLength)
	for _, s := range samples {
		perSlice[s.At/SliceLength].Add(s.Took)
		switch {
		case s.At < f.From:
			before++
			f.Before.Add(s.Took)
		case s.At < f.To:
			f.During.Add(s.Took)
		}
	}
	for _, h := range perSlice {
		f.Slices = append(f.Slices, 0)
		if h.Count() > 0 {
			f.Slices[len(f.Slices)-1] = time.Duration(h.At(0.99))
		}
	}

	f.Recovery = -1
	until := length // of the recovery
	if before > 0 {
		window := max(shortestWindow, windowCycles*f.From/time.Duration(before))
		enough := int(math.Ceil(recovered * float64(before) * float64(window) / float64(f.From)))
		for i := range samples[:max(0, len(samples)-enough+1)] {
			// The earliest window that starts with this acquisition and has enough of them.
			begin := max(f.To, samples[i+enough-1].At-window+1)
			if samples[i].At >= begin && begin+window <= length {
				f.Recovery, until = begin-f.To, begin
				break
			}
		}
	}

	last := time.Duration(0)
	for _, s := range append(samples, Sample{At: length}) {
		if s.At > f.From && last <= until {
			f.Without = max(f.Without, s.At-last)
		}
		last = s.At
	}
}
