package record

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestFiguresOfATrial(t *testing.T) {
	t.Parallel()
	trial := Trial{
		Elapsed: 2 * time.Second, Cycles: 1000, CPU: 100 * time.Millisecond, Allocs: 5000,
		Outcomes: map[string]int64{OK: 1000, Held: 200, NotBegun: 50, UnderWay: 64},
		Nodes: []NodeCosts{
			{Commands: map[string]int64{"set": 1000, "evalsha": 1000}, BytesIn: 100_000, BytesOut: 20_000},
			{Commands: map[string]int64{"set": 500, "evalsha": 500}, BytesIn: 50_000, BytesOut: 10_000},
			{}, // did not count
		},
	}
	assert.InDelta(t, 500, trial.PerSecond(), 0)
	assert.Equal(t, 100*time.Microsecond, trial.CPUPerCycle())
	assert.InDelta(t, 5, trial.AllocsPerCycle(), 0)
	assert.InDelta(t, 0.2, trial.FailedShare(), 1e-9)
	assert.InDelta(t, 90, trial.BytesPerCycle(false), 1e-9)
	assert.InDelta(t, 1.5, trial.CommandsPerCycle(false), 1e-9)
	assert.InDelta(t, 2, trial.CommandsPerCycle(true), 1e-9, "of the first node")
}

func TestNothingIsZero(t *testing.T) {
	t.Parallel()
	var none Trial
	for _, figure := range []float64{
		none.PerSecond(), float64(none.CPUPerCycle()), none.AllocsPerCycle(), none.FailedShare(),
		none.BytesPerCycle(true), none.CommandsPerCycle(false), Median(nil), Jain(nil), Jain([]int64{0, 0}),
	} {
		assert.Zero(t, figure) // and no NaN
	}
	assert.Empty(t, Run{}.Summaries())
	assert.Empty(t, services(nil, nil, 0))
}

func TestMedian(t *testing.T) {
	t.Parallel()
	xs := []float64{9, 1, 5}
	assert.InDelta(t, 5, Median(xs), 0)
	assert.Equal(t, []float64{9, 1, 5}, xs, "the caller's order stays")
	assert.InDelta(t, 3, Median([]float64{5, 1}), 0)
	assert.InDelta(t, 7, Median([]float64{7}), 0)
}

func TestJain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		xs   []int64
		want float64
	}{
		{[]int64{5, 5, 5, 5}, 1},
		{[]int64{9, 0, 0}, 1.0 / 3},
		{[]int64{1, 3}, 0.8},
		{[]int64{1 << 40, 1 << 40}, 1},
	} {
		assert.InDelta(t, c.want, Jain(c.xs), 1e-9, "%v", c.xs)
	}
}

func TestHistogramsOfBothKindsMerge(t *testing.T) {
	t.Parallel()
	var fine Histogram
	coarse := Coarse()
	fine.Add(time.Millisecond)
	coarse.Add(3 * time.Millisecond)
	coarse.Merge(fine)
	fine.Merge(coarse)
	assert.EqualValues(t, 2, coarse.Count())
	assert.EqualValues(t, 3, fine.Count())
	assert.InEpsilon(t, 3*time.Millisecond, coarse.At(1), 0.01)
	assert.Zero(t, Coarse().Quantiles())
}
