package redlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

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
