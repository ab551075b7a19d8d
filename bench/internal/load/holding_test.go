package load

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// slowly is overlaps by looking at all pairs.
func slowly(hs []holding) (pairs int64) {
	for i, a := range hs {
		for _, b := range hs[:i] {
			if a.name == b.name && max(a.from, b.from) < min(a.to, b.to) {
				pairs++
			}
		}
	}
	return pairs
}

func TestOverlapsAreThoseOfAllPairs(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 0))
		hs := make([]holding, random.IntN(40))
		for i := range hs {
			from := random.Int64N(100)
			hs[i] = holding{name: random.Uint32N(3), from: from, to: from + random.Int64N(12) - 2}
		}
		want := slowly(hs)
		got, first := overlaps(slices.Clone(hs))
		require.Equal(t, want, got, "seed %d", seed)
		if got > 0 {
			require.EqualValues(t, 1, slowly(first[:]), "seed %d", seed)
		}
	}
}

func TestOnePlantedOverlapIsFound(t *testing.T) {
	t.Parallel()
	var hs []holding
	for i := range int64(100_000) {
		hs = append(hs, holding{name: uint32(i % 7), caller: uint32(i % 5), from: i * 10_000, to: i*10_000 + 70_000}) // each ends as its name's next begins
	}
	pairs, _ := overlaps(slices.Clone(hs))
	require.Zero(t, pairs)
	hs[50_000].to++
	rand.Shuffle(len(hs), func(i, j int) { hs[i], hs[j] = hs[j], hs[i] })
	pairs, first := overlaps(hs)
	require.EqualValues(t, 1, pairs)
	assert.Equal(t, "bench:fake:6 was held by callers 0 (500ms to 500.07ms) and 2 (500.07ms to 500.14ms) for 1ns at once", describe("fake", first, 0))
}

func TestHoldingsSurviveTheWay(t *testing.T) {
	t.Parallel()
	want := []holding{{1, 2, 3, 4}, {1<<32 - 1, 0, -1, 1<<63 - 1}}
	got, err := decodeHoldings(nil, encodeHoldings(want))
	require.NoError(t, err)
	assert.Equal(t, want, got)
	_, err = decodeHoldings(nil, encodeHoldings(want)[1:])
	assert.ErrorContains(t, err, "cut off")
}

func TestHoldingsAreBounded(t *testing.T) {
	t.Parallel()
	c := alone(t, "single")
	c.rec.checked = mostHoldings - 1
	c.rec.held(holding{caller: 1})
	c.rec.held(holding{caller: 2})
	assert.Equal(t, []holding{{caller: 1}}, c.rec.holdings)
}

func TestMomentsSurviveTheClock(t *testing.T) {
	t.Parallel()
	c := newClock()
	assert.Equal(t, c.base, c.moment(c.nanos(c.base)))
	assert.EqualValues(t, 5, c.nanos(c.base.Add(5))-c.nanos(c.base))
	assert.InDelta(t, c.base.UnixNano(), c.nanos(c.base), 1e7)
}
