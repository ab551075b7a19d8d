package clock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/clock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFakeRunsAtItsRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := clock.NewFake(1.01)
		time.Sleep(100 * time.Second)
		assert.Equal(t, 101*time.Second, c.Now().Sub(0))
		c.SetRate(0.5)
		assert.Equal(t, 101*time.Second, c.Now().Sub(0), "a change of rate does not move the reading")
		time.Sleep(10 * time.Second)
		assert.Equal(t, 106*time.Second, c.Now().Sub(0))
		c.Step(time.Hour)
		assert.Equal(t, time.Hour+106*time.Second, c.Now().Sub(0))
	})
}

func TestFakeTimersFollowItsRateAndSteps(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*clock.Fake) // called 2 s after the timer was set to 10 s
		want   time.Duration     // bubble time
	}{
		"as it was":     {func(*clock.Fake) {}, 10 * time.Second},
		"twice as fast": {func(c *clock.Fake) { c.SetRate(2) }, 6 * time.Second},
		"half as fast":  {func(c *clock.Fake) { c.SetRate(0.5) }, 18 * time.Second},
		"step before":   {func(c *clock.Fake) { c.Step(5 * time.Second) }, 5 * time.Second},
		"step beyond":   {func(c *clock.Fake) { c.Step(time.Hour) }, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, start, fired := clock.NewFake(1), time.Now(), make(chan time.Duration, 10)
				c.AfterFunc(10*time.Second, func() { fired <- time.Since(start) })
				time.Sleep(2 * time.Second)
				test.change(c)
				assert.Equal(t, test.want, <-fired)
				assert.GreaterOrEqual(t, c.Now().Sub(0), 10*time.Second, "never early")
			})
		})
	}
}

func TestTimerOfAnOddRateIsNeverEarly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, rate := range []float64{0.99, 0.995, 1.003, 1.01, 1.0 / 3, 3} {
			c := clock.NewFake(rate)
			for d := time.Duration(1); d < time.Hour; d = d*7 + 3 {
				due := c.Now().Add(d)
				done := make(chan clock.Instant)
				c.AfterFunc(d, func() { done <- c.Now() })
				late := (<-done).Sub(due)
				assert.GreaterOrEqual(t, late, time.Duration(0))
				assert.LessOrEqual(t, late, 5*time.Nanosecond, "nor late by more than the rounding")
			}
		}
	})
}

// The timers of both clocks behave like time.Timer.
func TestTimersStopAndReset(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func() clock.Clock{
		"fake":   func() clock.Clock { return clock.NewFake(1) },
		"system": func() clock.Clock { return clock.System },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := open()
			called := make(chan clock.Instant, 10)
			never := c.AfterFunc(time.Hour, func() { called <- 0 })
			assert.True(t, never.Stop(), "it was pending")
			assert.False(t, never.Stop(), "it no longer is")
			assert.False(t, never.Reset(time.Hour), "nor was it")
			assert.True(t, never.Reset(time.Hour), "now it was")
			due := c.Now().Add(time.Millisecond)
			assert.True(t, never.Reset(time.Millisecond))
			assert.Zero(t, <-called)
			assert.GreaterOrEqual(t, c.Now(), due)
			assert.False(t, never.Stop(), "it has fired")
			c.AfterFunc(-time.Second, func() { called <- 1 })
			assert.EqualValues(t, 1, <-called, "what is overdue fires at once")
			assert.Empty(t, called)
		})
	}
}

func TestFakeRejectsImpossibleRatesAndSteps(t *testing.T) {
	t.Parallel()
	zero := 0.0
	for _, rate := range []float64{0, -1, 1 / zero, zero / zero} {
		assert.Panics(t, func() { clock.NewFake(rate) }, rate)
	}
	c := clock.NewFake(1)
	assert.Panics(t, func() { c.SetRate(0) })
	assert.Panics(t, func() { c.Step(-1) })
}

// TestTimerOfAVerySlowFakeDoesNotOverflow: its time is longer than any Duration.
func TestTimerOfAVerySlowFakeDoesNotOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.NewFake(1e-7)
		c.Step(time.Second)
		timer := c.AfterFunc(time.Hour, func() { t.Error("it fires") })
		time.Sleep(1000 * time.Hour)
		timer.Reset(2 * time.Hour)
		c.SetRate(1e-8)
		time.Sleep(1000 * time.Hour)
		assert.True(t, timer.Stop())
	})
}
