package sim_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/sim"
)

// TestPlayFinishesEachEvent: all effects of an event, through any number of goroutines, end
// before the next event, even at the same time. The bubble's time stands still.
func TestPlayFinishesEachEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := sim.New(1, 1)
		began := time.Now()
		start := w.Now()
		var order []int
		require.NoError(t, w.Play(time.Hour, func() {
			c := w.NewClient(1)
			for i := range 20 {
				c.Clock().AfterFunc(time.Minute, func() {
					link := make(chan struct{})
					close(link)
					for range 10 {
						last, next := link, make(chan struct{})
						go func() { <-last; close(next) }()
						link = next
					}
					<-link
					order = append(order, i)
				})
			}
			w.Sleep(time.Minute)
		}))
		assert.Equal(t, time.Minute, w.Now().Sub(start))
		assert.Equal(t, began, time.Now())
		require.Len(t, order, 20)
		assert.IsIncreasing(t, order)
	})
}

// TestPlayReportsAnEndlessScript: all goroutines wait, or some never stop.
func TestPlayReportsAnEndlessScript(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]func(w *sim.World, over <-chan struct{}){
		"all goroutines wait": func(w *sim.World, over <-chan struct{}) {
			w.Sleep(time.Second)
			<-over
		},
		"the script does not end": func(w *sim.World, over <-chan struct{}) {
			clock := w.NewClient(1).Clock()
			var again func()
			again = func() { clock.AfterFunc(time.Second, again) }
			again()
			<-over
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := sim.New(1, 1)
				over := make(chan struct{})
				assert.ErrorContains(t, w.Play(time.Minute, func() { script(w, over) }), name)
				assert.LessOrEqual(t, time.Until(w.Now()), time.Minute+time.Second)
				close(over)
			})
		})
	}
}

// TestTimersAreNeverEarly: by their own clock, at any rate, timers are neither early nor a
// nanosecond later than necessary.
func TestTimersAreNeverEarly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := sim.New(1, 1)
		dice := w.Rand("rates")
		require.NoError(t, w.Play(1<<62, func() {
			for range 1000 {
				c := w.NewClient(0.5 + dice.Float64())
				clock := c.Clock()
				d := time.Duration(1 + dice.Int64N(int64(time.Hour)))
				before := clock.Now()
				c.Sleep(d)
				passed := clock.Now().Sub(before)
				assert.GreaterOrEqual(t, passed, d)
				assert.LessOrEqual(t, passed, d+2)
			}
		}))
	})
}
