package load

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/bench/internal/record"
)

func TestSlicesAndMillisecondsAddUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rec := newRecorder(time.Now(), 1050*time.Millisecond, 100*time.Millisecond, newScrubber(nil))
		for i := range 1050 {
			at := rec.start.Add(time.Duration(i) * time.Millisecond)
			rec.acquired(at, time.Millisecond)
			if i%2 == 0 {
				rec.succeeded(0, at, time.Millisecond, 0)
			} else {
				rec.ended(at, record.Lost, nil)
			}
		}
		rec.acquired(rec.end, time.Millisecond)
		rec.succeeded(0, rec.end, time.Millisecond, 0)
		var res result
		slices := rec.close(&res, 0)
		require.Len(t, slices, 11)
		for i, s := range slices {
			n := int64(50)
			if i == 10 {
				n = 25
			}
			assert.EqualValues(t, 2*n, s.Acquire.Count())
			assert.Equal(t, map[string]int64{record.OK: n, record.Lost: n}, s.Outcomes)
		}
		assert.Len(t, res.Millis, 1050)
		assert.NotContains(t, res.Millis, uint16(0))
		assert.Equal(t, map[string]int64{record.OK: 525, record.Lost: 525, record.UnderWay: 1}, res.Trial.Outcomes)
	})
}
