package redquorum_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// TestQuorumP2TokensDoNotClimbWithTheClocksOfOthers: two nodes are set ahead
// again and again, and new processes, which have no clocks to compare, take a
// lock with these two and a third. Had its numbers gone along with theirs, it
// would accept lower ones once it has forgotten.
func TestQuorumP2TokensDoNotClimbWithTheClocksOfOthers(t *testing.T) {
	bubble(t, func(t *testing.T, w *sim.World) {
		w.SetNet(sim.Fixed(time.Millisecond))
		const ttl = time.Second
		newcomer := func() *redlock.Locker {
			l, _ := open(t, w, 1, redlock.TTL(ttl), redlock.Fenced(), redlock.MemoryGuard(true))
			return l
		}
		nodes := w.Servers()
		last := int64(0)
		turn := func(retries int) bool {
			k, err := newcomer().Acquire(t.Context(), "x", redlock.Retries(retries))
			if err != nil {
				return false
			}
			require.Greater(t, k.Fence(), last)
			last = k.Fence()
			require.NoError(t, k.Release(t.Context()))
			return true
		}
		require.True(t, turn(100))
		nodes[1].Crash()
		nodes[2].Crash()
		for range 6 {
			for _, n := range nodes[3:] {
				n.Step(ttl * 32 / 100)
			}
			turn(3) // in vain, once the clocks are too far apart
		}
		nodes[0].Flush()
		nodes[1].Restart()
		nodes[2].Restart()
		nodes[3].Hang()
		nodes[4].Hang()
		require.True(t, turn(100))
	})
}
