package redlocktest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlocktest"
)

// patient makes a busy machine not look like an outage.
var patient = []redlock.LockerOption{redlock.TTL(time.Hour), redlock.NodeTimeout(time.Minute)}

// TestHeldLockIsRefused runs in real time.
func TestHeldLockIsRefused(t *testing.T) {
	t.Parallel()
	servers := redlocktest.Start(t)
	locker := servers.Locker(patient...)
	release := servers.Hold("invoice:42")
	_, err := locker.TryAcquire(t.Context(), "invoice:42")
	require.ErrorIs(t, err, redlock.ErrHeld)
	time.AfterFunc(10*time.Millisecond, release)
	lock, err := locker.Acquire(t.Context(), "invoice:42", redlock.Fenced())
	require.NoError(t, err)
	assert.Positive(t, lock.Fence())
	require.NoError(t, lock.Release(t.Context()))
}

// TestLossIsNoticedWithinMilliseconds runs in real time and in a bubble.
func TestLossIsNoticedWithinMilliseconds(t *testing.T) {
	t.Parallel()
	lose := func(t *testing.T, limit time.Duration) {
		servers := redlocktest.Start(t)
		err := servers.Locker(patient...).Do(t.Context(), "invoice:42", func(ctx context.Context) error {
			time.Sleep(100 * time.Millisecond) // until the lock is watched
			servers.Lose("invoice:42")
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(limit): // the next renewal is in 20 minutes
				return nil
			}
		})
		require.ErrorIs(t, err, redlock.ErrLost)
	}
	t.Run("real time", func(t *testing.T) { lose(t, time.Minute) })
	synctest.Test(t, func(t *testing.T) { lose(t, 10*time.Millisecond) })
}

// TestOutage runs in a bubble: a minute takes no time.
func TestOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		servers := redlocktest.Start(t)
		locker := servers.Locker(redlock.TTL(time.Minute))
		lock, err := locker.Acquire(t.Context(), "invoice:42")
		require.NoError(t, err)
		end := servers.Outage(1)
		time.Sleep(10 * time.Minute)
		assert.True(t, lock.Valid(), "a minority is not felt")
		end()

		end = servers.Outage(2)
		_, err = locker.TryAcquire(t.Context(), "invoice:43")
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		<-lock.Context().Done()
		require.ErrorIs(t, context.Cause(lock.Context()), redlock.ErrLost)
		end()
		_, err = locker.Acquire(t.Context(), "invoice:42")
		require.NoError(t, err)
	})
}

// TestOutagesOverlap: a server answers again when its last outage has ended.
func TestOutagesOverlap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		servers := redlocktest.Start(t)
		locker := servers.Locker()
		endOne, endTwo := servers.Outage(1), servers.Outage(2)
		_, err := locker.TryAcquire(t.Context(), "x")
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		endTwo()
		endTwo()
		lock, err := locker.TryAcquire(t.Context(), "x")
		require.NoError(t, err)
		time.Sleep(time.Second)
		assert.Equal(t, 2, lock.Votes())
		endOne()
		time.Sleep(time.Minute)
		assert.Equal(t, 3, lock.Votes())
		require.NoError(t, lock.Release(t.Context()))
	})
}

// A recorder is a testing.TB that records a failure instead of failing its test.
type recorder struct {
	testing.TB
	failed bool
}

var errEnded = errors.New("ended")

func (r *recorder) Fatalf(string, ...any) {
	r.failed = true
	panic(errEnded)
}

func TestInvalidCallFailsTheTest(t *testing.T) {
	t.Parallel()
	for what, do := range map[string]func(*redlocktest.Servers){
		"a lock that nobody holds":    func(s *redlocktest.Servers) { s.Lose("nothing") },
		"more servers than there are": func(s *redlocktest.Servers) { s.Outage(4) },
		"options":                     func(s *redlocktest.Servers) { s.Locker(redlock.TTL(0)) },
		"a lock that is held":         func(s *redlocktest.Servers) { s.Hold("x"); s.Hold("x") },
	} {
		r := &recorder{TB: t}
		assert.PanicsWithError(t, errEnded.Error(), func() { do(redlocktest.Start(r)) }, what)
		assert.True(t, r.failed, what)
	}
}
