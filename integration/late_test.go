package integration_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlock"
)

// Three refusals decide a vote before the two late nodes have granted. Their keys
// must go all the same.
func TestAFailedAttemptLeavesNoKeyOnNodesThatGrantLate(t *testing.T) {
	const attempts, callers = 200, 4
	onEveryKind(t, func(t *testing.T, r *rig) {
		urls := r.URLs()
		for _, i := range []int{3, 4} {
			urls[i] = newRelay(t, r.addr(i), 5*time.Millisecond).url()
		}
		late := watch(func(e redlock.Event) bool {
			return e.Kind == redlock.EventVote && e.Op == redlock.OpAcquire && e.Outcome == redlock.Granted
		})
		locker := open(t, urls, redlock.Observe(late))

		name := func(n int) string { return fmt.Sprint("held ", n) }
		for i := range 3 {
			setMany(t, r, i, attempts, name)
		}
		var wg sync.WaitGroup
		for c := range callers {
			wg.Go(func() {
				for n := c; n < attempts; n += callers {
					_, err := locker.TryAcquire(context.Background(), name(n))
					if !assert.True(t, errors.Is(err, redlock.ErrHeld), "%v", err) {
						return
					}
				}
			})
		}
		wg.Wait()
		// An empty node says nothing before the last of these has run there.
		late.await(t, 2*attempts)
		took := poll(t, patience, func() error {
			return r.some([]int{3, 4}, func(i int) error {
				c, err := r.connect(i)
				if err != nil {
					return err
				}
				defer c.Close()
				return checkEmpty(c, i)
			})
		})
		t.Logf("empty after %v", took.Round(time.Millisecond))
		for i := range 3 {
			n, err := redis.Int(r.do(i, "DBSIZE"))
			require.NoError(t, err)
			require.Equal(t, attempts, n, "node %d: the holder's keys are not ours to delete", i)
			r.must(t, i, "FLUSHALL")
		}
	})
}

// setMany has a plain client hold many names on one node.
func setMany(t *testing.T, r *rig, i, n int, name func(int) string) {
	t.Helper()
	c, err := r.connect(i)
	require.NoError(t, err)
	defer c.Close()
	for k := range n {
		require.NoError(t, c.Send("SET", name(k), "foreign", "NX", "PX", longTTL.Milliseconds()))
	}
	require.NoError(t, c.Flush())
	for range n {
		_, err := redis.String(c.Receive())
		require.NoError(t, err)
	}
}
