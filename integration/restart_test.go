package integration_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock"
)

func TestALockOutlivesRestartsThatKeepTheMemory(t *testing.T) {
	onContainersToo(t, func(t *testing.T, r *rig) {
		holder, other := r.locker(t, redlock.Renew(false)), r.locker(t)
		lock := acquire(t, holder, "kept")
		votes(t, lock, nodes)

		excluded := func(when string) {
			t.Helper()
			_, err := other.TryAcquire(context.Background(), "kept")
			require.Error(t, err, when)
			wantOnly(t, redlock.ErrHeld, err)
		}
		extended := func() {
			t.Helper()
			poll(t, failAfter, func() error { return lock.Extend(context.Background()) })
			require.Greater(t, lock.Remaining(), longTTL/2)
			for i := range nodes {
				assert.Equal(t, []byte(lock.Value()), r.must(t, i, "GET", "kept"), "node %d", i)
			}
		}

		r.fail(t, killed, 0, 1)
		excluded("a minority is down")
		require.NoError(t, lock.Extend(context.Background()))
		r.heal(t)
		connected(t, other)
		excluded("a minority was restarted")
		extended()

		r.fail(t, killed, 2, 3, 4)
		wantOnly(t, redlock.ErrNoQuorum, lock.Extend(context.Background()))
		require.True(t, lock.Valid(), "an outage takes no lock away before its deadline")
		r.heal(t)
		connected(t, other)
		excluded("a majority was restarted")
		connected(t, holder)
		extended()
		require.NoError(t, lock.Release(context.Background()))
	})
}

func TestARenewalThatMeetsAnOutageIsTriedAgain(t *testing.T) {
	// A third of it passes before the first renewal, and two are left to restart
	// three containers.
	const ttl = 15 * time.Second
	onEveryKind(t, func(t *testing.T, r *rig) {
		failed := watch(func(e redlock.Event) bool {
			return e.Kind == redlock.EventVote && e.Op == protocol.OpExtend && e.Outcome != protocol.Granted
		})
		renewed := watch(func(e redlock.Event) bool { return e.Kind == redlock.EventExtended })
		locker := r.locker(t, redlock.TTL(ttl), redlock.Observe(both{failed, renewed}))
		lock := acquire(t, locker, "renewed")
		r.fail(t, killed, 0, 1, 2)
		failed.await(t, 3)
		require.Zero(t, renewed.count())
		r.heal(t)
		renewed.await(t, 1)
		connected(t, locker) // or Close would leave the key of a node that is still away to expiry
		require.NoError(t, lock.Context().Err())
		require.NoError(t, lock.Release(context.Background()))
	})
}

func TestAnOperatorsScriptFlushCostsNoLock(t *testing.T) {
	onEveryKind(t, func(t *testing.T, r *rig) {
		locker := r.locker(t)
		lock := acquire(t, locker, "scripts")
		flush := func() {
			for i := range nodes {
				r.must(t, i, "SCRIPT", "FLUSH")
			}
		}
		flush()
		require.NoError(t, lock.Extend(context.Background()))
		flush()
		_, err := locker.TryAcquire(context.Background(), "scripts")
		wantOnly(t, redlock.ErrHeld, err)
		flush()
		require.NoError(t, lock.Release(context.Background()))
	})
}

// both passes events on to two observers.
type both [2]redlock.Observer

func (b both) Observe(e redlock.Event) { b[0].Observe(e); b[1].Observe(e) }
