package once_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/once"
	"github.com/redquorum/redquorum/redlock"
)

// apart returns a job with Apart on a machine of its own. The machine's wall clock is off by off.
func apart(t *testing.T, w *sim.World, off time.Duration) once.Job {
	t.Helper()
	wall := sim.Wall(func() time.Time { return w.Now().Add(off) })
	l := sim.Locker(t, w.NewClient(1), redlock.TTL(ttl), redlock.MemoryGuard(true), wall)
	return once.Job{Locker: l, Name: "report", Apart: time.Hour}
}

// TestStartsAreApart: this holds even around a full hour, and even if the clocks of the machines
// differ by hours.
func TestStartsAreApart(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		jobs := []once.Job{apart(t, w, 0), apart(t, w, 5*time.Hour), apart(t, w, -5*time.Hour)}
		time.Sleep(time.Until(time.Now().Round(time.Hour).Add(90*time.Minute - time.Second)))
		for i := range 5 {
			is(t, once.Ran)(jobs[i%3].Run(t.Context(), nothing))
			for _, after := range []time.Duration{2 * time.Second, time.Hour - 3*time.Second} {
				time.Sleep(after)
				for _, j := range jobs {
					is(t, once.Done)(j.Run(t.Context(), nothing))
				}
			}
			time.Sleep(2 * time.Second)
		}
	})
}

// TestOneOfTwoHoldersStarts: if the lock fails, both machines hold it when they read the mark.
// Shared locks simulate this.
func TestOneOfTwoHoldersStarts(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		var both sync.WaitGroup
		var started atomic.Int32
		for i := range 2 {
			j := apart(t, w, time.Duration(i)*time.Minute)
			lock, err := j.Locker.Acquire(t.Context(), j.Name, redlock.Shared())
			require.NoError(t, err)
			both.Go(func() {
				if first, err := j.Claim(t.Context(), lock, w.Now().Add(time.Duration(i)*time.Minute)); err == nil && first {
					started.Add(1)
				}
			})
		}
		both.Wait()
		assert.LessOrEqual(t, started.Load(), int32(1), "the raises can split the servers among them")
	})
}

// TestWaitingStartIsNotLate: once the mark has expired, the last start is long enough ago.
func TestWaitingStartIsNotLate(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		first, second := apart(t, w, 0), apart(t, w, 0)
		first.Apart, second.Apart = time.Minute, time.Minute
		second.Options = []redlock.Option{redlock.Retries(redlock.Forever)}
		var waiter sync.WaitGroup
		is(t, once.Ran)(first.Run(t.Context(), func(ctx context.Context, _ time.Time) error {
			waiter.Go(func() { is(t, once.Ran)(second.Run(t.Context(), nothing)) })
			time.Sleep(5 * time.Minute)
			return ctx.Err()
		}))
		waiter.Wait()
	})
}

// TestApartRefusesTheMarkOfATick: that mark does not contain the time of the last start.
func TestApartRefusesTheMarkOfATick(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		j, ticks := apart(t, w, 0), apart(t, w, 0)
		ticks.Apart, ticks.Every = 0, time.Minute
		is(t, once.Ran)(ticks.Run(t.Context(), nothing))
		outcome, err := j.Run(t.Context(), nothing)
		require.ErrorContains(t, err, `once: "report" has the mark of a tick`)
		require.ErrorIs(t, err, redlock.ErrMarked)
		assert.Equal(t, once.NotRun, outcome)
		time.Sleep(5 * time.Minute)
		is(t, once.Ran)(j.Run(t.Context(), nothing))
		is(t, once.Ran)(ticks.Run(t.Context(), nothing))
	})
}
