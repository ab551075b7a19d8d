package integration_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlock"
)

func TestALockIsAdoptedByItsValue(t *testing.T) {
	onEveryKind(t, func(t *testing.T, r *rig) {
		t.Cleanup(func() { r.deleteCounter(t, "fenced") }) // it outlives the lock, and what the lockers still send
		holder := r.locker(t, redlock.Owner("web-3 pid 812"), redlock.Renew(false))
		other := r.locker(t)
		for name, opts := range map[string][]redlock.Option{
			"adopted": nil, "read": {redlock.Shared()}, "limited": {redlock.Permits(3)}, "fenced": {redlock.Fenced()},
		} {
			was, err := holder.Acquire(t.Context(), name, opts...)
			require.NoError(t, err)
			lock, err := other.Adopt(t.Context(), name, was.Value(), opts...)
			require.NoError(t, err, name)
			assert.Equal(t, was.Value(), lock.Value())
			assert.Equal(t, was.Permit(), lock.Permit())
			votes(t, lock, nodes)
			require.NoError(t, lock.Extend(t.Context()), name)
			require.NoError(t, lock.Release(t.Context()), name)
			_, err = other.Adopt(t.Context(), name, was.Value(), opts...)
			require.ErrorIs(t, err, redlock.ErrLost, name)
			require.ErrorIs(t, was.Release(t.Context()), redlock.ErrLost, name)
		}
		lock, err := holder.Acquire(t.Context(), "adopted")
		require.NoError(t, err)
		_, err = other.TryAcquire(t.Context(), "adopted")
		require.ErrorIs(t, err, redlock.ErrHeld)
		assert.ErrorContains(t, err, "held by web-3 pid 812 since 20")
		_, err = other.Adopt(t.Context(), "adopted", lock.Value(), redlock.TTL(time.Hour))
		require.NoError(t, err)
		seen, err := other.Inspect(t.Context(), "adopted")
		require.NoError(t, err)
		value, left, _ := seen.Holder()
		assert.Equal(t, lock.Value(), value)
		assert.InDelta(t, time.Hour, left, float64(longTTL))
		require.NoError(t, other.ReleaseValue(t.Context(), "adopted", lock.Value()))
		require.ErrorIs(t, other.ReleaseValue(t.Context(), "adopted", lock.Value()), redlock.ErrLost)
		require.ErrorIs(t, lock.Release(t.Context()), redlock.ErrLost)
	})
}

// deleteCounter deletes a name's counter of tokens once no client is left that might write it again.
func (r *rig) deleteCounter(t *testing.T, name string) {
	t.Helper()
	poll(t, failAfter, func() error {
		return r.each(func(i int) error {
			c, err := r.connect(i)
			if err != nil {
				return err
			}
			defer c.Close()
			if err := checkClients(c, i, 0); err != nil {
				return err
			}
			_, err = c.Do("DEL", "redlock:fence:{"+name+"}")
			return err
		})
	})
}

// TestAHolderHearsOfWhatItsOwnLockerReleasesByValue, which servers do not tell a client of its own changes.
// The renewal that would notice it is seconds away.
func TestAHolderHearsOfWhatItsOwnLockerReleasesByValue(t *testing.T) {
	const soon, renewal = time.Second, longTTL / 4
	onEveryKind(t, func(t *testing.T, r *rig) {
		locker := r.locker(t, redlock.TTL(longTTL))
		r.trackNothing(t)
		lock := acquire(t, locker, "adopted")
		votes(t, lock, nodes)
		r.watched(t)
		began := time.Now()
		require.NoError(t, locker.ReleaseValue(t.Context(), "adopted", lock.Value()))
		at, cause := ended(t, lock)
		wantOnly(t, redlock.ErrLost, cause)
		t.Logf("told after %v", at.Sub(began))
		assert.Less(t, at.Sub(began), min(soon, renewal))
	})
}

// TestTheNextLifeOfAProcessAdoptsItsLock, which that had when it was killed, and keeps it for longer than its TTL.
func TestTheNextLifeOfAProcessAdoptsItsLock(t *testing.T) {
	onEveryKind(t, func(t *testing.T, r *rig) {
		const ttl = time.Second
		short := []redlock.LockerOption{redlock.TTL(ttl), redlock.NodeTimeout(ttl / 2)}
		for i := range nodes {
			r.must(t, i, "SET", "adopted", "of the first life", "PX", ttl.Milliseconds())
		}
		next, other := r.locker(t, short...), r.locker(t, short...)
		lock, err := next.Adopt(t.Context(), "adopted", "of the first life")
		require.NoError(t, err)
		waiting, cancel := context.WithTimeout(t.Context(), 2*ttl)
		defer cancel()
		_, err = other.Acquire(waiting, "adopted")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.True(t, lock.Valid())
		require.NoError(t, next.Close())
		require.NoError(t, acquire(t, other, "adopted").Release(t.Context()))
	})
}
