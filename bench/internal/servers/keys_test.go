package servers

import (
	"fmt"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
)

func TestOnlyTheBenchmarksLocksAreDeleted(t *testing.T) {
	t.Parallel()
	for _, kind := range []fleet.Kind{fleet.Embedded, fleet.Process} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			f, w := start(t, kind, 2)
			foreign := []string{"invoice:42", "benchmark", "redlock:epoch", "redlock:fence:bench:1", "other:0:bench:1"}
			for i := range 2 {
				c := client(t, f, i)
				for _, key := range foreign {
					do(t, c, "SET", key, "value")
				}
				for j := range 1200 {
					do(t, c, "SET", fmt.Sprint("bench:", j), "value")
				}
			}
			require.NoError(t, w.Clean(t.Context()))
			for i := range 2 {
				left, err := redis.Strings(client(t, f, i).Do("KEYS", "*"))
				require.NoError(t, err)
				assert.ElementsMatch(t, foreign, left)
			}
		})
	}
}

func TestADeadNodeIsNamed(t *testing.T) {
	t.Parallel()
	f, w := start(t, fleet.Embedded, 2)
	require.NoError(t, f.Kill(t.Context(), 1))
	require.ErrorContains(t, w.Clean(t.Context()), "node 2 (127.0.0.1:")
	require.NoError(t, f.Restart(t.Context(), 1, fleet.Kept))
	require.NoError(t, w.Clean(t.Context()))
}
