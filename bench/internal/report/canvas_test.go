package report

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLabelsMoveApartAsLittleAsTheyMust(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ at, want []float64 }{
		{nil, []float64{}},
		{[]float64{50}, []float64{50}},
		{[]float64{20, 80}, []float64{20, 80}},
		{[]float64{50, 50}, []float64{45, 55}},
		{[]float64{50, 48}, []float64{54, 44}},
		{[]float64{50, 50, 50}, []float64{40, 50, 60}},
		{[]float64{0, 1}, []float64{0, 10}},
		{[]float64{100, 100}, []float64{90, 100}},
		{[]float64{-40}, []float64{0}},
	} {
		assert.Equal(t, c.want, dodge(c.at, 10, 0, 100), "%v", c.at)
	}
}

func TestLabelsNeverOverlapWhereThereIsRoomForAll(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		at := make([]float64, 1+r.IntN(11))
		for i := range at {
			at[i] = 100 * r.Float64() * r.Float64()
		}
		got := dodge(at, 10, 0, 100)
		for i := range at {
			for j := range at {
				if at[i] < at[j] {
					require.Less(t, got[i], got[j], "order is kept: %v -> %v", at, got)
				}
			}
		}
		slices.Sort(got)
		require.GreaterOrEqual(t, got[0], -1e-9, "%v", at)
		require.LessOrEqual(t, got[len(got)-1], 100+1e-9, "%v", at)
		for i := 1; i < len(got); i++ {
			require.GreaterOrEqual(t, got[i]-got[i-1], 10-1e-9, "%v -> %v", at, got)
		}
	}
}

func TestTextsAreWrappedAndCutToTheirRoom(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{"redsync 4.18", "(go-redis)"}, wrap("redsync 4.18 (go-redis)", 125, 2))
	assert.Empty(t, wrap("", 100, 2))
	for _, s := range []string{strings.Repeat("word ", 50), strings.Repeat("unbroken", 30), "日本語の題名がここにあるとても長い", "short"} {
		for lines := 1; lines <= 3; lines++ {
			rows := wrap(s, 120, lines)
			require.LessOrEqual(t, len(rows), lines)
			for _, row := range rows {
				require.LessOrEqual(t, textWidth(row), 120.0, "%q", row)
			}
		}
	}
	assert.False(t, math.IsNaN(textWidth("\x00")))
}
