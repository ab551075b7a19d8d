package load

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/bench/internal/record"
)

func TestNamesAreChecked(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"own", "single", "new", "uniform:1", "zipf:1000", "zipf:1000000"} {
		assert.NoError(t, CheckNames(good))
	}
	for _, bad := range []string{"", "Own", "own:3", "single:1", "new:9", "uniform", "uniform:", "uniform:0", "zipf:-1", "zipf:1e3", "zipf:1000001", "other:3"} {
		assert.ErrorContains(t, CheckNames(bad), "zipf:1000", bad)
	}
}

func TestNoTwoCallersHaveTheSameOwnName(t *testing.T) {
	t.Parallel()
	job := Job{}
	job.Load.Processes = 3
	seen := map[string]bool{}
	for p := range 3 {
		mine := job.share(8, p)
		ns, err := newNames("fake", record.Load{Names: "own", Seed: 1}, mine)
		require.NoError(t, err)
		for c := mine.first; c < mine.end; c++ {
			seen[ns.all[ns.picker(c)()]] = true
		}
		assert.False(t, ns.shared())
	}
	assert.Len(t, seen, 8)
	assert.Contains(t, seen, "bench:fake:0")
	assert.Contains(t, seen, "bench:fake:7")
}

// TestNewNamesWereNeverUsed by another caller, process or trial.
func TestNewNamesWereNeverUsed(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, length := range []int{0, 64, 65} {
		for p := range 2 {
			ns, err := newNames("fake", record.Load{Names: "new", Length: length}, part{4 * p, 4 * (p + 1)})
			require.NoError(t, err)
			assert.False(t, ns.shared())
			for c := range 4 {
				for pick, n := ns.picker(4*p+c), 0; n < 100; n++ {
					name := ns.name(pick())
					require.False(t, seen[name], name)
					seen[name] = true
					require.True(t, length == 0 || len(name) == length, name)
				}
			}
		}
	}
	_, err := newNames("fake", record.Load{Names: "new", Length: leastNewLength - 1}, part{0, 1})
	assert.ErrorContains(t, err, "64 at least")
}

func TestNamesAreFilledUpToTheirLength(t *testing.T) {
	t.Parallel()
	for _, length := range []int{16, 17, 1024} {
		require.NoError(t, CheckLength(length))
		for _, spec := range []string{"own", "single", "uniform:1000000"} {
			ns, err := newNames("a-subject-with-a-long-name", record.Load{Names: spec, Length: length}, part{0, 1024})
			require.NoError(t, err)
			seen := map[string]bool{}
			for _, name := range ns.all {
				require.Len(t, name, length)
				require.False(t, seen[name], name)
				seen[name] = true
			}
		}
	}
	assert.ErrorContains(t, CheckLength(15), "16 to 65536")
	assert.ErrorContains(t, CheckLength(1<<16+1), "16 to 65536")
}

func TestPicksFollowTheirDistribution(t *testing.T) {
	t.Parallel()
	const picks = 100_000
	for spec, first := range map[string][2]float64{
		"single": {1, 1}, "uniform:1000": {0.0005, 0.0015}, "zipf:1000": {0.15, 0.2},
	} {
		ns, err := newNames("fake", record.Load{Names: spec, Seed: 7}, part{0, 1})
		require.NoError(t, err)
		pick, again, other := ns.picker(3), ns.picker(3), ns.picker(4)
		counts, differ := make([]int, len(ns.all)), 0
		for range picks {
			i := pick()
			counts[i]++
			require.Equal(t, i, again(), "the same seed and caller")
			if i != other() {
				differ++
			}
		}
		share := float64(counts[0]) / picks
		assert.True(t, first[0] <= share && share <= first[1], "%s: the first name's share is %v", spec, share)
		assert.Equal(t, spec != "single", differ > picks/2, "callers pick for themselves")
		assert.True(t, ns.shared())
	}
}
