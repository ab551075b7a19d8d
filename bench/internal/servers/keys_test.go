package servers

import (
	"fmt"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
)

var kinds = []fleet.Kind{fleet.Embedded, fleet.Process}

func TestOnlyTheBenchmarksLocksAreCountedAndOnlyTheyAreDeleted(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			f, w := start(t, kind, 2)
			foreign := []any{"invoice:42", "benchmark", "redlock:epoch", "redlock:fence:bench:1", "other:0:bench:1"}
			for i := range 2 {
				c := client(t, f, i)
				for _, key := range foreign {
					do(t, c, "SET", key, "value")
				}
				for j := range 1200 {
					do(t, c, "SET", fmt.Sprint("bench:", j), "value")
				}
			}
			n, err := w.countLocks(t.Context())
			require.NoError(t, err)
			assert.Equal(t, 2*1201, n, "a library's prefix before the name does not matter")

			require.NoError(t, w.Clean(t.Context()))
			n, err = w.countLocks(t.Context())
			require.NoError(t, err)
			assert.Equal(t, 2, n)
			for i := range 2 {
				left, err := redis.Strings(client(t, f, i).Do("KEYS", "*"))
				require.NoError(t, err)
				var want []string
				for _, key := range foreign {
					want = append(want, key.(string))
				}
				assert.ElementsMatch(t, want, left)
			}
		})
	}
}

func TestReleasesOnTheirWayAreWaitedFor(t *testing.T) {
	t.Parallel()
	f, w := start(t, fleet.Process, 1)
	do(t, client(t, f, 0), "SET", "bench:key", "value", "PX", 300)
	n, err := w.KeysLeft(t.Context())
	require.NoError(t, err)
	assert.Zero(t, n)
}

func TestLocksThatStayAreCountedInTheEnd(t *testing.T) {
	t.Parallel()
	f, w := start(t, fleet.Embedded, 2)
	do(t, client(t, f, 1), "SET", "bench:key", "value")
	n, err := w.KeysLeft(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, n)
}

func TestADeadNodesKeysAreNotKnown(t *testing.T) {
	t.Parallel()
	f, w := start(t, fleet.Embedded, 2)
	require.NoError(t, f.Kill(t.Context(), 1))
	_, err := w.KeysLeft(t.Context())
	require.ErrorContains(t, err, "node 2 (127.0.0.1:")
	require.ErrorContains(t, w.Clean(t.Context()), "node 2 (127.0.0.1:")
	require.NoError(t, f.Restart(t.Context(), 1, fleet.Kept))
	_, err = w.KeysLeft(t.Context())
	require.NoError(t, err)
}
