package report

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

func values(ticks []tick) (all []float64) {
	for _, t := range ticks {
		all = append(all, math.Round(t.value*1e6)/1e6)
	}
	return all
}

func labels(ticks []tick) (all []string) {
	for _, t := range ticks {
		if t.label != "" {
			all = append(all, t.label)
		}
	}
	return all
}

func TestBarsStartAtZero(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		hi    float64
		ticks []float64
	}{
		{1.43, []float64{0, 0.5, 1}},
		{17200, []float64{0, 5000, 10000, 15000}},
		{10, []float64{0, 2, 4, 6, 8, 10}},
	} {
		s := linear(c.hi, extent{100, 200}, short)
		assert.Equal(t, c.ticks, values(s.ticks), "%v", c.hi)
		assert.Zero(t, s.lo)
		assert.Equal(t, 100.0, s.at(0))
		assert.Equal(t, 200.0, s.at(2*s.hi), "what is beyond stays at the end")
		assert.Equal(t, 100.0, s.at(-1))
	}
}

func TestLogarithmicAxesLabelPowersOfTenAndBetweenThemWhereThereAreFew(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		lo, hi float64
		labels []string
	}{
		{1.2e6, 35e6, []string{"1 ms", "2 ms", "5 ms", "10 ms", "20 ms", "50 ms"}},
		{1.2e6, 270e6, []string{"1 ms", "10 ms", "100 ms"}},
		{100, 1e9, []string{"100 ns", "1 µs", "10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s"}},
		{1, 1e11, []string{"1 ns", "100 ns", "10 µs", "1 ms", "100 ms", "10 s"}},
		{3e6, 3e6, []string{"1 ms", "2 ms", "5 ms", "10 ms"}},
	} {
		s := logarithmic(extent{c.lo, c.hi}, extent{600, 100}, lying, spanShort)
		assert.Equal(t, c.labels, labels(s.ticks), "%v to %v", c.lo, c.hi)
		assert.InDelta(t, 600, s.at(s.lo), 1e-9)
		assert.InDelta(t, 100, s.at(s.hi), 1e-9)
		assert.InDelta(t, 350, s.at(math.Sqrt(s.lo*s.hi)), 1e-9, "the geometric mean is in the middle")
		assert.InDelta(t, 600, s.at(0), 1e-9, "zero has no place, and is drawn at the end")
		for _, tick := range s.ticks {
			assert.GreaterOrEqual(t, tick.value, s.lo*(1-1e-9))
			assert.LessOrEqual(t, tick.value, s.hi*(1+1e-9))
		}
	}
}
