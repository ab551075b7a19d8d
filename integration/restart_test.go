package integration_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

func TestAnOperatorsScriptFlushCostsNoLock(t *testing.T) {
	onEveryKind(t, func(t *testing.T, r *rig) {
		r.sweeps(t)
		locker := r.locker(t)
		var tokens ledger
		flush := func() {
			for i := range nodes {
				r.must(t, i, "SCRIPT", "FLUSH")
			}
		}
		for _, opts := range [][]redlock.Option{nil, {redlock.Fenced()}, {redlock.Fenced()}} {
			flush()
			lock, err := acquireLate(locker, "scripts", opts...)
			require.NoError(t, err)
			if opts != nil {
				require.NoError(t, tokens.enter(lock.Fence()))
			}
			flush()
			require.NoError(t, lock.Extend(context.Background()))
			flush()
			_, err = locker.TryAcquire(context.Background(), "scripts", opts...)
			wantOnly(t, redlock.ErrHeld, err)
			flush()
			require.NoError(t, lock.Release(context.Background()))
			connected(t, locker)
		}
	})
}
