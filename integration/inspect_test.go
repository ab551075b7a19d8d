package integration_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

func TestInspectTellsTheHolder(t *testing.T) {
	onEveryKind(t, func(t *testing.T, r *rig) {
		holder, other := r.locker(t), r.locker(t)
		in, err := other.Inspect(context.Background(), "seen")
		require.NoError(t, err)
		_, _, ok := in.Holder()
		require.False(t, ok, "nobody holds it")

		lock := acquire(t, holder, "seen")
		votes(t, lock, nodes)
		in, err = other.Inspect(context.Background(), "seen")
		require.NoError(t, err)
		value, left, ok := in.Holder()
		require.True(t, ok)
		assert.Equal(t, lock.Value(), value)
		assert.Positive(t, left)
		assert.LessOrEqual(t, left, longTTL)
		for i, n := range in.Nodes {
			assert.Equal(t, r.addr(i), n.Node)
			assert.NoError(t, n.Err)
			assert.False(t, n.Stuck)
			assert.Equal(t, lock.Value(), n.Value)
			assert.GreaterOrEqual(t, n.TTL, longTTL/2)
			assert.LessOrEqual(t, n.TTL, longTTL)
		}
		require.NoError(t, lock.Release(context.Background()))
	})
}

func TestAKeyWithoutTTLIsSaidToBeStuck(t *testing.T) {
	onEveryKind(t, func(t *testing.T, r *rig) {
		locker := r.locker(t)
		for i := range 3 {
			r.must(t, i, "SET", "stuck", "by hand")
		}
		in, err := locker.Inspect(context.Background(), "stuck")
		require.NoError(t, err)
		for i, n := range in.Nodes {
			assert.Equal(t, i < 3, n.Stuck, "node %d", i)
		}
		value, left, ok := in.Holder()
		assert.True(t, ok)
		assert.Equal(t, "by hand", value)
		assert.Equal(t, protocol.NoTTL, left)

		_, err = locker.TryAcquire(context.Background(), "stuck")
		wantOnly(t, redlock.ErrHeld, err)
		assert.Equal(t, protocol.NoTTL, remaining(t, err))
		assert.ErrorContains(t, err, "without TTL")
		for i := range 3 {
			r.must(t, i, "DEL", "stuck")
		}
	})
}

// SET NX cannot tell such a key from a lock; waiting for it would be in vain.
func TestAKeyOfAnotherTypeIsAFaultThatIsNamed(t *testing.T) {
	onEveryKind(t, func(t *testing.T, r *rig) {
		locker := r.locker(t)
		r.must(t, 0, "RPUSH", "list", "entry")
		lock := acquire(t, locker, "list") // by the votes of the others
		votes(t, lock, 4)
		require.NoError(t, lock.Release(context.Background()))

		for i := 1; i < 3; i++ {
			r.gone(t, i, "list") // a quorum confirmed the release, perhaps without this node
			r.must(t, i, "RPUSH", "list", "entry")
		}
		wrong := r.addrs([]int{0, 1, 2})
		_, err := locker.TryAcquire(context.Background(), "list")
		wantOnly(t, redlock.ErrNoQuorum, err)
		assert.ErrorIs(t, err, pool.ErrWrongType)
		assert.ElementsMatch(t, wrong, blamed(t, err))
		in, err := locker.Inspect(context.Background(), "list")
		wantOnly(t, redlock.ErrNoQuorum, err)
		assert.ElementsMatch(t, wrong, blamed(t, err))
		for i, n := range in.Nodes {
			if i < 3 {
				assert.ErrorIs(t, n.Err, pool.ErrWrongType, "node %d", i)
				assert.ErrorContains(t, n.Err, r.addr(i))
			} else {
				assert.NoError(t, n.Err, "node %d", i)
			}
		}
		for i := range 3 {
			assert.EqualValues(t, 1, r.must(t, i, "LLEN", "list"), "node %d: not ours to delete", i)
			r.must(t, i, "DEL", "list")
		}
	})
}
