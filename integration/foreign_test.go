package integration_test

import (
	"context"
	"testing"

	"github.com/gomodule/redigo/redis"
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

// foreign is a client that knows nothing of this library.
type foreign struct{ rig *rig }

// set tries to take the name on one node.
func (f foreign) set(t *testing.T, i int, name string) (got bool) {
	t.Helper()
	v := f.rig.must(t, i, "SET", name, "foreign", "NX", "PX", longTTL.Milliseconds())
	if v == nil {
		return false
	}
	require.Equal(t, "OK", v)
	return true
}

// hold takes the name on some nodes, where it must be free, until the test ends.
func (f foreign) hold(t *testing.T, name string, which ...int) {
	t.Helper()
	for _, i := range which {
		require.True(t, f.set(t, i, name), "node %d", i)
		t.Cleanup(func() { f.free(t, i, name, "foreign") })
	}
}

// free deletes the key if it has the value.
func (f foreign) free(t *testing.T, i int, name, value string) (done bool) {
	t.Helper()
	n, err := redis.Int(f.rig.do(i, "EVAL", compareAndDelete, 1, name, value))
	require.NoError(t, err)
	return n == 1
}

func TestAPlainClientsKeyRefusesOurs(t *testing.T) {
	onEveryKind(t, func(t *testing.T, r *rig) {
		theirs := foreign{r}
		locker := r.locker(t)
		theirs.hold(t, "shared", 0, 1, 2)

		_, err := locker.TryAcquire(context.Background(), "shared")
		wantOnly(t, redlock.ErrHeld, err)
		left := remaining(t, err)
		assert.Positive(t, left)
		assert.LessOrEqual(t, left, longTTL)
		for i := range 3 {
			assert.Equal(t, []byte("foreign"), r.must(t, i, "GET", "shared"), "node %d: not ours to delete", i)
		}

		// A plain client sends no message when it gives up its key.
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
			require.True(t, theirs.free(t, i, "shared", "foreign"))
		}
		require.NoError(t, <-acquired)
		require.NoError(t, lock.Release(context.Background()))
	})
}
