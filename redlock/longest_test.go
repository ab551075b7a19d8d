package redlock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// TestTheQuarantineIsThatOfTheLongestLock of any client, also of one that came
// by option of a single acquisition.
func TestTheQuarantineIsThatOfTheLongestLock(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		ls := settled(t, w, 2)
		const long = 10 * ttl
		time.Sleep(long) // else such a lock could have been forgotten already
		k := take(t, ls[0], "x", redlock.TTL(long), redlock.Renew(false))
		time.Sleep(rtt)
		assert.Equal(t, 5, k.Votes(), "the votes that wait for the longer record count")
		second := take(t, ls[1], "y")
		require.NoError(t, second.Release(t.Context()))
		forget(w.Servers()...)
		other, err := ls[1].Acquire(t.Context(), "x")
		require.NoError(t, err)
		assert.False(t, k.Valid(), "the client with the short TTL knows of the long one")
		assert.NoError(t, other.Release(t.Context()))
	})
}

// TestServersThatRememberTellOfLongerLocks, by their refusals: the client that
// comes after the loss of the others need not know of such locks before.
func TestServersThatRememberTellOfLongerLocks(t *testing.T) {
	for _, used := range []bool{true, false} {
		t.Run(fmt.Sprint("client used before: ", used), func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				long := settled(t, w, 1, redlock.TTL(6*ttl), redlock.Fenced(), redlock.Wall(func() time.Time { return time.Now().Add(ttl) }))[0]
				short, _ := guarded(t, w, redlock.Fenced())
				if used {
					require.NoError(t, take(t, short, "x").Release(t.Context()))
				}
				k := take(t, long, "x", redlock.Renew(false))
				time.Sleep(rtt)
				forget(w.Servers()[:3]...)
				other, err := short.Acquire(t.Context(), "x")
				require.NoError(t, err)
				assert.False(t, k.Valid())
				assert.Greater(t, other.Fence(), k.Fence())
				assert.NoError(t, other.Release(t.Context()))
			})
		})
	}
}

// TestALongerLockAfterAQuarantineBeginsTheRestOfIt: it was too short for what
// the node may have forgotten.
func TestALongerLockAfterAQuarantineBeginsTheRestOfIt(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		ls := settled(t, w, 2, redlock.TTL(10*ttl))
		k := take(t, ls[0], "x", redlock.Renew(false))
		forget(w.Servers()...)
		fresh, _ := guarded(t, w) // knows of no longer lock
		_, err := fresh.TryAcquire(t.Context(), "y")
		require.ErrorIs(t, err, redlock.ErrQuarantine)
		time.Sleep(ttl + time.Second)
		other, err := ls[1].Acquire(t.Context(), "x")
		require.NoError(t, err)
		assert.False(t, k.Valid())
		assert.NoError(t, other.Release(t.Context()))
	})
}

// TestAQuarantineIsNeverCutShort by a client that knows of shorter locks only
// and finds the record gone, but not the quarantine.
func TestAQuarantineIsNeverCutShort(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		ls := settled(t, w, 2, redlock.TTL(10*ttl))
		k := take(t, ls[0], "x", redlock.Renew(false))
		forget(w.Servers()...)
		ls[1].TryAcquire(t.Context(), "y")
		for _, s := range w.Servers() {
			s.Del("redlock:epoch")
		}
		short, _ := guarded(t, w)
		other, err := short.Acquire(t.Context(), "x")
		require.NoError(t, err)
		assert.False(t, k.Valid())
		assert.NoError(t, other.Release(t.Context()))
	})
}

// TestMaxTTLIsWhatAQuarantineLasts for clients that use shorter locks; a
// longer one is refused.
func TestMaxTTLIsWhatAQuarantineLasts(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		long := settled(t, w, 1, redlock.TTL(10*ttl))[0]
		k := take(t, long, "x", redlock.Renew(false))
		forget(w.Servers()...) // all of them: nobody is left to tell
		short, _ := guarded(t, w, redlock.MaxTTL(10*ttl))
		other, err := short.Acquire(t.Context(), "x")
		require.NoError(t, err)
		assert.False(t, k.Valid())
		assert.NoError(t, other.Release(t.Context()))
		_, err = short.TryAcquire(t.Context(), "x", redlock.TTL(11*ttl))
		assert.ErrorContains(t, err, "option TTL(1m50s): is above the MaxTTL, 1m40s")
	})
}

// TestARecordRaisedInBetweenCostsNoVote: two clients come with longer locks at
// once, and the one finds the record that the other has just written, and not
// that which stood behind its vote.
func TestARecordRaisedInBetweenCostsNoVote(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		ls := settled(t, w, 2)
		time.Sleep(10 * ttl) // so that a longer record begins no quarantine
		done := make(chan error, 1)
		go func() {
			_, err := ls[0].TryAcquire(t.Context(), "x", redlock.TTL(3*ttl))
			done <- err
		}()
		time.Sleep(leg)
		_, err := ls[1].TryAcquire(t.Context(), "y", redlock.TTL(2*ttl))
		require.NoError(t, err)
		require.NoError(t, <-done)
	})
}

// TestAWishForALongLockPutsNobodyInQuarantine: nobody has forgotten it yet.
func TestAWishForALongLockPutsNobodyInQuarantine(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		ls := settled(t, w, 2)
		const year = 365 * 24 * time.Hour
		k := take(t, ls[0], "x", redlock.TTL(year), redlock.Renew(false))
		other := take(t, ls[1], "y")
		require.NoError(t, other.Release(t.Context()))
		time.Sleep(rtt)
		forget(w.Servers()[:3]...)
		_, err := ls[1].TryAcquire(t.Context(), "x")
		require.ErrorIs(t, err, redlock.ErrQuarantine)
		time.Sleep(ttl + time.Second)
		_, err = ls[1].TryAcquire(t.Context(), "x")
		require.ErrorIs(t, err, redlock.ErrQuarantine, "but once it was granted, it may have been forgotten")
		assert.True(t, k.Valid())
	})
}

// TestALongerLockDuringAQuarantineExtendsIt.
func TestALongerLockDuringAQuarantineExtendsIt(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		a, _ := guarded(t, w)
		b, _ := guarded(t, w, redlock.TTL(3*ttl))
		start := time.Now()
		a.TryAcquire(t.Context(), "x")
		b.TryAcquire(t.Context(), "x")
		_, err := a.Acquire(t.Context(), "x")
		require.NoError(t, err)
		assert.GreaterOrEqual(t, time.Since(start), 3*ttl, "b's locks may have been forgotten as well")
	})
}
