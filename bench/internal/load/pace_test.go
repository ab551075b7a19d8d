package load

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/bench/internal/record"
)

func TestOpenLoopBeginsBySchedule(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		for p, want := range [][]int{{0, 200, 400, 600, 800}, {100, 300, 500, 700, 900}} {
			o := newPace(start.Add(time.Duration(p)*time.Minute), record.Load{Duration: time.Second, Rate: 10, Processes: 2}, p)
			o.wait = virtually
			var got []int
			for {
				from, ok := o.next(t.Context())
				if !ok {
					break
				}
				assert.Equal(t, time.Now(), from)
				got = append(got, int(from.Sub(start.Add(time.Duration(p)*time.Minute)).Milliseconds()))
			}
			assert.Equal(t, want, got)
			assert.Zero(t, o.notBegun())
		}
	})
}

func TestOpenLoopForgivesTheTimerButNotTheMachine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for late, forgiven := range map[time.Duration]bool{lateness: true, lateness + 1: false} {
			start := time.Now().Add(time.Second)
			o := newPace(start, record.Load{Duration: time.Second, Rate: 1, Processes: 1}, 0)
			o.wait = func(ctx context.Context, until time.Time) { virtually(ctx, until.Add(late)) }
			from, ok := o.next(t.Context())
			require.True(t, ok)
			assert.Equal(t, forgiven, from.Equal(start.Add(late)))
			assert.Equal(t, !forgiven, from.Equal(start))
		}
	})
}
