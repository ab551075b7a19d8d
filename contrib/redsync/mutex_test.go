package redsync_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/contrib/redsync"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// The tests of this file cover the intended differences from redsync, on simulated servers.

const (
	rtt  = sim.RTT
	name = "invoice:42"
)

// simulate runs test in virtual time.
func simulate(t *testing.T, test func(t *testing.T, w *sim.World)) {
	t.Helper()
	sim.Simulate(t, 5, test)
}

// open returns the mutexes of a new process.
func open(t *testing.T, w *sim.World) (*redsync.Redsync, *redlock.Locker) {
	t.Helper()
	l := sim.Locker(t, w.NewClient(1))
	return redsync.New(l), l
}

// TestLockWaitsNoLongerThanItsTriesAndDelays: Lock then reports the nodes that refused.
func TestLockWaitsNoLongerThanItsTriesAndDelays(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		rs, l := open(t, w)
		sim.Take(t, l, name)
		for _, delay := range []time.Duration{time.Millisecond, time.Second} {
			var tries []int
			m := rs.NewMutex(name, redsync.WithTries(5), redsync.WithRetryDelayFunc(func(n int) time.Duration {
				tries = append(tries, n)
				return delay
			}))
			took := sim.Took(func() {
				var taken *redsync.ErrTaken
				err := m.Lock()
				require.ErrorAs(t, err, &taken)
				require.ErrorIs(t, err, redlock.ErrHeld)
				assert.GreaterOrEqual(t, len(taken.Nodes), 3)
			})
			assert.Equal(t, []int{1, 2, 3, 4}, tries)
			assert.InDelta(t, (4 * delay).Seconds(), took.Seconds(), (10 * rtt).Seconds())
		}
		require.ErrorIs(t, rs.NewMutex(name, redsync.WithTries(0)).Lock(), redsync.ErrFailed)
	})
}

// TestTryTakesAsLongAsAnAttempt: this holds even if this process holds the lock. Otherwise all
// tries would be used before the holder unlocks.
func TestTryTakesAsLongAsAnAttempt(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		rs, l := open(t, w)
		held := sim.Take(t, l, name)
		time.AfterFunc(10*rtt, func() { held.Release(t.Context()) })
		m := rs.NewMutex(name, redsync.WithRetryDelay(0))
		require.NoError(t, m.Lock())
		succeeds(t)(m.Unlock())
	})
}

// TestClosedLockerEndsTheDelay: Lock is waiting between two tries.
func TestClosedLockerEndsTheDelay(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		rs, l := open(t, w)
		sim.Take(t, l, name)
		time.AfterFunc(time.Second, func() { l.Close() })
		took := sim.Took(func() {
			require.ErrorIs(t, rs.NewMutex(name, redsync.WithRetryDelay(5*time.Second)).Lock(), redlock.ErrClosed)
		})
		assert.Equal(t, time.Second, took)
	})
}

// TestOutagesAreTriedAgain: the number of tries is the same as in contention, but the error is
// different.
func TestOutagesAreTriedAgain(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		rs, _ := open(t, w)
		m := rs.NewMutex(name, redsync.WithTries(3), redsync.WithRetryDelay(time.Second))
		for _, s := range w.Servers()[:3] {
			s.Hang()
		}
		err := m.Lock()
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		assert.NotErrorIs(t, err, redsync.ErrFailed)
		nodes := map[int]bool{}
		for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
			if fault, ok := e.(*redsync.RedisError); ok {
				nodes[fault.Node] = true
			}
		}
		assert.Equal(t, map[int]bool{0: true, 1: true, 2: true}, nodes)

		time.AfterFunc(2*time.Second, func() {
			for _, s := range w.Servers() {
				s.Resume()
			}
		})
		require.NoError(t, m.Lock())
		succeeds(t)(m.Unlock())
		time.Sleep(rtt)
		assert.Zero(t, sim.Holding(w, name), "nothing is left behind")
	})
}

// TestContextEndsTheWait: the wait leaves nothing on the servers.
func TestContextEndsTheWait(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		_, l := open(t, w)
		held := sim.Take(t, l, name)
		rs, _ := open(t, w)
		m := rs.NewMutex(name, redsync.WithRetryDelay(time.Minute))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		took := sim.Took(func() {
			err := m.LockContext(ctx)
			require.ErrorIs(t, err, redsync.ErrFailed)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		})
		assert.Equal(t, 20*time.Second, took)
		require.NoError(t, held.Release(t.Context()))
		require.ErrorIs(t, m.TryLockContext(ctx), redsync.ErrFailed)
		time.Sleep(time.Second)
		assert.Zero(t, sim.Holding(w, name))
		assert.Empty(t, m.Value())
	})
}

func TestUnlockReleasesAfterTheContextHasEnded(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		rs, _ := open(t, w)
		m := rs.NewMutex(name)
		require.NoError(t, m.Lock())
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		ok, err := m.UnlockContext(ctx)
		require.ErrorIs(t, err, context.Canceled)
		assert.NotErrorIs(t, err, redsync.ErrLockAlreadyExpired)
		assert.False(t, ok, "it is not confirmed yet")
		time.Sleep(rtt)
		assert.Zero(t, sim.Holding(w, name))
	})
}

// TestLossIsReported: as soon as the loss is known, Held, Until, Valid and all later calls report
// it.
func TestLossIsReported(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		rs, _ := open(t, w)
		m := rs.NewMutex(name)
		assert.Nil(t, m.Held())
		require.NoError(t, m.Lock())
		time.Sleep(time.Second)
		assert.True(t, time.Now().Before(m.Until()))
		for _, s := range w.Servers() {
			s.Del(name)
		}
		<-m.Held().Context().Done()
		require.ErrorIs(t, context.Cause(m.Held().Context()), redlock.ErrLost)
		assert.True(t, m.Until().IsZero())
		fails(t, redlock.ErrLost)(m.Valid())
		fails(t, redsync.ErrExtendFailed, redlock.ErrLost)(m.Extend())
		fails(t, redsync.ErrLockAlreadyExpired, redlock.ErrLost)(m.Unlock())
		assert.Zero(t, sim.Holding(w, name))
	})
}

// TestMutexIsNotRenewed: programs rely on the expiry of redsync.
func TestMutexIsNotRenewed(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		first, _ := open(t, w)
		second, _ := open(t, w)
		m := first.NewMutex(name)
		require.NoError(t, m.Lock())
		time.Sleep(5 * time.Second)
		succeeds(t)(m.Extend())
		extended := time.Now()
		other := second.NewMutex(name, redsync.WithTries(1000))
		require.NoError(t, other.Lock())
		assert.InDelta(t, 8, time.Since(extended).Seconds(), 0.25)
		assert.Error(t, m.Held().Context().Err(), "it has ended before")
	})
}

// TestExtendAfterTheExpiryIsNotANewLock: this includes WithSetNXOnExtend and free keys.
func TestExtendAfterTheExpiryIsNotANewLock(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		rs, _ := open(t, w)
		m := rs.NewMutex(name, redsync.WithSetNXOnExtend())
		require.NoError(t, m.Lock())
		time.Sleep(10 * time.Second)
		fails(t, redsync.ErrExtendFailed)(m.Extend())
		assert.Zero(t, sim.Holding(w, name))

		require.NoError(t, m.Lock())
		for _, s := range w.Servers()[:2] {
			s.Del(name)
		}
		succeeds(t)(m.Extend())
		time.Sleep(time.Second)
		assert.Equal(t, 5, sim.Holding(w, name), "what a minority has lost it is given again")
	})
}

// TestMutexIsExclusiveWithAnyLocker: the Locker may default to shared locks or permits.
func TestMutexIsExclusiveWithAnyLocker(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		rs := redsync.New(sim.Locker(t, w.NewClient(1), redlock.Permits(3)))
		require.NoError(t, rs.NewMutex(name).Lock())
		var taken *redsync.ErrTaken
		require.ErrorAs(t, rs.NewMutex(name).TryLock(), &taken)
	})
}

func TestExtensionByAnotherProcessCountsFromTheCall(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		first, _ := open(t, w)
		second, _ := open(t, w)
		m := first.NewMutex(name, redsync.WithExpiry(time.Minute))
		require.NoError(t, m.Lock())
		by := second.NewMutex(name, redsync.WithExpiry(time.Minute), redsync.WithValue(m.Value()))
		assert.True(t, by.Until().IsZero())
		time.Sleep(30 * time.Second)
		called := time.Now()
		succeeds(t)(by.Extend())
		assert.Equal(t, called.Add(time.Minute-redlock.Drift(time.Minute)), by.Until())
		succeeds(t)(by.Unlock())
		fails(t, redsync.ErrExtendFailed)(by.Extend())
	})
}

// TestMutexOfTheSameProcessKeepsTheValue: the extension by a second mutex outlives the end of the
// first mutex.
func TestMutexOfTheSameProcessKeepsTheValue(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		rs, l := open(t, w)
		m := rs.NewMutex(name, redsync.WithExpiry(time.Minute))
		require.NoError(t, m.Lock())
		by := redsync.New(l).NewMutex(name, redsync.WithExpiry(time.Minute), redsync.WithValue(m.Value()))
		assert.Equal(t, m.Until(), by.Until())
		for range 3 {
			time.Sleep(40 * time.Second)
			succeeds(t)(by.Extend())
			assert.Equal(t, 5, sim.Holding(w, name))
		}
		succeeds(t)(by.Unlock())
		fails(t, redsync.ErrLockAlreadyExpired)(m.Unlock())
	})
}

// TestLongerExpiryIsKept: a mutex with the same value extends the lock by its own expiry, with the
// memory guard, and no Extend shortens the remaining time.
func TestLongerExpiryIsKept(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		rs, l := open(t, w)
		m := rs.NewMutex(name, redsync.WithExpiry(time.Second))
		require.NoError(t, m.Lock())
		called := time.Now()
		by := redsync.New(l).NewMutex(name, redsync.WithExpiry(time.Minute), redsync.WithValue(m.Value()))
		succeeds(t)(by.Extend())
		assert.Equal(t, called.Add(time.Minute-redlock.Drift(time.Minute)), by.Until())
		succeeds(t)(m.Extend())
		assert.GreaterOrEqual(t, m.Until(), by.Until())

		other, _ := open(t, w)
		time.Sleep(50 * time.Second)
		var taken *redsync.ErrTaken
		require.ErrorAs(t, other.NewMutex(name).TryLock(), &taken)
		fails(t)(rs.NewMutex(name, redsync.WithExpiry(9000*time.Hour), redsync.WithValue(m.Value())).Extend())
		succeeds(t)(m.Unlock())
	})
}

// TestUnsupportedOptionIsRefused: such an option is not ignored.
func TestUnsupportedOptionIsRefused(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		rs, l := open(t, w)
		for want, option := range map[string]redsync.Option{
			"WithGenValueFunc is not supported":      redsync.WithGenValueFunc(func() (string, error) { return "", errors.New("never called") }),
			"WithDriftFactor(0.02) is not supported": redsync.WithDriftFactor(0.02),
			"WithRetryDelayFunc(nil)":                redsync.WithRetryDelayFunc(nil),
			"TTL(0s)":                                redsync.WithExpiry(0),
			"TTL(2h0m0s): is above an hour":          redsync.WithExpiry(2 * time.Hour),
			"NodeTimeout(0s)":                        redsync.WithTimeoutFactor(0),
			"must be below the TTL":                  redsync.WithTimeoutFactor(1),
		} {
			require.ErrorContains(t, rs.NewMutex(name, option).Lock(), want)
		}
		require.ErrorContains(t, rs.NewMutex("").Lock(), "must not be empty")
		require.NoError(t, rs.NewMutex(name, redsync.WithDriftFactor(0.01), redsync.WithGenValueFunc(nil),
			redsync.WithFailFast(false), redsync.WithShufflePools(true)).Lock())
		assert.Panics(t, func() { redsync.New(nil) })
		require.NoError(t, l.Close())
		require.ErrorIs(t, rs.NewMutex(name).Lock(), redlock.ErrClosed)
	})
}
