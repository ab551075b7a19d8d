package integration_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlock"
)

// wantLost checks what a lock says of itself after its loss.
func wantLost(t *testing.T, lock *redlock.Lock, cause error) {
	t.Helper()
	wantOnly(t, redlock.ErrLost, cause)
	assert.False(t, lock.Valid())
	assert.Zero(t, lock.Remaining())
	wantOnly(t, redlock.ErrLost, lock.Extend(context.Background()))
	wantOnly(t, redlock.ErrLost, lock.Release(context.Background()))
}

// No node answers, not even with a broken connection, so that only the holder's
// own clock can tell it.
func TestLossIsToldByTheDeadlineThoughNodesHang(t *testing.T) {
	const ttl = 4 * time.Second
	onEveryKind(t, func(t *testing.T, r *rig) {
		locker := r.locker(t, redlock.TTL(ttl), redlock.NodeTimeout(ttl/2))
		fixed := acquire(t, locker, "fixed", redlock.Renew(false))
		renewing := acquire(t, locker, "renewing")
		votes(t, fixed, nodes)
		votes(t, renewing, nodes)
		r.fail(t, paused, 0, 1, 2)
		now := time.Now()
		left := fixed.Remaining()
		require.Positive(t, left, "the machine was too slow to pause three nodes within the TTL")

		at, cause := ended(t, fixed)
		wantLost(t, fixed, cause)
		assert.WithinRange(t, at, now.Add(left-10*time.Millisecond), now.Add(left+slack))

		// The last renewal that can have been answered began before the pause.
		at, cause = ended(t, renewing)
		wantLost(t, renewing, cause)
		assert.WithinRange(t, at, now, now.Add(ttl+slack))
		r.heal(t)
	})
}

func TestAnOperatorsDelIsToldAtTheNextRenewal(t *testing.T) {
	const ttl = 9 * time.Second // renewed after 3, and its deadline is three times that
	onEveryKind(t, func(t *testing.T, r *rig) {
		locker := r.locker(t, redlock.TTL(ttl))
		began := time.Now()
		lock := acquire(t, locker, "deleted")
		votes(t, lock, nodes)
		for i := range 3 {
			require.EqualValues(t, 1, r.must(t, i, "DEL", "deleted"))
		}
		at, cause := ended(t, lock)
		wantLost(t, lock, cause)
		assert.WithinRange(t, at, began.Add(ttl/3-10*time.Millisecond), began.Add(ttl*2/3))
		assert.ElementsMatch(t, r.addrs([]int{0, 1, 2}), culprits(t, cause), "%v", cause)
	})
}
