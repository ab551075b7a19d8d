package report

import "math"

// niceStep is the smallest of 1, 2, 2.5 and 5 times a power of ten that is not
// below x.
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

// powerBelow is the largest power of ten that is not above x, with some room for
// how powers are rounded.
func powerBelow(x float64) float64 { return math.Pow(10, math.Floor(math.Log10(x)+1e-9)) }

// logTicks marks powers of ten, and between them 2 and 5 with labels where there
// are few powers, and all others without.
func logTicks(lo, hi float64, label func(float64) string) []tick {
	decades := math.Log10(hi / lo)
	every := 1 // n-th power has a label
	if decades > 8 {
		every = 2
	}
	var ticks []tick
	for e := int(math.Round(math.Log10(powerBelow(lo)))); ; e++ {
		ten := math.Pow(10, float64(e))
		for m := 1; m <= 9; m++ {
			v := float64(m) * ten
			switch {
			case v < lo*(1-1e-9):
				continue
			case v > hi*(1+1e-9):
				return ticks
			case m == 1 && e%every == 0, (m == 2 || m == 5) && decades <= 2.5:
				ticks = append(ticks, tick{v, label(v)})
			case decades <= 5:
				ticks = append(ticks, tick{value: v})
			}
		}
	}
}
