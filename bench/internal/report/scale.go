package report

import "math"

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

// class is that of the tick's line.
func (t tick) class() string {
	if t.label == "" {
		return "minor"
	}
	return "grid"
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

// include widens the values by one, which is above zero: zero is none.
func (e *extent) include(v float64) {
	if v > 0 && (e.from == 0 || v < e.from) {
		e.from = v
	}
	e.to = max(e.to, v)
}

// linear is a scale from zero to exactly hi, which is above zero.
func linear(hi float64, on extent, label func(float64) string) scale {
	const ticks = 5
	s := scale{hi: hi, from: on.from, to: on.to}
	step := above(hi/ticks, 1, 2, 2.5, 5)
	for i := 0; float64(i)*step <= hi*(1+1e-9); i++ {
		s.ticks = append(s.ticks, tick{float64(i) * step, label(float64(i) * step)})
	}
	return s
}

// Room for the labels of ticks: from one to the next on an axis that lies, and on one that stands.
const (
	lying    = 64.0
	standing = 25.0
)

// logarithmic is a scale over values above zero, widened to 1, 2 or 5 times a power of ten, with
// labels that are at least room pixels apart.
func logarithmic(values, on extent, room float64, label func(float64) string) scale {
	s := scale{lo: below(values.from), hi: above(values.to, 1, 2, 5), from: on.from, to: on.to, log: true}
	if s.hi < 4*s.lo { // nothing to tell apart: some room on both sides
		s.lo, s.hi = below(s.lo*0.7), above(s.hi*1.4, 1, 2, 5)
	}
	s.mark(room, label)
	return s
}

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

// above is the smallest of some multiples of a power of ten that is not below x.
func above(x float64, multiples ...float64) float64 {
	ten := powerBelow(x)
	for _, m := range multiples {
		if x <= m*ten*(1+1e-9) {
			return m * ten
		}
	}
	return 10 * ten
}

// below is the largest of 1, 2 and 5 times a power of ten that is not above x.
func below(x float64) float64 {
	ten := powerBelow(x)
	for _, m := range []float64{5, 2} {
		if x >= m*ten*(1-1e-9) {
			return m * ten
		}
	}
	return ten
}

// powerBelow is the largest power of ten that is not above x, with some room for how powers are
// rounded.
func powerBelow(x float64) float64 { return math.Pow(10, math.Floor(math.Log10(x)+1e-9)) }
