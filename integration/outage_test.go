package integration_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

func TestDeadMinorityCostsNoTime(t *testing.T) {
	onContainersToo(t, func(t *testing.T, r *rig) {
		onEveryFault(t, r, func(t *testing.T, r *rig, f fault) {
			faults := watch(func(e redlock.Event) bool {
				return e.Kind == redlock.EventVote && e.Op == protocol.OpAcquire && e.Outcome != protocol.Granted
			})
			// The first Locker never abandons a silent node, so a caller that waits for the node
			// waits for the whole node timeout. The second Locker abandons it soon.
			steady := r.locker(t)
			quick := newLocker(t, members(t, r.URLs(), []int{1, 2}, pool.StallTimeout(200*time.Millisecond)), redlock.Observe(faults))
			connected(t, quick)
			healthy := p99(cycles(t, steady, "healthy"))
			for down := 1; down <= 2; down++ {
				measure := func(locker *redlock.Locker, when string) {
					t.Helper()
					d := p99(cycles(t, locker, fmt.Sprintf("%s, %d %s", when, down, f.name)))
					for again := 0; d >= nodeTimeout/2 && again < 3; again++ { // the machine may have been paused twice
						d = p99(cycles(t, locker, fmt.Sprintf("%s, %d %s", when, down, f.name)))
					}
					// This is half of the time for one wait in a hundred cycles. The slowdown
					// compared with healthy nodes is the subject of bench.
					require.Less(t, d, nodeTimeout/2, "p99 %s with %d of %d nodes %s", when, down, nodes, f.name)
					t.Logf("%d %s, %s: p99 %v, %.1f times that of healthy nodes (%v)",
						down, f.name, when, d, float64(d)/float64(healthy), healthy)
				}
				before := faults.count()
				r.fail(t, f, down)
				measure(steady, "at once")
				measure(quick, "on the way")
				faults.await(t, before+1)
				measure(quick, "after it was noticed")
			}
			// The nodes now run the requests that were still pending when their locks were
			// released.
			r.heal(t)
			connected(t, steady)
			connected(t, quick)
			r.settle(t, 2)
		})
	})
}

// cycles makes four callers acquire and release locks, 200 in all, and returns the time of each.
func cycles(t *testing.T, locker *redlock.Locker, name string) []time.Duration {
	t.Helper()
	took := make([]time.Duration, 200)
	share(4, len(took), func(i int) {
		began := time.Now()
		lock, err := locker.Acquire(context.Background(), fmt.Sprintf("%s, caller %d", name, i%4))
		if assert.NoError(t, err) && assert.NoError(t, lock.Release(context.Background())) {
			took[i] = time.Since(began)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	return took
}

func p99(of []time.Duration) time.Duration {
	slices.Sort(of)
	return of[len(of)*99/100]
}
