package redlock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// extensions returns a function that tells when, counted from now, the first
// server was asked for extensions.
func extensions(w *sim.World) func() []time.Duration {
	start := time.Now()
	var mu sync.Mutex
	var at []time.Duration
	w.Watch(func(s sim.Step) {
		if s.Stage == sim.Submitted && s.Op == redlock.OpExtend && s.Node == 0 {
			mu.Lock()
			defer mu.Unlock()
			at = append(at, s.At.Sub(start))
		}
	})
	return func() []time.Duration {
		mu.Lock()
		defer mu.Unlock()
		seen := at
		at = nil
		return seen
	}
}

// TestRenewalsComeEveryThirdOfTheTTL, counted from the start of the last, and
// keep the lock for as long as one likes.
func TestRenewalsComeEveryThirdOfTheTTL(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		asked := extensions(w)
		l, _ := open(t, w, redlock.TTL(ttl))
		lock := take(t, l, "x")
		time.Sleep(time.Hour)
		require.True(t, lock.Valid())
		at := asked()
		require.Len(t, at, int(time.Hour/(ttl/3)))
		for i := range at {
			assert.Equal(t, time.Duration(i+1)*(ttl/3), at[i])
		}
		require.NoError(t, lock.Release(t.Context()))
		time.Sleep(time.Minute)
		assert.Empty(t, asked(), "a released lock is not renewed")
		assert.Zero(t, holding(w, "x"))
	})
}

// TestManyLocksAreRenewedEachInItsTime by the one scheduler.
func TestManyLocksAreRenewedEachInItsTime(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		var locks []*redlock.Lock
		for i := range 50 {
			time.Sleep(37 * time.Millisecond)
			locks = append(locks, take(t, l, fmt.Sprint("x", i), redlock.TTL(time.Duration(1+i%7)*time.Second), redlock.Renew(i%5 > 0)))
		}
		lost := 0
		for i, lock := range locks {
			if i%5 > 0 {
				continue
			}
			<-lock.Context().Done()
			lost++
		}
		time.Sleep(time.Minute)
		for i, lock := range locks {
			assert.Equal(t, i%5 > 0, lock.Valid(), "lock %d", i)
		}
		assert.Equal(t, 10, lost)
	})
}

// TestWithoutRenewalALockEndsATTLAfterItsStart, less the drift.
func TestWithoutRenewalALockEndsATTLAfterItsStart(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		asked := extensions(w)
		l, _ := open(t, w, redlock.TTL(ttl), redlock.Renew(false))
		lock := take(t, l, "x")
		assert.Equal(t, validity, took(func() { <-lock.Context().Done() }))
		isOnly(t, context.Cause(lock.Context()), redlock.ErrLost)
		assert.Empty(t, asked())
		time.Sleep(leg + 1)
		assert.Zero(t, holding(w, "x"), "the key has some milliseconds left, and is given back all the same")
	})
}

// TestMaxHoldEndsALockThatRenewsWell. It counts from the grant.
func TestMaxHoldEndsALockThatRenewsWell(t *testing.T) {
	for _, most := range []time.Duration{time.Second, ttl, 25 * time.Second, time.Hour} {
		t.Run(most.String(), func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				asked := extensions(w)
				l, _ := open(t, w, redlock.TTL(ttl), redlock.MaxHold(most))
				lock := take(t, l, "x")
				assert.Equal(t, min(most, validity), lock.Remaining())
				start := time.Now()
				time.AfterFunc(most-rtt-1, func() { assert.NoError(t, lock.Extend(t.Context())) }) // does not help
				<-lock.Context().Done()
				assert.Equal(t, most, time.Since(start))
				isOnly(t, lock.Release(t.Context()), redlock.ErrLost)
				for _, at := range asked() {
					assert.Less(t, at, most+rtt, "no renewal that could not prolong it")
				}
			})
		})
	}
}

// TestARenewalThatCameToNothingIsRepeated until it works, or the old deadline.
func TestARenewalThatCameToNothingIsRepeated(t *testing.T) {
	const retry = ttl / 16
	for name, ail := range map[string]struct {
		of     func(*sim.Server)
		answer time.Duration // from the request until the renewal has come to nothing
	}{
		"refused connections": {(*sim.Server).Crash, leg + leg}, // when the others have replied
		"no answer":           {(*sim.Server).Hang, ttl / 100},  // after the node timeout
	} {
		t.Run(name+", healed in time", func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				l, _ := open(t, w, redlock.TTL(ttl))
				lock := take(t, l, "x")
				for _, s := range w.Servers()[:3] {
					ail.of(s)
				}
				time.Sleep(9 * time.Second)
				assert.True(t, lock.Valid())
				for _, s := range w.Servers()[:3] {
					s.Resume()
					s.Restart()
				}
				time.Sleep(time.Hour)
				assert.True(t, lock.Valid(), "the next try renewed it")
			})
		})
		t.Run(name+", too long", func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				asked := extensions(w)
				l, _ := open(t, w, redlock.TTL(ttl))
				lock := take(t, l, "x")
				for _, s := range w.Servers()[1:4] {
					ail.of(s)
				}
				assert.Equal(t, validity, took(func() { <-lock.Context().Done() }))
				isOnly(t, context.Cause(lock.Context()), redlock.ErrLost)
				at := asked()
				require.Greater(t, len(at), 5)
				for i := range at {
					assert.Equal(t, ttl/3+time.Duration(i)*(ail.answer+retry), at[i], "try %d", i)
				}
			})
		})
	}
}

// TestLossIsNoticedAtTheRenewal, long before the deadline, if a majority says
// that the lock is gone.
func TestLossIsNoticedAtTheRenewal(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.TTL(ttl))
		lock := take(t, l, "x")
		for _, s := range w.Servers()[:3] {
			s.Del("x")
		}
		assert.Equal(t, ttl/3, took(func() { <-lock.Context().Done() }), "a third of a TTL from the start, and a round trip; less the one that acquired")
		cause := context.Cause(lock.Context())
		isOnly(t, cause, redlock.ErrLost)
		assert.ErrorContains(t, cause, "node1: refused")
		assert.Same(t, cause, lock.Release(t.Context()))
		isOnly(t, lock.Extend(t.Context()), redlock.ErrLost)
	})
}

// TestAMinorityThatForgotDoesNotEndTheLock.
func TestAMinorityThatForgotDoesNotEndTheLock(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.TTL(ttl))
		lock := take(t, l, "x")
		for _, s := range w.Servers()[:2] {
			s.Del("x")
		}
		time.Sleep(time.Hour)
		assert.True(t, lock.Valid())
		assert.Equal(t, 5, lock.Votes(), "and it is given back to them")
	})
}

// TestAHungRenewalHoldsUpNoOtherLock: the scheduler waits for no node.
func TestAHungRenewalHoldsUpNoOtherLock(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		start := time.Now()
		var locks []*redlock.Lock
		for i := range 20 {
			locks = append(locks, take(t, l, fmt.Sprint("x", i), redlock.TTL(ttl+time.Duration(i)*time.Second), redlock.NodeTimeout(ttl/2)))
		}
		for _, s := range w.Servers() {
			s.Hang()
		}
		for i, lock := range locks {
			<-lock.Context().Done()
			life := ttl + time.Duration(i)*time.Second
			assert.Equal(t, life-redlock.Drift(life)+time.Duration(i)*rtt, time.Since(start), "lock %d", i)
		}
	})
}
