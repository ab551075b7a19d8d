package sim_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// TestAPausedProcessHearsNothing and no timer of its fires; time goes on, and
// everything has its turn when it resumes.
func TestAPausedProcessHearsNothing(t *testing.T) {
	ask(t, func(t *testing.T, a *asker) {
		fired := make(chan time.Duration, 1)
		a.client.Clock().AfterFunc(time.Second, func() { fired <- time.Since(a.start) })
		before := a.client.Clock().Now()
		require.NoError(t, a.submit(redlock.OpAcquire, "a"))
		a.client.Pause()
		time.Sleep(time.Minute)
		assert.Empty(t, a.got)
		assert.Empty(t, fired)
		assert.Equal(t, time.Minute, a.client.Clock().Now().Sub(before))
		a.client.Resume()
		assert.Equal(t, redlock.Granted, (<-a.got).Outcome, "the reply was there all the time")
		assert.Equal(t, time.Minute, <-fired)
	})
}

// TestATimerOfAPausedProcessCanBeStopped as long as it did not run, as with
// a real one that is due when its process resumes.
func TestATimerOfAPausedProcessCanBeStopped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := sim.New(1, 1).NewClient(1)
		start := time.Now()
		fired := make(chan time.Duration, 10)
		fire := func() { fired <- time.Since(start) }
		stopped := c.Clock().AfterFunc(time.Second, fire)
		reset := c.Clock().AfterFunc(time.Second, fire)
		c.Pause()
		time.Sleep(time.Minute)
		assert.True(t, stopped.Stop())
		assert.False(t, stopped.Stop())
		assert.True(t, reset.Reset(time.Second))
		c.Resume()
		time.Sleep(time.Hour)
		assert.Equal(t, time.Minute+time.Second, <-fired)
		assert.Empty(t, fired)
		assert.False(t, reset.Stop())
	})
}

// TestSleepOfAProcess is by its own clock, and lasts as long as a pause.
func TestSleepOfAProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := sim.New(1, 1).NewClient(2)
		start := time.Now()
		c.Sleep(10 * time.Second)
		assert.Equal(t, 5*time.Second, time.Since(start))
		c.Pause()
		time.AfterFunc(time.Minute, c.Resume)
		c.Sleep(time.Second)
		assert.Equal(t, time.Minute+5*time.Second, time.Since(start))
	})
}

// TestFatesAreThoseOfTheSeed: they do not depend on what is asked in between,
// and differ from seed to seed.
func TestFatesAreThoseOfTheSeed(t *testing.T) {
	t.Parallel()
	fates := func(seed uint64, noise bool) (drawn []fate) {
		synctest.Test(t, func(t *testing.T) {
			w := sim.New(seed, 3)
			w.SetNet(sim.Net{Patience: time.Hour, Travel: func(l sim.Leg, r *rand.Rand) (time.Duration, bool) {
				d := time.Duration(r.Int64N(int64(time.Second)))
				if l.Key == "x" {
					drawn = append(drawn, fate{l, d})
				}
				return d, false
			}})
			c := w.NewClient(1)
			for range 10 {
				for i, node := range c.Nodes() {
					for _, key := range []string{"noise", "x"} {
						if noise || key == "x" {
							got := make(inbox, 1)
							node.Submit(&redlock.Request{Op: redlock.OpInspect, Key: key}, i, got)
							<-got
						}
					}
				}
			}
		})
		return drawn
	}
	first := fates(1, false)
	assert.Len(t, first, 60)
	assert.Equal(t, first, fates(1, true))
	assert.NotEqual(t, first, fates(2, false))
	all := map[time.Duration]bool{}
	for _, fate := range first {
		all[fate.d] = true
	}
	assert.Len(t, all, 60, "each leg has a fate of its own")
}

type fate struct {
	leg sim.Leg
	d   time.Duration
}

type inbox chan redlock.Reply

func (i inbox) Receive(_ int, r redlock.Reply) { i <- r }
