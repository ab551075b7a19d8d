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
		holder := r.locker(t, redlock.Owner("web-3 pid 812"), redlock.Renew(false))
		other := r.locker(t)
		lock, err := holder.Acquire(t.Context(), "adopted")
		require.NoError(t, err)
		_, err = other.TryAcquire(t.Context(), "adopted")
		require.ErrorIs(t, err, redlock.ErrHeld)
		assert.ErrorContains(t, err, "held by web-3 pid 812 since 20")
		require.NoError(t, other.ExtendValue(t.Context(), "adopted", lock.Value(), redlock.TTL(time.Hour)))
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
