package redlockcertmagic_test

import (
	"context"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redlockcertmagic "github.com/redquorum/redquorum/contrib/certmagic"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// TestOneInstanceAtATimeHasTheLock: the instance has the lock until it unlocks, regardless of the
// lease.
func TestOneInstanceAtATimeHasTheLock(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		first := open(t, w)
		second := open(t, w)
		require.NoError(t, first.Lock(t.Context(), name))
		require.NoError(t, first.RenewLockLease(t.Context(), name, time.Second))
		for _, s := range []*redlockcertmagic.Storage{second, first} {
			assert.False(t, tryLock(t, s))
		}
		time.AfterFunc(10*time.Minute, func() { assert.NoError(t, first.Unlock(t.Context(), name)) })
		took := sim.Took(func() { require.NoError(t, second.Lock(t.Context(), name)) })
		assert.InDelta(t, (10 * time.Minute).Seconds(), took.Seconds(), 0.25, "it is renewed for so long")
		require.NoError(t, second.Unlock(t.Context(), name))
		assert.True(t, tryLock(t, first))
		require.NoError(t, first.Unlock(t.Context(), name))
		assert.Zero(t, sim.Holding(w, key))
	})
}

// TestSecondUnlockDoesNothing: certmagic unlocks twice when it cleans up at the exit of a process.
func TestSecondUnlockDoesNothing(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		first := open(t, w)
		second := open(t, w)
		require.NoError(t, first.Lock(t.Context(), name))
		require.NoError(t, first.Unlock(t.Context(), name))
		require.NoError(t, second.Lock(t.Context(), name))
		require.NoError(t, first.Unlock(t.Context(), name))
		assert.Equal(t, 5, sim.Holding(w, key), "it is another instance's now")
		require.ErrorIs(t, first.RenewLockLease(t.Context(), name, time.Hour), redlock.ErrReleased)
		require.NoError(t, second.Unlock(t.Context(), name))
		require.NoError(t, first.Unlock(t.Context(), "never locked"))
	})
}

func TestUnlockReleasesAfterTheContextHasEnded(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		s := open(t, w)
		require.NoError(t, s.Lock(t.Context(), name))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, s.Unlock(ctx, name), context.Canceled)
		time.Sleep(rtt)
		assert.Zero(t, sim.Holding(w, key))
	})
}

// TestContextEndsTheWait: the wait is for another instance, or for another operation of this
// instance.
func TestContextEndsTheWait(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		first := open(t, w)
		second := open(t, w)
		require.NoError(t, first.Lock(t.Context(), name))
		for _, s := range []*redlockcertmagic.Storage{first, second} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			took := sim.Took(func() { require.ErrorIs(t, s.Lock(ctx, name), context.DeadlineExceeded) })
			assert.Equal(t, time.Minute, took)
			ok, err := second.TryLock(ctx, name)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			assert.False(t, ok)
			cancel()
		}
		require.NoError(t, first.Unlock(t.Context(), name))
		time.Sleep(time.Second)
		assert.Zero(t, sim.Holding(w, key), "nothing is left behind")
		require.NoError(t, second.Lock(t.Context(), name))
		require.NoError(t, second.Unlock(t.Context(), name))
	})
}

// TestNewAttemptNeedsTheLock: a lost lock is acquired again, or the attempt fails.
func TestNewAttemptNeedsTheLock(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		first := open(t, w)
		second := open(t, w)
		require.NoError(t, first.Lock(t.Context(), name))
		forget(w)
		time.Sleep(ttl)
		require.NoError(t, second.Lock(t.Context(), name))
		require.ErrorIs(t, first.RenewLockLease(t.Context(), name, time.Hour), redlock.ErrHeld)
		require.NoError(t, second.Unlock(t.Context(), name))
		require.NoError(t, first.RenewLockLease(t.Context(), name, time.Hour))
		assert.Equal(t, 5, sim.Holding(w, key))
		assert.False(t, tryLock(t, second))
		require.NoError(t, first.Unlock(t.Context(), name), "it is held to the end of the last attempt")
		assert.Zero(t, sim.Holding(w, key))
	})
}

// TestUnlockDuringARenewalLeavesNoLock behind.
func TestUnlockDuringARenewalLeavesNoLock(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		s := open(t, w)
		require.NoError(t, s.Lock(t.Context(), name))
		forget(w)
		time.Sleep(ttl)
		time.AfterFunc(rtt/2, func() { s.Unlock(t.Context(), name) })
		require.ErrorIs(t, s.RenewLockLease(t.Context(), name, time.Hour), redlock.ErrReleased)
		time.Sleep(rtt)
		assert.Zero(t, sim.Holding(w, key))
	})
}

// TestUnlockOfALostLockFreesNoOtherLock: this holds although locks have names and no handles.
func TestUnlockOfALostLockFreesNoOtherLock(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		s := open(t, w)
		require.NoError(t, s.Lock(t.Context(), name))
		forget(w)
		time.Sleep(ttl)
		locked := make(chan struct{})
		go func() {
			assert.NoError(t, s.Lock(t.Context(), name))
			close(locked)
		}()
		assert.False(t, tryLock(t, s))
		time.Sleep(time.Minute)
		require.ErrorIs(t, s.Unlock(t.Context(), name), redlock.ErrLost)
		<-locked
		assert.Equal(t, 5, sim.Holding(w, key))
		require.NoError(t, s.Unlock(t.Context(), name))
	})
}

func TestOutageIsReportedAtOnce(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		s := open(t, w)
		for _, server := range w.Servers()[:3] {
			server.Hang()
		}
		require.ErrorIs(t, s.Lock(t.Context(), name), redlock.ErrNoQuorum)
		ok, err := s.TryLock(t.Context(), name)
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		assert.False(t, ok)
		for _, server := range w.Servers() {
			server.Resume()
		}
		require.NoError(t, s.Lock(t.Context(), name))
		require.NoError(t, s.Unlock(t.Context(), name))
	})
}

func TestInvalidArgumentsAreRefused(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		inner, l := &certmagic.FileStorage{Path: "/certs"}, sim.Locker(t, w.NewClient(1))
		_, err := redlockcertmagic.New(nil, l)
		require.ErrorContains(t, err, "the storage is nil")
		_, err = redlockcertmagic.New(inner, nil)
		require.ErrorContains(t, err, "make one with redlock.New")
		_, err = redlockcertmagic.New(inner, l, redlock.TTL(-1))
		require.ErrorContains(t, err, "TTL")
		s, err := redlockcertmagic.New(inner, l)
		require.NoError(t, err)
		assert.Equal(t, "redquorum:FileStorage:/certs", s.String())
		require.NoError(t, l.Close())
		require.ErrorIs(t, s.Lock(t.Context(), name), redlock.ErrClosed)
	})
}
