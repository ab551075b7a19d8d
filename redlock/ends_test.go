package redlock_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// TestEachLockHasOneEnd: those that were acquired are released or lost once, an
// heir's too, whose hold counts from when it was handed over.
func TestEachLockHasOneEnd(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		seen := &recorder{}
		l, _ := open(t, w, redlock.Observe(seen), redlock.TTL(ttl))
		lock := take(t, l, "x")
		time.Sleep(rtt)
		got := waits(t.Context(), t, l)
		require.NoError(t, lock.Release(t.Context()))
		heir := <-got
		require.Equal(t, lock.Value(), heir.Value(), "it was handed over")
		time.Sleep(time.Second)
		require.NoError(t, heir.Release(t.Context()))
		count := map[redlock.EventKind]int{}
		var holds []time.Duration
		for _, e := range seen.take() {
			count[e.Kind]++
			if e.Kind == redlock.EventReleased {
				holds = append(holds, e.Elapsed)
			}
		}
		assert.Equal(t, 2, count[redlock.EventAcquired])
		assert.Zero(t, count[redlock.EventLost])
		assert.Equal(t, []time.Duration{2 * rtt, time.Second + rtt}, holds, "the release of the heir takes a round trip")
	})
}

// A leap is a clock that leaps ahead behind one of its readings.
type leap struct {
	clock.Clock
	by, after atomic.Int64
}

func (l *leap) Now() clock.Instant {
	now := l.Clock.Now().Add(time.Duration(l.by.Load()))
	l.by.Add(l.after.Swap(0))
	return now
}

// TestWhatNobodyHadIsNotLost: an heir that finds its inheritance expired has not
// lost a lock, and goes on to acquire it.
func TestWhatNobodyHadIsNotLost(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		seen := &recorder{}
		c := w.NewClient(1)
		sleepy := &leap{Clock: c.Clock()}
		l, err := redlock.New(c.Nodes(), redlock.Clock(sleepy), redlock.MemoryGuard(false), redlock.Renew(false), redlock.Observe(seen))
		require.NoError(t, err)
		defer l.Close()
		lock := take(t, l, "x")
		time.Sleep(rtt)
		got := waits(t.Context(), t, l)
		sleepy.after.Store(int64(2 * ttl)) // behind the reading of Release, before the heir's
		require.NoError(t, lock.Release(t.Context()))
		heir := <-got
		assert.NotEqual(t, lock.Value(), heir.Value())
		assert.True(t, heir.Valid())
		assert.Empty(t, seen.take(redlock.EventLost))
	})
}
