package load

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/bench/internal/record"
)

func TestNamesAreChecked(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"own", "single"} {
		assert.NoError(t, CheckNames(good))
	}
	for _, bad := range []string{"", "Own", "own:3", "single:1", "new", "zipf:3"} {
		assert.ErrorContains(t, CheckNames(bad), "one for all", bad)
	}
}

func TestNoTwoCallersHaveTheSameOwnName(t *testing.T) {
	t.Parallel()
	job := Job{}
	job.Load.Processes = 3
	seen := map[string]bool{}
	for p := range 3 {
		job.Process = p
		mine := job.share(8)
		ns := newNames("fake", record.Load{Names: "own"}, mine)
		for c := mine.first; c < mine.end; c++ {
			seen[ns.of(c)] = true
		}
		assert.False(t, ns.shared)
	}
	assert.Len(t, seen, 8)
	assert.Contains(t, seen, "bench:fake:0")
	assert.Contains(t, seen, "bench:fake:7")
}

func TestNamesAreFilledUpToTheirLength(t *testing.T) {
	t.Parallel()
	for _, length := range []int{16, 17, 1024} {
		require.NoError(t, CheckLength(length))
		for _, spec := range []string{"own", "single"} {
			ns := newNames("a-subject-with-a-long-name", record.Load{Names: spec, Length: length}, part{0, 1024})
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
