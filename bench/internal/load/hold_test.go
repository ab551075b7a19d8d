package load

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOnePlantedOverlapIsFound(t *testing.T) {
	t.Parallel()
	var hs []hold
	for i := range int64(100_000) {
		hs = append(hs, hold{Permit: uint32(i % 7), Caller: uint32(i % 5), From: i * 10_000, Until: i*10_000 + 70_000}) // each ends as its permit's next begins
	}
	pairs, _ := overlaps(slices.Clone(hs))
	require.Zero(t, pairs)
	hs[50_000].Until++
	rand.Shuffle(len(hs), func(i, j int) { hs[i], hs[j] = hs[j], hs[i] })
	pairs, first := overlaps(hs)
	require.EqualValues(t, 1, pairs)
	assert.Equal(t, "callers 0 (500ms to 500.07ms) and 2 (500.07ms to 500.14ms) held it for 1ns at once", describe(first, 0))
}

func TestOverlapsOfAllPermitsAreCounted(t *testing.T) {
	t.Parallel()
	pairs, first := overlaps([]hold{
		{Permit: 2, Caller: 1, From: 50, Until: 60}, {Permit: 1, Caller: 2, From: 70, Until: 90}, {Permit: 2, Caller: 3, From: 52, Until: 60},
		{Permit: 1, Caller: 4, From: 75, Until: 80}, {Permit: 2, Caller: 5, From: 55, Until: 56}, {Permit: 3, Caller: 6, From: 0, Until: 99},
	})
	assert.EqualValues(t, 4, pairs, "three of permit 2, one of permit 1")
	assert.EqualValues(t, 1, first.First.Caller)
	assert.EqualValues(t, 3, first.Later.Caller)
	pairs, _ = overlaps(nil)
	assert.Zero(t, pairs)
}

func TestHoldsSurviveTheWay(t *testing.T) {
	t.Parallel()
	want := []hold{{1, 2, 3, 4}, {1<<32 - 1, 0, -1, 1<<63 - 1}}
	got, err := decodeHolds(encodeHolds(want))
	require.NoError(t, err)
	assert.Equal(t, want, got)
	_, err = decodeHolds(encodeHolds(want)[1:])
	assert.ErrorContains(t, err, "cut off")
}
