package load

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/bench/internal/record"
)

func TestNoTwoCallersHaveTheSameOwnName(t *testing.T) {
	t.Parallel()
	job := Job{Subject: "fake", Load: record.Load{Names: "own", Processes: 3}}
	seen := map[string]bool{}
	for job.Process = range 3 {
		for _, name := range job.names(job.share(8)) {
			seen[name] = true
		}
	}
	assert.Len(t, seen, 8)
	assert.Contains(t, seen, "bench:fake:0")
	assert.Contains(t, seen, "bench:fake:7")
}

func TestNamesAreFilledUpToTheirLength(t *testing.T) {
	t.Parallel()
	for _, length := range []int{16, 17, 1024} {
		job := Job{Subject: "a-subject-with-a-long-name", Load: record.Load{Names: "own", Length: length}}
		seen := map[string]bool{}
		for _, name := range job.names(part{0, 1024}) {
			require.Len(t, name, length)
			require.False(t, seen[name], name)
			seen[name] = true
		}
		job.Load.Names = "single"
		assert.Equal(t, job.names(part{0, 1}), job.names(part{7, 8}))
	}
}
