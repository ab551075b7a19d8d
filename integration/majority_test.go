package integration_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

func TestADownMajorityIsAnOutageThatNamesItsNodes(t *testing.T) {
	const (
		wait  = 2 * time.Second
		stall = 3 * time.Second // so that the first try meets silence, and the second broken connections
	)
	onEveryKind(t, func(t *testing.T, r *rig) {
		onEveryFault(t, r, func(t *testing.T, f fault) {
			down := []int{0, 2, 3}
			locker := newLocker(t, members(t, r.URLs(), down, pool.StallTimeout(stall)), redlock.NodeTimeout(wait))
			connected(t, locker)
			r.fail(t, f, down...)

			// The context allows for more than the node timeout, and must not be used up.
			ctx, cancel := context.WithTimeout(context.Background(), longTTL)
			defer cancel()
			for _, ask := range []struct {
				how string
				do  func(context.Context, string, ...redlock.Option) (*redlock.Lock, error)
			}{
				{"TryAcquire", locker.TryAcquire},
				{"Acquire", locker.Acquire},
			} {
				began := time.Now()
				_, err := ask.do(ctx, "outage")
				elapsed := time.Since(began)
				wantOnly(t, redlock.ErrNoQuorum, err)
				assert.ElementsMatch(t, r.addrs(down), culprits(t, err), "%s: %v", ask.how, err)
				assert.Less(t, elapsed, wait+5*slack, ask.how)
				t.Logf("%s after %v: %v", ask.how, elapsed.Round(time.Millisecond), err)
			}

			healed := time.Now()
			r.heal(t)
			ctx, cancel = context.WithTimeout(context.Background(), patience)
			defer cancel()
			lock, err := locker.Acquire(ctx, "outage", patient...)
			require.NoError(t, err)
			t.Logf("acquired %v after the healing began", time.Since(healed).Round(time.Millisecond))
			require.NoError(t, lock.Release(context.Background()))
			connected(t, locker)
			r.settle(t, 1)
		})
	})
}
