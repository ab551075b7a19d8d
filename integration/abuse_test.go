package integration_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/redlock"
)

// The nodes are slow, so that an extension is under way nearly all the time. One
// that comes behind the release must not bring the key back, as one does that is
// sent again because the scripts are lost.
func TestAReleaseDuringAnExtensionLeavesNothing(t *testing.T) {
	t.Parallel()
	const times, callers, delay = 150, 16, time.Millisecond
	for _, opts := range [][]redlock.LockerOption{nil, {redlock.Fenced()}} {
		t.Run(fmt.Sprintf("%d options", len(opts)), func(t *testing.T) {
			r := take(t, "process")
			r.sweeps(t)
			urls := r.URLs()
			for i := range urls {
				urls[i] = slow(t, r.addr(i), delay)
			}
			locker := open(t, urls, opts...)
			draw := chance(t)(0)
			for n := range times {
				lock := acquire(t, locker, fmt.Sprint("extended ", n))
				var wg sync.WaitGroup
				for range callers {
					wg.Go(func() {
						for {
							if err := lock.Extend(context.Background()); err != nil {
								assert.ErrorIs(t, err, redlock.ErrReleased)
								return
							}
						}
					})
				}
				<-time.After(time.Duration(draw.Int64N(int64(4 * delay))))
				if opts == nil { // else it would cost a connection each time
					r.must(t, n%nodes, "SCRIPT", "FLUSH")
				}
				assert.NoError(t, lock.Release(context.Background()))
				wg.Wait()
				assert.ErrorIs(t, context.Cause(lock.Context()), redlock.ErrReleased)
			}
			connected(t, locker) // behind all that was sent before
			for i := range nodes {
				for n := range times {
					assert.EqualValues(t, 0, r.must(t, i, "EXISTS", fmt.Sprint("extended ", n)), "node %d", i)
				}
			}
		})
	}
}
