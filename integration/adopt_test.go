package integration_test

import (
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
