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
		hs = append(hs, hold{permit: uint32(i % 7), caller: uint32(i % 5), from: i * 10_000, until: i*10_000 + 70_000}) // each ends as its permit's next begins
	}
	pairs, _ := overlaps(slices.Clone(hs))
	require.Zero(t, pairs)
	hs[50_000].until++
	rand.Shuffle(len(hs), func(i, j int) { hs[i], hs[j] = hs[j], hs[i] })
	pairs, first := overlaps(hs)
	require.EqualValues(t, 1, pairs)
	assert.Equal(t, "callers 0 (500ms to 500.07ms) and 2 (500.07ms to 500.14ms) held it for 1ns at once", describe(first, 0))
}

func TestOverlapsOfAllPermitsAreCounted(t *testing.T) {
	t.Parallel()
	pairs, first := overlaps([]hold{
		{permit: 2, caller: 1, from: 50, until: 60}, {permit: 1, caller: 2, from: 70, until: 90}, {permit: 2, caller: 3, from: 52, until: 60},
		{permit: 1, caller: 4, from: 75, until: 80}, {permit: 2, caller: 5, from: 55, until: 56}, {permit: 3, caller: 6, from: 0, until: 99},
	})
	assert.EqualValues(t, 4, pairs, "three of permit 2, one of permit 1")
	assert.EqualValues(t, 1, first.First.caller)
	assert.EqualValues(t, 3, first.Later.caller)
	pairs, _ = overlaps(nil)
	assert.Zero(t, pairs)
}

func TestHoldsSurviveTheWay(t *testing.T) {
	t.Parallel()
	want := []hold{{1, 2, 3, 4}, {1<<32 - 1, 0, -1, 1<<63 - 1}}
	got, err := decodeHolds(nil, encodeHolds(want))
	require.NoError(t, err)
	assert.Equal(t, want, got)
	_, err = decodeHolds(nil, encodeHolds(want)[1:])
	assert.ErrorContains(t, err, "cut off")
}

func TestHoldsAreBounded(t *testing.T) {
	t.Parallel()
	c := alone(t, "single")
	c.rec.holds = make([]hold, mostHolds-1)
	c.rec.held(hold{caller: 1})
	c.rec.held(hold{caller: 2})
	assert.Equal(t, []hold{{caller: 1}}, c.rec.holds[mostHolds-1:])
}
