package integration_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/redlock"
)

// With five votes again the lock survives two forgetful nodes, which it would not
// with the three that it began with.
func TestALockIsGivenBackToNodesThatWereAwayOrForgot(t *testing.T) {
	onEveryKind(t, func(t *testing.T, r *rig) {
		ttl := map[fleet.Kind]time.Duration{fleet.Process: 3 * time.Second, fleet.Docker: 6 * time.Second}[r.Kind()]
		r.sweeps(t)
		extended := watch(func(e redlock.Event) bool { return e.Kind == redlock.EventExtended })
		holder := r.locker(t, guarding(ttl, redlock.Observe(extended))...)
		other := r.locker(t, guarding(ttl)...)
		trusted(t, holder)
		trusted(t, other)

		r.fail(t, killed, 3, 4)
		lock, err := acquireLate(holder, "repaired")
		require.NoError(t, err)
		require.Equal(t, 3, lock.Votes())
		r.heal(t)
		votes(t, lock, nodes)

		for _, a := range []struct {
			how   amnesia
			which []int
		}{{restarted, []int{0, 1}}, {flushed, []int{2, 3}}, {evicted, []int{4, 0}}} {
			r.forget(t, a.how, "repaired", a.which...)
			for _, i := range a.which {
				poll(t, failAfter, func() error {
					if r.must(t, i, "EXISTS", "repaired") == int64(0) {
						return fmt.Errorf("node %d was not given the lock again (%v)", i, context.Cause(lock.Context()))
					}
					return nil
				})
			}
			extended.await(t, extended.count()+1) // the votes of the extension before are still those of before
			votes(t, lock, nodes)
			_, err := other.TryAcquire(context.Background(), "repaired")
			wantOnly(t, redlock.ErrHeld, err)
		}
		// It is not given away either when the quarantines are over.
		for seen := extended.count(); extended.count() < seen+4; {
			_, err := other.TryAcquire(context.Background(), "repaired")
			require.Error(t, err)
			require.True(t, lock.Valid())
			extended.await(t, min(seen+4, extended.count()+1))
		}
		for i := range nodes {
			poll(t, failAfter, func() error { // a node that was slow for a TTL has yet to be given it again
				if value := r.must(t, i, "GET", "repaired"); !assert.ObjectsAreEqual([]byte(lock.Value()), value) {
					return fmt.Errorf("node %d: the value is %q, not the lock's", i, value)
				}
				return nil
			})
		}
		require.NoError(t, lock.Release(context.Background()))
	})
}
