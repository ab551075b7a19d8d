package client

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/chaos/internal/history"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

var everything = Config{Who: 3, Locks: history.Locks, Names: []string{"a", "b", "c"}, Permits: "p"}

// An invalid combination of options would look like a refused lock.
func TestDrawnDemandsAreValid(t *testing.T) {
	t.Parallel()
	nodes, err := pool.Open("redis://127.0.0.1:1")
	require.NoError(t, err)
	from, err := redlock.New(nodes, redlock.TTL(time.Second))
	require.NoError(t, err)
	defer from.Close()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for seed := range uint64(500) {
		d := everything.draw(rand.New(rand.NewPCG(seed, 0)))
		_, err := locker{from}.acquire(over, d)
		require.ErrorIs(t, err, context.Canceled, "seed %d: %+v", seed, d)
	}
}
