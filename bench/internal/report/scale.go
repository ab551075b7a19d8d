package report

import "math"

// A scale maps values to pixels. Values outside go to its nearer end, so that
// nothing is drawn beyond a panel.
type scale struct {
	lo, hi   float64 // values
	from, to float64 // pixels
	log      bool
	ticks    []tick
}

// A tick is a mark of an axis. Minor ones have no label.
type tick struct {
	value float64
	label string
}

func (s scale) at(v float64) float64 {
	v = min(max(v, s.lo), s.hi)
	if s.log {
		return s.from + (s.to-s.from)*math.Log(v/s.lo)/math.Log(s.hi/s.lo)
	}
	return s.from + (s.to-s.from)*(v-s.lo)/(s.hi-s.lo)
}

// linear is a scale from zero to at least hi.
func linear(hi, from, to float64, ticks int, label func(float64) string) scale {
	if !(hi > 0) || math.IsInf(hi, 1) {
		hi = 1
	}
	step := niceStep(hi / float64(ticks))
	s := scale{hi: step * math.Ceil(hi/step-1e-9), from: from, to: to}
	for i := 0; float64(i)*step <= s.hi+step/2; i++ {
		v := float64(i) * step
		s.ticks = append(s.ticks, tick{v, label(v)})
	}
	return s
}

// logarithmic is a scale over [lo, hi], widened to 1, 2 or 5 times a power of ten.
func logarithmic(lo, hi, from, to float64, label func(float64) string) scale {
	if !(lo > 0) || !(hi >= lo) || math.IsInf(hi, 1) {
		lo, hi = 1, 10
	}
	s := scale{lo: niceFloor(lo), hi: niceCeil(hi), from: from, to: to, log: true}
	if s.hi < 4*s.lo { // nothing to tell apart: some room on both sides
		s.lo, s.hi = niceFloor(s.lo*0.7), niceCeil(s.hi*1.4)
	}
	s.ticks = logTicks(s.lo, s.hi, label)
	return s
}

// timeline is a scale of the nanoseconds from zero to exactly end: an axis of time
// ends where the trial does.
func timeline(end, from, to float64) scale {
	s := linear(end, from, to, 12, func(ns float64) string { return short(ns/1e9) + " s" })
	if end > 0 {
		s.hi = end
	}
	for len(s.ticks) > 0 && s.ticks[len(s.ticks)-1].value > s.hi {
		s.ticks = s.ticks[:len(s.ticks)-1]
	}
	return s
}
