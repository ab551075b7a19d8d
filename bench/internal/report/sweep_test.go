package report

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/bench/internal/record"
)

func TestPointsOfASweepAreOrderedByTheirNumbers(t *testing.T) {
	t.Parallel()
	of := func(points ...string) (names []string, values [][]float64) {
		var run record.Run
		for _, p := range points {
			run.Trials = append(run.Trials, record.Trial{Load: record.Load{Point: p}})
		}
		for _, d := range look(run).dimensions() {
			names, values = append(names, d.name), append(values, d.values)
		}
		return names, values
	}
	names, values := of("nodes=5", "callers=64", "callers=1", "nodes=3", "length=16", "length=1024")
	assert.Equal(t, []string{"nodes", "callers", "bytes of a name"}, names, "in the run's order")
	assert.Equal(t, [][]float64{{3, 5}, {1, 64}, {16, 1024}}, values)

	names, _ = of("own", "single", "callers=many", "callers=NaN", "callers=+Inf", "rate=2", "callers=0")
	assert.Empty(t, names, "no two numbers of one thing")
}

// A line that went on would claim what was never measured.
func TestALineEndsWhereNothingWasAcquired(t *testing.T) {
	t.Parallel()
	run := fixtures["sweep"]()
	d := look(run).drawings()[0]
	assert.Contains(t, d.caption, "A cross")
	assert.Contains(t, d.body.String(), "nothing was acquired</title>")
	assert.NotContains(t, d.body.String(), "redsync 4.18 (redigo), callers=256")
	assert.Contains(t, d.body.String(), "redsync 4.18 (redigo), callers=64")

	run.Trials = run.Trials[:len(cast)*3] // one point is no sweep
	for _, d := range look(run).drawings() {
		require.NotEqual(t, "scale", d.name)
	}
}

// Each panel with a scale of its own would make every bend look alike.
func TestTheDimensionsOfASweepShareTheirScales(t *testing.T) {
	t.Parallel()
	v := look(fixtures["scale"]())
	_, texts := lay(t, v.drawings()[0].file("", ""))
	n := map[string]int{}
	for _, text := range texts {
		n[text.text]++
	}
	for _, label := range []string{"100", "10 k", "100 µs", "10 ms"} { // one caller is far from all others
		assert.Equal(t, 4, n[label], "once a dimension: %s of %v", label, n)
	}
	for _, name := range []string{"nodes", "callers (log.)", "client processes (log.)", "bytes of a name (log.)"} {
		assert.Equal(t, 2, n[name], "%s: a panel for each metric", name)
	}
}

// The rounds of a subject that acquired nothing in one of them must be on the scale, too.
func TestAScaleHoldsRoundsWithoutAnyToo(t *testing.T) {
	t.Parallel()
	of := func(spreads ...record.Spread) extent {
		var sums []record.Summary
		for _, s := range spreads {
			sums = append(sums, record.Summary{PerSecond: s})
		}
		return extentOf(sums, metrics[0])
	}
	assert.Equal(t, extent{2, 90}, of(record.Spread{Min: 2, Median: 5, Max: 7}, record.Spread{Median: 50, Max: 90}))
	assert.Equal(t, extent{1, 90}, of(record.Spread{Median: 1, Max: 90}, record.Spread{}))
}
