package redlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// earliestWarning is the longest remaining time at which a healthy lock causes no warning.
const earliestWarning = ttl*2/3 - ttl/100 - 2*time.Millisecond - nodeTimeout

// warnings receives the remaining times of locks at their warnings.
type warnings chan time.Duration

// warned returns an option, and the warnings that it sends.
func warned(d time.Duration) (redlock.Option, warnings) {
	left := make(warnings, 100)
	return redlock.WarnBefore(d, func(k *redlock.Lock) {
		select {
		case left <- k.Remaining():
		default: // far too many warnings
		}
	}), left
}

// next returns the next warning, or a negative time if none arrives within a minute.
func (w warnings) next() time.Duration {
	select {
	case left := <-w:
		return left
	case <-time.After(time.Minute):
		return -1
	}
}

// TestWarningPrecedesTheEnd: a lock of any kind warns once each time that its end is near. It never
// warns while its renewals succeed, even if they take the whole node timeout.
func TestWarningPrecedesTheEnd(t *testing.T) {
	slow := sim.Fixed(nodeTimeout/2 - 1)
	for name, acquire := range map[string]func(t *testing.T, l *redlock.Locker, warn redlock.Option) (*redlock.Lock, error){
		"exclusive": func(t *testing.T, l *redlock.Locker, warn redlock.Option) (*redlock.Lock, error) {
			return l.Acquire(t.Context(), "x", warn)
		},
		"reader": func(t *testing.T, l *redlock.Locker, warn redlock.Option) (*redlock.Lock, error) {
			take(t, l, "x", redlock.Shared())
			return l.Acquire(t.Context(), "x", redlock.Shared(), warn)
		},
		"permits": func(t *testing.T, l *redlock.Locker, warn redlock.Option) (*redlock.Lock, error) {
			return l.Acquire(t.Context(), "x", redlock.Permits(5), redlock.Weight(3), warn)
		},
		"set": func(t *testing.T, l *redlock.Locker, warn redlock.Option) (*redlock.Lock, error) {
			return l.AcquireAll(t.Context(), []string{"x", "y", "z"}, warn)
		},
	} {
		for _, d := range []time.Duration{time.Second, ttl / 2, earliestWarning} {
			simulateCase(t, name+", "+d.String(), 3, func(t *testing.T, w *sim.World) {
				l, _ := open(t, w, unspread)
				warn, left := warned(d)
				k, err := acquire(t, l, warn)
				require.NoError(t, err)
				for range 2 {
					w.SetNet(slow)
					time.Sleep(10 * time.Minute)
					w.SetNet(sim.Fixed(leg))
					require.Empty(t, left, "it is well")

					onAll(w, (*sim.Server).Hang)
					require.Equal(t, d, left.next())
					time.Sleep(d / 2)
					onAll(w, (*sim.Server).Resume)
				}
				time.Sleep(time.Minute)
				onAll(w, (*sim.Server).Hang)
				require.Equal(t, d, left.next())
				<-k.Context().Done()
				time.Sleep(10 * time.Minute)
				require.Empty(t, left, "told already")
			})
		}
	}
}

// TestLockWithoutRenewalCausesAWarning: a lock that reaches its MaxHold causes a warning, too.
func TestLockWithoutRenewalCausesAWarning(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		warn, left := warned(time.Second)
		k := take(t, l, "x", redlock.Renew(false), warn)
		assert.Equal(t, validity-time.Second, took(func() { assert.Equal(t, time.Second, left.next()) }))
		require.NoError(t, k.Extend(t.Context()))
		assert.Equal(t, validity-time.Second, took(func() { assert.Equal(t, time.Second, left.next()) }))
		require.NoError(t, k.Extend(t.Context()))
		require.NoError(t, k.Release(t.Context()))

		take(t, l, "y", redlock.MaxHold(time.Minute), warn)
		assert.Equal(t, time.Minute-time.Second, took(func() { assert.Equal(t, time.Second, left.next()) }))
		time.Sleep(time.Minute)
		assert.Empty(t, left, "of a lock that is released or lost")
	})
}

// TestEarlyWarningIsRefused: a healthy lock would cause such a warning.
func TestEarlyWarningIsRefused(t *testing.T) {
	simulate(t, 9, func(t *testing.T, w *sim.World) {
		const text = "WarnBefore(6.064666667s): must be at most 6.064666666s with a TTL of 10s and a node timeout of 500ms"
		early, _ := warned(earliestWarning + 1)
		_, err := redlock.New(w.NewClient(1).Nodes(), early)
		assert.ErrorContains(t, err, text)
		l, _ := open(t, w)
		assert.ErrorContains(t, l.Check(early), text)
		assert.NoError(t, l.Check(early, redlock.TTL(time.Minute)))
		assert.ErrorContains(t, l.Check(early, redlock.NodeTimeout(9*time.Second)), "must be at most 0s")
		assert.Equal(t, earliestWarning, l.MostWarning())
		assert.Zero(t, l.MostWarning(redlock.NodeTimeout(9*time.Second)))
		assert.Zero(t, l.MostWarning(redlock.TTL(-1)), "which is refused")
		assert.NoError(t, l.Check(early, redlock.WarnBefore(0, nil)))
		assert.ErrorContains(t, l.Check(redlock.WarnBefore(-1, nil)), "must not be negative")
		assert.ErrorContains(t, l.Check(redlock.WarnBefore(1, nil)), "the function is nil")
	})
}
