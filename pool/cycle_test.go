package pool_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/testenv"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// newCycle returns a function that acquires and releases a lock on five redis-server processes.
// Embedded nodes would allocate in this process.
func newCycle(tb testing.TB) (cycle func()) {
	testenv.NeedRedis(tb)
	f, err := fleet.Start(tb.Context(), fleet.Process, fleet.Options{Nodes: 5, Volatile: true})
	tr.NoError(tb, err)
	tb.Cleanup(func() { f.Close() })
	nodes, err := pool.OpenWith(f.URLs(), patient...)
	tr.NoError(tb, err)
	// A busy machine must not look like an outage.
	locker, err := redlock.New(nodes, redlock.MemoryGuard(false), redlock.TTL(time.Hour), redlock.NodeTimeout(time.Minute))
	tr.NoError(tb, err)
	tb.Cleanup(func() { locker.Close() })
	ctx := context.Background()
	return func() {
		lock, err := locker.Acquire(ctx, "bench")
		if err == nil {
			err = lock.Release(ctx)
		}
		tr.NoError(tb, err)
	}
}

func BenchmarkAcquireRelease(b *testing.B) {
	cycle := newCycle(b)
	b.ReportAllocs()
	for b.Loop() {
		cycle()
	}
}

func TestCycleOverFiveNodesAllocatesLittle(t *testing.T) {
	if testenv.Race() {
		t.Skip("under the race detector a sync.Pool drops some of what it is given, at random")
	}
	cycle := newCycle(t)
	cycle() // connects, and fills the pools
	fewest := math.Inf(1)
	for range 10 { // the fewest counts, because the process may allocate for other work
		fewest = min(fewest, testing.AllocsPerRun(100, cycle))
	}
	assert.LessOrEqual(t, fewest, 16.0) // small, short-lived objects; the process also sometimes asks for competitors
}
