package load

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/bench/internal/endpoint"
	"github.com/redquorum/redquorum/bench/internal/record"
)

func TestSlicesAndMillisecondsAddUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rec := newRecorder(time.Now(), record.Load{Duration: 1050 * time.Millisecond}, endpoint.NewScrubber(nil))
		for i := range 1050 {
			at := rec.start.Add(time.Duration(i) * time.Millisecond)
			rec.acquired(at, time.Millisecond)
			var err error
			if i%2 == 1 {
				err = io.EOF
			}
			rec.ended(0, at, err)
		}
		rec.acquired(rec.end, time.Millisecond)
		rec.ended(0, rec.end, nil)
		got := rec.close(metered{}, 0).Trial
		require.Len(t, got.Slices, 11)
		for i, h := range got.Slices {
			assert.EqualValues(t, map[bool]int{true: 50, false: 100}[i == 10], h.Count())
		}
		assert.Len(t, got.Millis, 1050)
		assert.NotContains(t, got.Millis, uint16(0))
		assert.Equal(t, map[string]int64{record.OK: 525, record.Failed: 525, record.UnderWay: 1}, got.Outcomes)
	})
}
