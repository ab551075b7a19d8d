package integration_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlock"
)

// compareAndDelete is the release script of the Redis documentation, which other
// libraries use word for word.
const compareAndDelete = `
if redis.call("get",KEYS[1]) == ARGV[1] then
    return redis.call("del",KEYS[1])
else
    return 0
end`

// TestAPlainClientsKeyRefusesOurs: one that knows nothing of this library, and sends no message when it
// gives up its key.
func TestAPlainClientsKeyRefusesOurs(t *testing.T) {
	onEveryKind(t, func(t *testing.T, r *rig) {
		locker := r.locker(t)
		for i := range 3 {
			require.Equal(t, "OK", r.must(t, i, "SET", "shared", "foreign", "NX", "PX", longTTL.Milliseconds()))
		}
		_, err := locker.TryAcquire(context.Background(), "shared")
		wantOnly(t, redlock.ErrHeld, err)
		var refusal *redlock.QuorumError
		require.ErrorAs(t, err, &refusal)
		assert.Positive(t, refusal.Remaining)
		assert.LessOrEqual(t, refusal.Remaining, longTTL)
		for i := range 3 {
			assert.Equal(t, []byte("foreign"), r.must(t, i, "GET", "shared"), "node %d: not ours to delete", i)
		}
		acquired := make(chan error, 1)
		var lock *redlock.Lock
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), failAfter)
			defer cancel()
			var err error
			lock, err = locker.Acquire(ctx, "shared")
			acquired <- err
		}()
		for i := range 3 {
			require.EqualValues(t, 1, r.must(t, i, "EVAL", compareAndDelete, 1, "shared", "foreign"))
		}
		require.NoError(t, <-acquired)
		require.NoError(t, lock.Release(context.Background()))
	})
}
