package redlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// TestAcquireAsksAllNodesAtOnce with one value, which no two attempts share.
func TestAcquireAsksAllNodesAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ps, l := puppets(t, 5, func(int, redlock.Op, int) answer { return grants }, redlock.TTL(1234*time.Millisecond+567*time.Microsecond), redlock.Prefix("p:"))
		start := time.Now()
		first := take(t, l, "x")
		second := take(t, l, "x")
		for _, p := range ps {
			reqs, at := p.requests(redlock.OpAcquire)
			require.Len(t, reqs, 2)
			assert.Equal(t, start, at[0])
			assert.Equal(t, "p:x", reqs[0].Key)
			assert.Equal(t, first.Value(), reqs[0].Value)
			assert.Equal(t, second.Value(), reqs[1].Value)
			assert.Equal(t, 1234*time.Millisecond, reqs[0].TTL, "Redis counts whole milliseconds")
			assert.Equal(t, 50*time.Millisecond, reqs[0].Timeout)
		}
		assert.NotEqual(t, first.Value(), second.Value())
	})
}

// TestAcquireCountsValidityFromTheStart: the time that the votes took is used
// up, and so is the drift allowance.
func TestAcquireCountsValidityFromTheStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const slow = 70 * time.Millisecond
		_, l := puppets(t, 3, func(i int, _ redlock.Op, _ int) answer {
			return answer{outcome: redlock.Granted, after: time.Duration(i) * slow}
		}, redlock.TTL(ttl))
		lock := take(t, l, "x")
		want := ttl - redlock.Drift(ttl) - slow
		assert.Equal(t, want, lock.Remaining())
		assert.True(t, lock.Valid())
		assert.Equal(t, time.Now().Add(want), lock.Until())
	})
}

// TestAcquireCountsAVoteOnce, whatever a broken Node does.
func TestAcquireCountsAVoteOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, l := puppets(t, 5, func(i int, op redlock.Op, _ int) answer {
			if i < 2 {
				return answer{outcome: redlock.Granted, twice: true}
			}
			return answer{outcome: redlock.Failed, err: errors.New("broken"), after: leg} // after both have stuttered
		})
		_, err := l.TryAcquire(t.Context(), "x")
		assert.ErrorIs(t, err, redlock.ErrNoQuorum)
	})
}

// TestAcquireRechecksValidityOnReturn: votes that came in time are worth
// nothing to a process that was paused, or a machine that slept, before it
// could look at them.
func TestAcquireRechecksValidityOnReturn(t *testing.T) {
	t.Parallel()
	for pause, valid := range map[time.Duration]bool{
		ttl - redlock.Drift(ttl) - rtt - 1: true,
		ttl - redlock.Drift(ttl) - rtt:     false,
		time.Hour:                          false,
	} {
		t.Run(pause.String(), func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				l, c := open(t, w, redlock.TTL(ttl))
				time.AfterFunc(leg, c.Pause)
				time.AfterFunc(rtt+pause, c.Resume)
				lock, err := l.TryAcquire(t.Context(), "x")
				if valid {
					require.NoError(t, err)
					assert.Equal(t, time.Duration(1), lock.Remaining())
					return
				}
				assert.Nil(t, lock)
				assert.ErrorIs(t, err, redlock.ErrNoQuorum)
				assert.ErrorContains(t, err, "the votes came too late")
				time.Sleep(rtt)
				assert.Zero(t, holding(w, "x"), "what is worth nothing is given back")
			})
		})
	}
	t.Run("a machine that slept", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := clock.NewFake(1)
			_, l := puppets(t, 3, func(i int, op redlock.Op, _ int) answer {
				if i == 1 && op == redlock.OpAcquire {
					c.Step(ttl) // after the first byte was queued
				}
				return grants
			}, redlock.TTL(ttl), redlock.Clock(c))
			_, err := l.TryAcquire(t.Context(), "x")
			assert.ErrorIs(t, err, redlock.ErrNoQuorum)
		})
	})
}

// TestAcquireGivesBackDespiteAnEndedContext: the caller's context bounds the
// waiting and never the cleaning up.
func TestAcquireGivesBackDespiteAnEndedContext(t *testing.T) {
	for _, at := range []time.Duration{1, leg, leg + 1, rtt - 1} {
		t.Run("cancelled after "+at.String(), func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				l, _ := open(t, w)
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(at, cancel)
				var err error
				assert.Equal(t, at, took(func() { _, err = l.TryAcquire(ctx, "x") }), "nobody waits for the cleaning up")
				assert.ErrorIs(t, err, context.Canceled)
				time.Sleep(leg + 1)
				assert.Zero(t, holding(w, "x"))
				time.Sleep(rtt)
				assert.Zero(t, holding(w, "x"), "no SET came behind the release")
			})
		})
	}
}

func TestAcquireWithAnEndedContextAsksNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ps, l := puppets(t, 3, func(int, redlock.Op, int) answer { return grants })
		_, err := l.TryAcquire(canceled(t), "x")
		assert.ErrorIs(t, err, context.Canceled)
		_, err = l.Acquire(canceled(t), "x")
		assert.ErrorIs(t, err, context.Canceled)
		assert.Empty(t, ps[0].got)
	})
}

// TestAcquiredLockOutlivesItsContext: a context that bounded the waiting does
// not take the lock away.
func TestAcquiredLockOutlivesItsContext(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		type key struct{}
		l, _ := open(t, w)
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
		lock, err := l.Acquire(ctx, "x")
		require.NoError(t, err)
		cancel()
		time.Sleep(time.Hour)
		assert.NoError(t, lock.Context().Err())
		assert.True(t, lock.Valid())
		assert.Equal(t, "value", lock.Context().Value(key{}), "but its values are the caller's")
	})
}

// TestLocalContendersDoNotSplitTheNodes: of many goroutines of one process that
// ask for one name at the same moment exactly one gets it. Without an order
// each could get some of the nodes, and none a quorum.
func TestLocalContendersDoNotSplitTheNodes(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		c := w.NewClient(1)
		nodes := c.Nodes()
		for i := range nodes {
			nodes[i] = yielding{nodes[i]}
		}
		l, err := redlock.New(nodes, redlock.Clock(c.Clock()), redlock.MemoryGuard(false))
		require.NoError(t, err)
		defer l.Close()
		for round := range 30 {
			locks := make(chan *redlock.Lock, 30)
			for range cap(locks) {
				go func() {
					lock, err := l.TryAcquire(t.Context(), "x")
					if err != nil {
						assert.ErrorIs(t, err, redlock.ErrHeld)
					}
					locks <- lock
				}()
			}
			var winner *redlock.Lock
			for range cap(locks) {
				if lock := <-locks; lock != nil {
					assert.Nil(t, winner, "two winners in round %d", round)
					winner = lock
				}
			}
			require.NotNil(t, winner, "no winner in round %d", round)
			assert.Equal(t, 5, winner.Votes())
			require.NoError(t, winner.Release(t.Context()))
		}
	})
}
