package record

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFiguresOfATrial(t *testing.T) {
	t.Parallel()
	trial := Trial{
		Load: Load{Duration: 2 * time.Second}, Cycles: 1000,
		Nodes: []NodeCosts{
			{Commands: map[string]int64{"set": 1000, "evalsha": 1000}},
			{Commands: map[string]int64{"set": 500, "evalsha": 500}},
			{}, // did not count
		},
	}
	assert.InDelta(t, 500, trial.PerSecond(), 0)
	assert.InDelta(t, 5, trial.PerCycle(5000), 0)
	assert.InDelta(t, 1500, trial.Commands(), 1e-9)
}

// TestNothingIsNoFigure: what was not measured must not count as zero.
func TestNothingIsNoFigure(t *testing.T) {
	t.Parallel()
	var none Trial
	for _, figure := range []float64{none.PerCycle(1), none.Commands(), none.Fairness(), Trial{Callers: []int64{0, 0}}.Fairness(), none.Acquire.Quantile(1)} {
		assert.True(t, math.IsNaN(figure))
	}
	assert.Zero(t, Summary{Trials: []Trial{none}}.Acquire(0.5))
	assert.Empty(t, Run{}.Summaries())
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
		assert.InDelta(t, c.want, Trial{Callers: c.xs}.Fairness(), 1e-9, "%v", c.xs)
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
	assert.Zero(t, Coarse().At(1))
}

// trialOf has that many cycles in a second, each of which took so long to acquire.
func trialOf(subject, point string, cycles int64, took time.Duration) Trial {
	t := Trial{
		Subject: subject, Load: Load{Point: point, Duration: time.Second}, Cycles: cycles, Checked: cycles,
	}
	if took > 0 {
		t.Acquire.Add(took)
	}
	return t
}

func TestSummariesAreMediansInOrder(t *testing.T) {
	t.Parallel()
	run := Run{
		Subjects: []Subject{{Name: "ours"}, {Name: "theirs"}, {Name: "absent"}},
		Trials: []Trial{
			trialOf("theirs", "callers=64", 100, 3*time.Millisecond),
			trialOf("ours", "callers=64", 400, time.Millisecond),
			trialOf("ours", "callers=64", 600, 3*time.Millisecond),
			trialOf("ours", "callers=64", 300, 2*time.Millisecond),
			trialOf("theirs", "callers=1", 50, 0),
		},
	}
	run.Trials[2].Callers = []int64{300, 300}

	got := run.Summaries()
	require.Len(t, got, 3)
	ours, theirs, alone := got[0], got[1], got[2]
	assert.Equal(t, []string{"ours", "theirs", "theirs"}, []string{ours.Subject.Name, theirs.Subject.Name, alone.Subject.Name})
	assert.Equal(t, []string{"callers=64", "callers=64", "callers=1"}, []string{ours.Point, theirs.Point, alone.Point})
	assert.Len(t, ours.Trials, 3)
	assert.Equal(t, Spread{Median: 400, Min: 300, Max: 600}, ours.PerSecond())
	assert.InDelta(t, 1, ours.Ratio, 0)
	assert.InDelta(t, 0.25, theirs.Ratio, 0)
	assert.Zero(t, alone.Ratio, "the first subject has nothing at this point")
	assert.InEpsilon(t, 2*time.Millisecond, ours.Acquire(0.5).Median, 0.01)
	ours.Trials = append(ours.Trials, trialOf("ours", "", 700, 0))
	assert.Equal(t, Spread{Median: 500, Min: 300, Max: 700}, ours.PerSecond(), "of an even number")
	assert.EqualValues(t, 2000, ours.Sum(func(t Trial) int64 { return t.Checked }))
	assert.Equal(t, Spread{Median: 1, Min: 1, Max: 1}, ours.Over(Trial.Fairness), "of the rounds that have it")
}

func TestARoundWithoutLatencyDoesNotCountAsFast(t *testing.T) {
	t.Parallel()
	run := Run{Subjects: []Subject{{Name: "ours"}}, Trials: []Trial{trialOf("ours", "", 0, 0), trialOf("ours", "", 1, time.Second)}}
	assert.InEpsilon(t, time.Second, run.Summaries()[0].Acquire(0.99).Min, 0.01)
}
