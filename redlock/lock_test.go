package redlock_test

import (
	"context"
	"sync"
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

// TestReleaseEndsTheLock: the context ends at once, and the keys a leg later. Afterwards no method
// of the lock reports it as held.
func TestReleaseEndsTheLock(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.TTL(ttl))
		lock := take(t, l, "x")
		assert.Equal(t, 5, holding(w, "x"))
		assert.Equal(t, "x", lock.Name())
		assert.Equal(t, time.Now().Add(validity), lock.Until())
		start := time.Now()
		ended := endOf(lock)
		assert.Equal(t, rtt, took(func() { assert.NoError(t, lock.Release(t.Context())) }))
		assert.Equal(t, start, <-ended)
		assert.Equal(t, redlock.ErrReleased, context.Cause(lock.Context()))
		assert.Zero(t, holding(w, "x"))
		assert.False(t, lock.Valid())
		assert.Zero(t, lock.Remaining())
		assert.Zero(t, lock.Until())
		assert.Zero(t, lock.Votes())
	})
}

// TestReleaseReturnsAtTheQuorum: the other requests continue.
func TestReleaseReturnsAtTheQuorum(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ps, l := puppets(t, 5, func(i int, op protocol.Op, _ int) answer {
			if op == protocol.OpRelease {
				return answer{outcome: protocol.Granted, after: time.Duration(i+1) * time.Millisecond}
			}
			return grants
		})
		lock := take(t, l, "x")
		assert.Equal(t, 3*time.Millisecond, took(func() { assert.NoError(t, lock.Release(t.Context())) }))
		for _, p := range ps {
			reqs, _ := p.requests(protocol.OpRelease)
			require.Len(t, reqs, 1)
			assert.True(t, reqs[0].MayHold)
		}
	})
}

// TestReleaseRetriesOnlyIfTheValueMayExist: a node that refused or failed gets one request, and no
// retries for a TTL. A failed extension does not mean that the value is gone; a refused one does.
func TestReleaseRetriesOnlyIfTheValueMayExist(t *testing.T) {
	t.Parallel()
	late := func(a answer) answer { a.after = time.Millisecond; return a }
	for _, c := range []struct {
		votes, extensions []answer
		insists           []bool
	}{
		{ // the first seven nodes are a quorum of twelve
			[]answer{grants, grants, grants, grants, grants, grants, grants, late(grants), late(refuses), late(faults[0]), late(faults[1]), faults[3]}, nil,
			[]bool{true, true, true, true, true, true, true, true, false, false, true, true},
		},
		{[]answer{grants, grants, grants}, []answer{faults[0], {outcome: protocol.Refused, ttl: time.Second}, grants}, []bool{true, false, true}},
	} {
		synctest.Test(t, func(t *testing.T) {
			ps, l := puppets(t, len(c.votes), func(i int, op protocol.Op, _ int) answer {
				switch op {
				case protocol.OpAcquire:
					return c.votes[i]
				case protocol.OpExtend:
					return c.extensions[i]
				}
				return grants
			})
			lock := take(t, l, "x", redlock.Renew(false))
			time.Sleep(2 * time.Millisecond)
			if c.extensions != nil {
				isOnly(t, lock.Extend(t.Context()), redlock.ErrNoQuorum)
			}
			require.NoError(t, lock.Release(t.Context()))
			for i, p := range ps {
				reqs, _ := p.requests(protocol.OpRelease)
				require.Len(t, reqs, 1)
				assert.Equal(t, c.insists[i], reqs[0].MayHold, "node %d: %+v", i, c.votes[i])
			}
		})
	}
}

// TestOnlyTheReleaseOfAHeldLockExpectsNoRefusal: a node may use a method that costs more if the
// value is gone.
func TestOnlyTheReleaseOfAHeldLockExpectsNoRefusal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		refusing := 1 // number of nodes that refuse
		ps, l := puppets(t, 3, func(i int, op protocol.Op, _ int) answer {
			if op == protocol.OpAcquire && i < refusing {
				return refuses
			}
			return grants
		}, redlock.Renew(false), redlock.TTL(ttl))
		expects := func(want ...bool) {
			t.Helper()
			synctest.Wait()
			for i, p := range ps {
				reqs, _ := p.requests(protocol.OpRelease)
				require.NotEmpty(t, reqs)
				assert.Equal(t, want[i], reqs[len(reqs)-1].Held, "node %d", i)
			}
		}
		lock := take(t, l, "held")
		synctest.Wait()
		require.NoError(t, lock.Release(t.Context()))
		expects(false, true, true)

		lost := take(t, l, "lost")
		<-lost.Context().Done()
		expects(false, false, false)
		require.NoError(t, l.ReleaseValue(t.Context(), "adopted", "value"))
		expects(false, false, false)

		refusing = 2
		take := func() error { _, err := l.TryAcquire(t.Context(), "refused"); return err }
		require.ErrorIs(t, take(), redlock.ErrHeld)
		expects(false, false, false)
	})
}

// TestReleaseFromManyGoroutines: exactly one call succeeds.
func TestReleaseFromManyGoroutines(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		for i := range 40 {
			lock := takeAll(t, l, abc[:1+2*(i%2)])
			var succeeded atomic.Int32
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					if err := lock.Release(t.Context()); err == nil {
						succeeded.Add(1)
					} else {
						isOnly(t, err, redlock.ErrReleased)
					}
				})
			}
			all.Wait()
			require.EqualValues(t, 1, succeeded.Load())
		}
	})
}

func TestReleaseWithAnEndedContextStillReleases(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		lock := take(t, l, "x")
		var err error
		assert.Zero(t, took(func() { err = lock.Release(canceled(t)) }))
		isOnly(t, err, context.Canceled)
		assert.ErrorIs(t, context.Cause(lock.Context()), redlock.ErrReleased)
		time.Sleep(leg + 1)
		assert.Zero(t, holding(w, "x"))
	})
}

// TestReleaseAfterTheDeadlineIsALoss: the process may have been paused, so that its timer has not
// fired yet.
func TestReleaseAfterTheDeadlineIsALoss(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, c := open(t, w, redlock.TTL(ttl))
		lock := take(t, l, "x")
		c.Pause()
		time.Sleep(validity)
		assert.NoError(t, lock.Context().Err(), "no timer fires in a process that is paused")
		assert.False(t, lock.Valid(), "but who asks is told the truth")
		assert.Zero(t, lock.Until())
		isOnly(t, lock.Release(canceled(t)), redlock.ErrLost)
		assert.ErrorIs(t, context.Cause(lock.Context()), redlock.ErrLost)
	})
}

// TestLateContextHasEndedLikeTheLock covers each way in which a lock can end.
func TestLateContextHasEndedLikeTheLock(t *testing.T) {
	type key struct{}
	for name, c := range map[string]struct {
		opts  []redlock.Option
		end   func(t *testing.T, l *redlock.Locker, k *redlock.Lock)
		cause error
	}{
		"released": {nil, func(t *testing.T, l *redlock.Locker, k *redlock.Lock) {
			require.NoError(t, k.Release(t.Context()))
		}, redlock.ErrReleased},
		"lost":   {[]redlock.Option{redlock.Renew(false)}, func(t *testing.T, l *redlock.Locker, k *redlock.Lock) { time.Sleep(time.Hour) }, redlock.ErrLost},
		"closed": {nil, func(t *testing.T, l *redlock.Locker, k *redlock.Lock) { require.NoError(t, l.Close()) }, redlock.ErrClosed},
		"handed over": {nil, func(t *testing.T, l *redlock.Locker, k *redlock.Lock) {
			got := waits(t.Context(), t, l)
			require.NoError(t, k.Release(t.Context()))
			assert.Equal(t, k.OwnValue(), (<-got).OwnValue())
		}, redlock.ErrReleased},
		"left by one of two readers": {[]redlock.Option{redlock.Shared()}, func(t *testing.T, l *redlock.Locker, k *redlock.Lock) {
			read(t, l, "x")
			require.NoError(t, k.Release(t.Context()))
		}, redlock.ErrReleased},
	} {
		simulateCase(t, name, 3, func(t *testing.T, w *sim.World) {
			l, _ := open(t, w)
			lock, err := l.Acquire(context.WithValue(t.Context(), key{}, "value"), "x", c.opts...)
			require.NoError(t, err)
			time.Sleep(leg) // until the last votes have arrived
			c.end(t, l, lock)
			assert.ErrorIs(t, context.Cause(lock.Context()), c.cause)
			assert.Equal(t, "value", lock.Context().Value(key{}))
			assert.True(t, lock.Context() == lock.Context(), "there is one")
		})
	}
}

// TestBoundContextEndsWithEither: the context ends with the lock, with its parent, or on cancel.
func TestBoundContextEndsWithEither(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		type key struct{}
		for name, end := range map[string]struct {
			by    func(k *redlock.Lock, cancel, done func())
			cause error
		}{
			"the lock":      {func(k *redlock.Lock, _, _ func()) { k.Release(t.Context()) }, redlock.ErrReleased},
			"its own":       {func(_ *redlock.Lock, cancel, _ func()) { cancel() }, context.Canceled},
			"the work done": {func(_ *redlock.Lock, _, done func()) { done() }, context.Canceled},
		} {
			k := take(t, l, "x")
			ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, name))
			bound, done := k.Bind(ctx)
			assert.NoError(t, bound.Err(), name)
			assert.Equal(t, name, bound.Value(key{}))
			end.by(k, cancel, done)
			<-bound.Done()
			assert.ErrorIs(t, context.Cause(bound), end.cause, name)
			k.Release(t.Context())
			late, lateDone := k.Bind(t.Context())
			<-late.Done()
			assert.ErrorIs(t, context.Cause(late), redlock.ErrReleased, "it had ended before")
			done()
			cancel()
			lateDone()
		}
	})
}
