package redlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// TestANodeInTroubleIsInNobodysWay though it is the one that is to be asked first. One
// that is known to be of no use is replaced, and the next gives the hints.
func TestANodeInTroubleIsInNobodysWay(t *testing.T) {
	for name, test := range map[string]struct {
		trouble  func(*sim.Server)
		replaced bool
	}{
		"crashed":   {(*sim.Server).Crash, true},
		"vanished":  {(*sim.Server).Vanish, true},
		"hung":      {(*sim.Server).Hang, false},
		"forgetful": {func(s *sim.Server) { s.Del("x") }, true},
		"stale":     {func(s *sim.Server) { s.Set("x", "stale", time.Hour) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				holder, _ := open(t, w, redlock.TTL(time.Hour), redlock.NodeTimeout(5*rtt))
				waiter, _ := open(t, w, longest, redlock.NodeTimeout(5*rtt))
				r := recorded(w)
				lock := take(t, holder, "x")
				got := waits(t.Context(), t, waiter)
				time.Sleep(time.Second)
				first := r.firstOf(1)
				test.trouble(w.Servers()[first])
				time.Sleep(10 * time.Second)
				assert.Equal(t, test.replaced, r.firstOf(1) != first)
				r.listens(t, 1)
				start := time.Now()
				require.NoError(t, lock.Release(t.Context()))
				assert.True(t, (<-got).Valid())
				limit := 2*rtt + unaided + rtt
				if test.replaced {
					limit = leg + hinted
				}
				assert.LessOrEqual(t, time.Since(start), limit)
			})
		})
	}
}

// TestContendersInEachOthersWayDoNotSpin: where nobody can get a quorum, each try takes
// nodes, and giving them back is a hint for the others.
func TestContendersInEachOthersWayDoNotSpin(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		for _, s := range w.Servers()[:3] {
			s.Set("x", "stale", redlock.NoTTL)
		}
		ctx, cancel := context.WithCancel(t.Context())
		r := recorded(w)
		for range 3 {
			l, _ := open(t, w)
			waits(ctx, t, l)
		}
		time.Sleep(time.Second)
		r.forget()
		time.Sleep(10 * time.Second)
		for client := range 3 {
			assert.LessOrEqual(t, len(r.tries(client)), 10*10, "one in half of the longest wait")
			assert.Greater(t, len(r.tries(client)), 10*4)
		}
		cancel()
		time.Sleep(time.Second)
		assert.Equal(t, 3, holding(w, "x"))
	})
}

// TestHintsAreFollowedAtOnceAMillisecond: a key that changes all the time keeps
// no node busy.
func TestHintsAreFollowedAtOnceAMillisecond(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		const near = 20 * time.Microsecond
		w.SetNet(sim.Fixed(near))
		onAll(w, func(s *sim.Server) { s.Set("x", "another", time.Hour) })
		l, _ := open(t, w)
		r := recorded(w)
		ctx, cancel := context.WithCancel(t.Context())
		waits(ctx, t, l)
		time.Sleep(time.Second)
		r.forget()
		for range 10000 {
			onAll(w, func(s *sim.Server) { s.Set("x", "another", time.Hour) })
			time.Sleep(near)
		}
		tries := len(r.tries(0))
		assert.Greater(t, tries, 50)
		assert.LessOrEqual(t, tries, 200)
		cancel()
		synctest.Wait()
	})
}

// TestAWaiterLeavesNothing, be it that its context or its Locker ends: no place in
// the line, no key, and nobody is told of changes any more.
func TestAWaiterLeavesNothing(t *testing.T) {
	for name, fair := range map[string][]redlock.Option{"": nil, "fair": {redlock.Fair()}} {
		for _, closes := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				simulate(t, 5, func(t *testing.T, w *sim.World) {
					holder, _ := open(t, w, redlock.TTL(time.Hour))
					l, _ := open(t, w, fair...)
					lock := take(t, holder, "x")
					r := recorded(w)
					ctx, cancel := context.WithCancel(t.Context())
					got := make(chan error)
					go func() {
						_, err := l.Acquire(ctx, "x")
						got <- err
					}()
					r.listens(t, 1)
					if closes {
						l.Close()
						isOnly(t, <-got, redlock.ErrClosed)
					} else {
						cancel()
						isOnly(t, <-got, context.Canceled)
					}
					cancel()
					time.Sleep(2 * time.Second) // and the connection for hints is closed
					scheduled, queued, inflight := l.Leftovers()
					assert.Zero(t, scheduled+queued+inflight)
					r.forget()
					require.NoError(t, lock.Release(t.Context()))
					onAll(w, (*sim.Server).Flush)
					time.Sleep(time.Second)
					assert.Empty(t, r.of(sim.Hinted, redlock.OpWatch))
					assert.Empty(t, r.of(sim.Run, redlock.OpWatch))
				})
			})
		}
	}
}

// TestWhatIsFreeIsNotWaitedFor: one request to each node, and one more at the end.
func TestWhatIsFreeIsNotWaitedFor(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		r := recorded(w)
		lock, err := l.Acquire(t.Context(), "x")
		require.NoError(t, err)
		time.Sleep(rtt)
		require.NoError(t, lock.Release(t.Context()))
		time.Sleep(time.Minute)
		assert.Len(t, r.of(sim.Run, redlock.OpAcquire), 5)
		assert.Len(t, r.of(sim.Run, redlock.OpRelease), 5)
		assert.Len(t, r.steps, 2*3*5, "submitted, run and replied, and nothing else")
	})
}
