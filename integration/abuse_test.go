package integration_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlock"
)

func TestASecondReleaseIsToldAndHarmsNobody(t *testing.T) {
	const callers = 8
	onEveryKind(t, func(t *testing.T, r *rig) {
		locker, other := r.locker(t), r.locker(t)
		lock := acquire(t, locker, "released")
		errs := make([]error, callers)
		share(callers, callers, func(n int) { errs[n] = lock.Release(context.Background()) })
		done := 0
		for _, err := range errs {
			if err == nil {
				done++
				continue
			}
			wantOnly(t, redlock.ErrReleased, err)
		}
		assert.Equal(t, 1, done)

		for i := range nodes { // a quorum has confirmed it, and other's connections may be ahead of the rest
			r.gone(t, i, "released")
		}
		next := acquire(t, other, "released")
		votes(t, next, nodes)
		wantOnly(t, redlock.ErrReleased, lock.Release(context.Background()))
		wantOnly(t, redlock.ErrReleased, lock.Extend(context.Background()))
		assert.Zero(t, lock.Votes())
		assert.True(t, lock.Until().IsZero())
		for i := range nodes {
			assert.Equal(t, []byte(next.Value()), r.must(t, i, "GET", "released"), "node %d", i)
		}
		require.NoError(t, next.Release(context.Background()))
	})
}

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
				urls[i] = newNetwork(t, r.addr(i), delay).url()
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

func TestALostLockCannotBeExtendedNorTakenBack(t *testing.T) {
	const ttl = 400 * time.Millisecond
	onEveryKind(t, func(t *testing.T, r *rig) {
		fixed := []redlock.LockerOption{redlock.TTL(ttl), redlock.NodeTimeout(ttl / 2), redlock.Renew(false)}
		locker, other := r.locker(t, fixed...), r.locker(t)
		lock, err := acquireLate(locker, "lost")
		require.NoError(t, err)
		_, cause := ended(t, lock)
		wantLost(t, lock, cause)
		for i := range nodes {
			r.gone(t, i, "lost")
		}
		wantOnly(t, redlock.ErrLost, lock.Extend(context.Background()))
		for i := range nodes {
			assert.EqualValues(t, 0, r.must(t, i, "EXISTS", "lost"), "node %d", i)
		}

		next := acquire(t, other, "lost")
		votes(t, next, nodes)
		wantLost(t, lock, cause)
		for i := range nodes {
			assert.Equal(t, []byte(next.Value()), r.must(t, i, "GET", "lost"), "node %d", i)
		}
		require.NoError(t, next.Release(context.Background()))
	})
}

func TestAContextThatHasEndedAsksNothingButReleases(t *testing.T) {
	past, stop := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	t.Cleanup(stop)
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	onEveryKind(t, func(t *testing.T, r *rig) {
		for ctx, want := range map[context.Context]error{past: context.DeadlineExceeded, cancelled: context.Canceled} {
			asked := watch(func(e redlock.Event) bool { return e.Kind == redlock.EventVote && e.Name == "ended" })
			locker := r.locker(t, redlock.Observe(asked))
			for range 3 {
				_, err := locker.Acquire(ctx, "ended")
				wantOnly(t, want, err)
				_, err = locker.TryAcquire(ctx, "ended")
				wantOnly(t, want, err)
				_, err = locker.Acquire(ctx, "ended", untiring...)
				wantOnly(t, want, err)
				err = locker.Do(ctx, "ended", func(context.Context) error { return errors.New("must not be called") })
				wantOnly(t, want, err)
			}
			connected(t, locker)
			assert.Zero(t, asked.count())

			lock := acquire(t, locker, "ended")
			votes(t, lock, nodes)
			if err := lock.Extend(ctx); err != nil {
				wantOnly(t, want, err)
			}
			assert.True(t, lock.Valid(), "whose context is another")
			require.NoError(t, lock.Context().Err())
			if err := lock.Release(ctx); err != nil {
				wantOnly(t, want, err)
			}
			for i := range nodes {
				r.gone(t, i, "ended")
			}
		}
	})
}
