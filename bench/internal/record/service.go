package record

import (
	"math"
	"time"
)

// recovered is the share of the rate before the fault at which the service counts as back.
const recovered = 0.9

// Feel enters a fault, or nil, into a trial whose other figures are complete, with its effects. Millis
// are used up by it.
//
// Recovery is from the fault's end to the begin of the first window, within the trial, whose rate
// is at least 90 % of the mean rate from the trial's start to the fault's begin. A window is 100 ms
// long, or as long as 20 cycles took on average before the fault: fewer would show chance rather
// than the service. It is -1 if there is no such window, or no acquisition before the fault.
//
// Without is the longest time between two acquisitions that follow each other (or the trial's start
// or end) and that touches the fault or its recovery, which lasts to the trial's end if it is -1.
// It counts whole milliseconds in which nothing was acquired, and so is up to 2 ms too short.
func (t *Trial) Feel(f *Fault) {
	millis := t.Millis
	t.Fault, t.Millis = f, nil
	if f == nil {
		return
	}
	from, to := min(millisecond(f.From), len(millis)), len(millis)
	f.Recovery = -1
	if at := recovery(millis, f.To, float64(sum(millis[:from]))/float64(from)); at >= 0 {
		f.Recovery = max(time.Duration(at)*time.Millisecond-f.To, 0)
		to = at
	}
	f.Without = time.Duration(gap(millis, from, to)) * time.Millisecond
	f.Before = acquired(t.Slices, 0, f.From)
	f.During = acquired(t.Slices, f.From, f.To)
}

// acquired are the acquisitions of the slices between two moments.
func acquired(slices []Histogram, from, to time.Duration) Histogram {
	h := Coarse()
	for i, s := range slices {
		if at := time.Duration(i) * SliceLength; at >= from && at+SliceLength <= to {
			h.Merge(s)
		}
	}
	return h
}

func millisecond(d time.Duration) int { return max(0, int(d/time.Millisecond)) }

func sum(millis []uint16) (n int64) {
	for _, m := range millis {
		n += int64(m)
	}
	return n
}

// recovery is the millisecond at which the window begins, or -1. The mean is of a millisecond before
// the fault, and NaN if there was none.
func recovery(millis []uint16, to time.Duration, mean float64) int {
	if !(mean > 0) {
		return -1
	}
	window := max(100, int(math.Ceil(20/mean)))
	from := millisecond(to + time.Millisecond - 1)
	if from+window > len(millis) {
		return -1
	}
	enough := recovered * mean * float64(window)
	n := sum(millis[from : from+window])
	for at := from; ; at++ {
		if float64(n) >= enough {
			return at
		}
		if at+window == len(millis) {
			return -1
		}
		n += int64(millis[at+window]) - int64(millis[at])
	}
}

// gap is the longest run of empty milliseconds of those that touch [from, to].
func gap(millis []uint16, from, to int) (longest int) {
	begin := 0 // of the present run
	for i := 0; i <= len(millis); i++ {
		if i < len(millis) && millis[i] == 0 {
			continue
		}
		if i > from && begin <= to {
			longest = max(longest, i-begin)
		}
		begin = i + 1
	}
	return longest
}
