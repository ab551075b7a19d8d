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

// TestAHolderHearsOfWhatItsOwnLockerDoesByValue, which servers do not tell a client of its own changes.
// The renewal that would notice it is seconds away.
func TestAHolderHearsOfWhatItsOwnLockerDoesByValue(t *testing.T) {
	const soon, renewal = time.Second, longTTL / 4
	onEveryKind(t, func(t *testing.T, r *rig) {
		locker := r.locker(t, redlock.TTL(longTTL), redlock.MaxTTL(2*longTTL))
		for name, change := range map[string]func(value string){
			"released": func(value string) { require.NoError(t, locker.ReleaseValue(t.Context(), "adopted", value)) },
			"extended, and deleted": func(value string) {
				require.NoError(t, locker.ExtendValue(t.Context(), "adopted", value, redlock.TTL(2*longTTL)))
				for i := range nodes {
					r.must(t, i, "DEL", "adopted")
				}
			},
		} {
			r.trackNothing(t)
			lock := acquire(t, locker, "adopted")
			votes(t, lock, nodes)
			r.watched(t)
			began := time.Now()
			change(lock.Value())
			at, cause := ended(t, lock)
			wantOnly(t, redlock.ErrLost, cause)
			t.Logf("%s: told after %v", name, at.Sub(began))
			assert.Less(t, at.Sub(began), min(soon, renewal), name)
		}
	})
}
