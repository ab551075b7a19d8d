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
	hs[70_000].Until += 20_000
	hs[70_007].From -= 5_000
	rand.Shuffle(len(hs), func(i, j int) { hs[i], hs[j] = hs[j], hs[i] })
	pairs, first := overlaps(hs)
	require.EqualValues(t, 2, pairs)
	assert.Equal(t, "callers 0 (500ms to 500.07ms) and 2 (500.07ms to 500.14ms) held it for 1ns at once", describe(first, 0))
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
