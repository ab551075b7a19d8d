package redlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// TestRetriesAreCountedAndKeepTheInterval exactly, for contention and for an
// outage.
func TestRetriesAreCountedAndKeepTheInterval(t *testing.T) {
	t.Parallel()
	for _, refusal := range []answer{refuses, faults[0], faults[2]} {
		for _, retries := range []int{0, 1, 3} {
			synctest.Test(t, func(t *testing.T) {
				ps, l := puppets(t, 3, func(int, protocol.Op, int) answer { return refusal })
				start := time.Now()
				_, err := l.Acquire(t.Context(), "x", redlock.Retries(retries), redlock.RetryInterval(time.Second))
				kind := redlock.ErrNoQuorum
				if refusal.outcome == protocol.Refused {
					kind = redlock.ErrHeld
				}
				isOnly(t, err, kind)
				reqs, at := ps[0].requests(protocol.OpAcquire)
				require.Len(t, at, 1+retries)
				values := map[string]bool{}
				for i := range at {
					assert.Equal(t, time.Duration(i)*time.Second, at[i].Sub(start))
					values[reqs[i].Value] = true
				}
				assert.Len(t, values, 1+retries, "a try must not meet the value of the one before")
				assert.Equal(t, time.Duration(retries)*time.Second, time.Since(start), "nothing is waited for after the last")
			})
		}
	}
}

// TestARetryIntervalIsKeptTo although the lock is released in the process
// meanwhile.
func TestARetryIntervalIsKeptTo(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		lock := take(t, l, "x")
		time.AfterFunc(time.Second, func() { lock.Release(t.Context()) })
		assert.Equal(t, time.Minute+rtt, took(func() {
			_, err := l.Acquire(t.Context(), "x", redlock.RetryInterval(time.Minute))
			assert.NoError(t, err)
		}))
	})
}

func TestRetriesZeroIsTryAcquire(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		var errs [2]error
		for i, try := range []func() (*redlock.Lock, error){
			func() (*redlock.Lock, error) { return l.TryAcquire(t.Context(), "x") },
			func() (*redlock.Lock, error) { return l.Acquire(t.Context(), "x", redlock.Retries(0)) },
		} {
			for _, s := range w.Servers() {
				s.Set("x", "another", time.Hour)
			}
			assert.Equal(t, 2*rtt, took(func() { _, errs[i] = try() }))
			isOnly(t, errs[i], redlock.ErrHeld)
			for _, s := range w.Servers() {
				s.Del("x")
			}
			lock, err := try()
			require.NoError(t, err)
			require.NoError(t, lock.Release(t.Context()))
		}
		var first, second *redlock.QuorumError
		require.ErrorAs(t, errs[0], &first)
		require.ErrorAs(t, errs[1], &second)
		assert.InDelta(t, first.Remaining, second.Remaining, float64(time.Second))
	})
}

// TestAcquireWithRetriesDoesNotQueue: it tries on its own schedule, beside
// those that wait. The holder is a caller of this process, so no node is asked.
func TestAcquireWithRetriesDoesNotQueue(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		take(t, l, "x")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go l.Acquire(ctx, "x")
		time.Sleep(time.Second)
		assert.Zero(t, took(func() {
			_, err := l.Acquire(t.Context(), "x", redlock.Retries(0))
			isOnly(t, err, redlock.ErrHeld)
		}))
	})
}

// TestAStaleVoteIsTriedAgainAtOnce: no other client is in the way.
func TestAStaleVoteIsTriedAgainAtOnce(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, c := open(t, w, redlock.TTL(ttl))
		time.AfterFunc(leg, c.Pause)
		time.AfterFunc(ttl, c.Resume)
		assert.Equal(t, ttl+rtt, took(func() {
			_, err := l.Acquire(t.Context(), "x")
			assert.NoError(t, err)
		}))
	})
}
