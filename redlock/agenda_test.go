package redlock_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// TestAShortLockIsNotKeptWaitingByALongOne: the one timer of all locks is for
// whichever is due first, also if that comes last.
func TestAShortLockIsNotKeptWaitingByALongOne(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		long := take(t, l, "long", redlock.TTL(time.Hour))
		short := take(t, l, "short", redlock.TTL(ttl), redlock.Renew(false))
		left := short.Remaining()
		assert.Equal(t, left, took(func() { <-short.Context().Done() }))
		assert.ErrorIs(t, context.Cause(short.Context()), redlock.ErrLost)
		assert.True(t, long.Valid())
	})
}

// TestALockAfterReleasedOnesStillEnds: the timer that was stopped with the last
// of them is set again.
func TestALockAfterReleasedOnesStillEnds(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		for range 3 {
			lock := take(t, l, "x", redlock.TTL(time.Hour), redlock.Renew(false))
			assert.NoError(t, lock.Release(t.Context()))
		}
		kept := take(t, l, "y", redlock.TTL(time.Hour), redlock.Renew(false))
		left := kept.Remaining()
		assert.Equal(t, left, took(func() { <-kept.Context().Done() }))
	})
}

// TestContextsEndBeforeAnyNodeIsAsked: of locks that are due at the same moment all
// contexts have ended when the first of them is released, because a release takes
// as long as many contexts.
func TestContextsEndBeforeAnyNodeIsAsked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var alive atomic.Int64
		atFirst := make(chan int64, 1)
		_, l := puppets(t, 1, func(_ int, op protocol.Op, nth int) answer {
			if op == protocol.OpRelease && nth == 1 {
				atFirst <- alive.Load()
			}
			return grants
		}, redlock.TTL(ttl), redlock.Renew(false))
		for i := range 100 {
			alive.Add(1)
			lock := take(t, l, fmt.Sprint("x", i))
			lock.BeforeItsContextEnds(func(bool) {
				synctest.Wait() // each goroutine that can ask a node does
				alive.Add(-1)
			})
		}
		assert.Zero(t, <-atFirst)
		for alive.Load() > 0 {
			time.Sleep(leg) // a Close would wait for these ends, and they for it
		}
	})
}

// TestRenewalsAreSpread: locks that were taken together are not renewed all at once but in
// steps, so that renewals travel together, and none later than at a third of the TTL.
func TestRenewalsAreSpread(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		asked := extensions(w)
		l, _ := open(t, w, redlock.TTL(ttl))
		for i := range 100 {
			go l.TryAcquire(t.Context(), fmt.Sprint("x", i))
		}
		time.Sleep(ttl / 3)
		moments := map[time.Duration]bool{}
		var quarters [4]int
		for _, at := range asked() {
			require.Greater(t, at, ttl/4)
			require.LessOrEqual(t, at, ttl/3)
			moments[at] = true
			quarters[(at-ttl/4-1)*4/(ttl/12)]++
		}
		assert.Greater(t, len(moments), 25)
		assert.LessOrEqual(t, len(moments), int(ttl/12/(20*time.Millisecond))+2)
		for _, n := range quarters {
			assert.Greater(t, n, 5, "%v", quarters)
		}
	})
}

// TestARenewalWaitsForNoLooks at other locks, which are spread over time.
func TestARenewalWaitsForNoLooks(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		asked := extensions(w)
		l, _ := open(t, w, redlock.TTL(ttl), unspread)
		take(t, l, "renewed")
		time.Sleep(ttl/3 - watchedAfter - 25*time.Millisecond)
		for i := range 4000 { // whose looks take 60 ms
			go l.TryAcquire(t.Context(), fmt.Sprint("x", i), redlock.Renew(false))
		}
		time.Sleep(watchedAfter + 100*time.Millisecond)
		at := asked()
		require.Len(t, at, 1)
		assert.InDelta(t, ttl/3, at[0], float64(time.Millisecond), "but for the break that is under way")
	})
}

// watchedAfter is how long after it was taken a lock is looked at first.
const watchedAfter = 50 * time.Millisecond
