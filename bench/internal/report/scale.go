package report

import (
	"math"
)

// A scale maps values to pixels. Values outside go to its nearer end, so that nothing is drawn
// beyond a panel.
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

// An extent is a part of an axis: of its values, or of its pixels.
type extent struct{ from, to float64 }

// linear is a scale from zero to at least hi.
func linear(hi float64, on extent, ticks int, label func(float64) string) scale {
	if !(hi > 0) || math.IsInf(hi, 1) {
		hi = 1
	}
	step := niceStep(hi / float64(ticks))
	s := scale{hi: step * math.Ceil(hi/step-1e-9), from: on.from, to: on.to}
	for i := 0; float64(i)*step <= s.hi+step/2; i++ {
		v := float64(i) * step
		s.ticks = append(s.ticks, tick{v, label(v)})
	}
	return s
}

// Room for the labels of ticks: from one to the next on an axis that lies, and on one that stands.
const (
	lying    = 64.0
	standing = 25.0
)

// logarithmic is a scale over values, widened to 1, 2 or 5 times a power of ten, with labels that
// are at least room pixels apart.
func logarithmic(values, on extent, room float64, label func(float64) string) scale {
	lo, hi := values.from, values.to
	if !(lo > 0) || !(hi >= lo) || math.IsInf(hi, 1) {
		lo, hi = 1, 10
	}
	s := scale{lo: niceFloor(lo), hi: niceCeil(hi), from: on.from, to: on.to, log: true}
	if s.hi < 4*s.lo { // nothing to tell apart: some room on both sides
		s.lo, s.hi = niceFloor(s.lo*0.7), niceCeil(s.hi*1.4)
	}
	s.mark(room, label)
	return s
}

// timeline is a scale of the nanoseconds from zero to exactly end: an axis of time ends where the
// trial does.
func timeline(end, from, to float64) scale {
	s := linear(end, extent{from, to}, 5, func(ns float64) string { return short(ns/1e9) + " s" })
	if end > 0 {
		s.hi = end
	}
	for len(s.ticks) > 0 && s.ticks[len(s.ticks)-1].value > s.hi {
		s.ticks = s.ticks[:len(s.ticks)-1]
	}
	return s
}

// grid draws the ticks of a horizontal scale as vertical lines.
func (c *canvas) grid(s scale, top, bottom float64) {
	for _, t := range s.ticks {
		class := "grid"
		if t.label == "" {
			class = "minor"
		}
		c.line(xy{s.at(t.value), top}, xy{s.at(t.value), bottom}, class)
	}
}

// ladder draws a vertical scale: its grid, and its labels at the left.
func (c *canvas) ladder(s scale, left, right float64) {
	for _, t := range s.ticks {
		class := "grid"
		if t.label == "" {
			class = "minor"
		}
		c.line(xy{left, s.at(t.value)}, xy{right, s.at(t.value)}, class)
		if t.label != "" {
			c.text(left-6, s.at(t.value)+5, "end muted small", t.label)
		}
	}
}

// whisker draws the range of the rounds.
func (c *canvas) whisker(from, to, y float64) {
	if to-from < 1 {
		return
	}
	c.line(xy{from, y}, xy{to, y}, "whisker")
	c.line(xy{from, y - 4}, xy{from, y + 4}, "whisker")
	c.line(xy{to, y - 4}, xy{to, y + 4}, "whisker")
}

// niceStep is the smallest of 1, 2, 2.5 and 5 times a power of ten that is not below x.
func niceStep(x float64) float64 {
	return above(x, 1, 2, 2.5, 5)
}

// niceCeil and niceFloor go to 1, 2 or 5 times a power of ten.
func niceCeil(x float64) float64 { return above(x, 1, 2, 5) }

func niceFloor(x float64) float64 {
	ten := powerBelow(x)
	for _, m := range []float64{5, 2} {
		if x >= m*ten*(1-1e-9) {
			return m * ten
		}
	}
	return ten
}

func above(x float64, multiples ...float64) float64 {
	ten := powerBelow(x)
	for _, m := range multiples {
		if x <= m*ten*(1+1e-9) {
			return m * ten
		}
	}
	return 10 * ten
}

// powerBelow is the largest power of ten that is not above x, with some room for how powers are
// rounded.
func powerBelow(x float64) float64 { return math.Pow(10, math.Floor(math.Log10(x)+1e-9)) }

// mark sets the ticks of a logarithmic scale: powers of ten, and between them 2 and 5, have labels
// where these are room pixels apart, else every so many powers do. Others have none.
func (s *scale) mark(room float64, label func(float64) string) {
	decades := math.Log10(s.hi / s.lo)
	decade := math.Abs(s.to-s.from) / decades
	between := math.Log10(2)*decade >= room
	every := max(1, int(math.Ceil(room/decade-1e-9)))
	for e := int(math.Round(math.Log10(powerBelow(s.lo)))); ; e++ {
		ten := math.Pow(10, float64(e))
		for m := 1; m <= 9; m++ {
			v := float64(m) * ten
			switch {
			case v < s.lo*(1-1e-9):
				continue
			case v > s.hi*(1+1e-9):
				return
			case m == 1 && e%every == 0, (m == 2 || m == 5) && between:
				s.ticks = append(s.ticks, tick{v, label(v)})
			case decades <= 5:
				s.ticks = append(s.ticks, tick{value: v})
			}
		}
	}
}
