package redlock_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// watchedAt is when a lock that was taken just now is certainly watched, and long
// before it is renewed.
const watchedAt = time.Second

// TestALossIsToldAtOnce, whatever became of the key on a majority, also to a holder who
// does not renew.
func TestALossIsToldAtOnce(t *testing.T) {
	for name, change := range map[string]func(s *sim.Server){
		"DEL":             func(s *sim.Server) { s.Del("x") },
		"FLUSHALL":        (*sim.Server).Flush,
		"SET by somebody": func(s *sim.Server) { s.Set("x", "another", time.Hour) },
	} {
		for _, renews := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", renews: ", renews), func(t *testing.T) {
				simulate(t, 5, func(t *testing.T, w *sim.World) {
					l, _ := open(t, w)
					lock := take(t, l, "x", redlock.Renew(renews))
					time.Sleep(watchedAt)
					for _, s := range w.Servers()[:3] {
						change(s)
					}
					assert.Equal(t, leg+rtt, took(func() { <-lock.Context().Done() }), "a hint, and a look")
					cause := context.Cause(lock.Context())
					isOnly(t, cause, redlock.ErrLost)
					assert.ErrorContains(t, cause, "3 of 5 servers no longer have it (")
					var failure *redlock.QuorumError
					require.ErrorAs(t, cause, &failure)
					assert.LessOrEqual(t, failure.Votes, 2, "the others are not waited for")
					assert.Len(t, failure.Causes.Errors, 3)
					assert.Same(t, cause, lock.Release(t.Context()))
				})
			})
		}
	}
}

// TestAnEarlyExpiryIsToldSoon: a server needs a while to find it.
func TestAnEarlyExpiryIsToldSoon(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		lock := take(t, l, "x")
		time.Sleep(watchedAt)
		for _, s := range w.Servers()[:3] {
			s.Set("x", lock.Value(), 50*time.Millisecond)
		}
		assert.LessOrEqual(t, took(func() { <-lock.Context().Done() }), 200*time.Millisecond)
		isOnly(t, context.Cause(lock.Context()), redlock.ErrLost)
	})
}

// TestWithoutHintsALossIsToldAtTheRenewal.
func TestWithoutHintsALossIsToldAtTheRenewal(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		w.SetNet(lose(func(l sim.Leg) bool { return l.Hint }))
		l, _ := open(t, w, unspread)
		lock := take(t, l, "x")
		time.Sleep(watchedAt)
		for _, s := range w.Servers()[:3] {
			s.Del("x")
		}
		assert.Equal(t, ttl/3-watchedAt, took(func() { <-lock.Context().Done() }))
		isOnly(t, context.Cause(lock.Context()), redlock.ErrLost)
	})
}

// TestAMinorityThatLosesTheKeyIsGivenTheLockAgainSoon, and it is watched there as before.
func TestAMinorityThatLosesTheKeyIsGivenTheLockAgainSoon(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		lock := take(t, l, "x")
		time.Sleep(watchedAt)
		for range 3 {
			w.Servers()[0].Del("x")
			w.Servers()[1].Flush()
			time.Sleep(100 * time.Millisecond)
			assert.Equal(t, 5, holding(w, "x"))
			assert.True(t, lock.Valid())
			assert.Equal(t, 5, lock.Votes())
		}
		time.Sleep(ttl)
		for _, s := range w.Servers()[:3] {
			s.Del("x")
		}
		assert.LessOrEqual(t, took(func() { <-lock.Context().Done() }), 100*time.Millisecond)
	})
}

// TestMinoritiesThatLoseTheKeyOneAfterTheOtherEndNoLock: what a node was given again is
// not missing there any more, though nobody has looked since.
func TestMinoritiesThatLoseTheKeyOneAfterTheOtherEndNoLock(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		lock := take(t, l, "x")
		time.Sleep(watchedAt)
		for i := range 20 {
			for j := range 2 {
				w.Servers()[(2*i+j)%5].Del("x")
			}
			for lock.Votes() == 5 && lock.Valid() { // until it is noticed
				time.Sleep(time.Millisecond)
			}
			for lock.Votes() < 5 && lock.Valid() {
				time.Sleep(time.Millisecond)
			}
			require.NoError(t, context.Cause(lock.Context()), "round %d", i)
		}
	})
}

// TestLocksThatAreSoonReleasedAreNotWatched: it would cost as much as they do.
func TestLocksThatAreSoonReleasedAreNotWatched(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		r := recorded(w)
		for range 1000 {
			require.NoError(t, take(t, l, "x").Release(t.Context()))
		}
		for range 100 { // too short to be worth it
			lock := take(t, l, "x", redlock.TTL(900*time.Millisecond))
			time.Sleep(200 * time.Millisecond)
			require.NoError(t, lock.Release(t.Context()))
		}
		assert.Empty(t, r.of(sim.Submitted, protocol.OpWatch))
		assert.Empty(t, r.of(sim.Submitted, protocol.OpLook))
	})
}

// TestToWatchALockCostsNoRequestsOfItsOwn, but for those that begin it.
func TestToWatchALockCostsNoRequestsOfItsOwn(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, unspread)
		r := recorded(w)
		lock := take(t, l, "x")
		time.Sleep(watchedAt)
		assert.Len(t, r.of(sim.Submitted, protocol.OpWatch), 5, "the connection for hints")
		assert.Len(t, r.of(sim.Submitted, protocol.OpLook), 2*5, "a look before it is there, and one after")
		r.forget()
		time.Sleep(10 * ttl / 3)
		assert.Len(t, r.of(sim.Submitted, protocol.OpExtend), 10*5)
		assert.Empty(t, r.of(sim.Submitted, protocol.OpWatch))
		assert.Empty(t, r.of(sim.Submitted, protocol.OpLook))
		for _, s := range w.Servers()[:3] { // and it is watched still
			s.Del("x")
		}
		assert.Equal(t, leg+rtt, took(func() { <-lock.Context().Done() }))
	})
}

// TestHintsInVainCostFewLooks: a key that changes all the time, or a server whose
// table of tracked keys is full, keeps no client busy.
func TestHintsInVainCostFewLooks(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		lock := take(t, l, "x")
		time.Sleep(watchedAt)
		r := recorded(w)
		for range 30_000 {
			onAll(w, func(s *sim.Server) { s.Set("x", lock.Value(), ttl) })
			time.Sleep(time.Millisecond)
		}
		assert.True(t, lock.Valid())
		assert.LessOrEqual(t, len(r.of(sim.Submitted, protocol.OpLook)), 5*50)
		assert.LessOrEqual(t, len(r.of(sim.Submitted, protocol.OpExtend)), 5*13, "renewals are what they were")
	})
}

// TestALockThatAnotherHasOnAMinorityIsRenewedAsUsual: there is nothing to give back.
func TestALockThatAnotherHasOnAMinorityIsRenewedAsUsual(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, unspread)
		lock := take(t, l, "x")
		time.Sleep(watchedAt)
		r := recorded(w)
		w.Servers()[0].Set("x", "another", time.Hour)
		time.Sleep(ttl/3 - watchedAt - 2*rtt)
		assert.Empty(t, r.of(sim.Submitted, protocol.OpExtend))
		w.Servers()[0].Del("x")
		time.Sleep(100 * time.Millisecond)
		assert.Equal(t, 5, holding(w, "x"), "but when that has gone, it is")
		assert.True(t, lock.Valid())
	})
}

// TestALockThatWasHandedOverIsWatched, also if its key went at that moment.
func TestALockThatWasHandedOverIsWatched(t *testing.T) {
	const leg = 50 * time.Millisecond // so that a turn lasts for longer than a lock is not watched
	for name, before := range map[string]time.Duration{"before": 0, "meanwhile": leg, "after": 5 * leg} {
		t.Run(name, func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				w.SetNet(sim.Fixed(leg))
				l, _ := open(t, w, redlock.NodeTimeout(time.Second))
				lock := take(t, l, "x")
				next := waits(t.Context(), t, l)
				time.Sleep(4 * leg)
				r := recorded(w)
				remove := func() {
					for _, s := range w.Servers()[:3] {
						s.Del("x")
					}
				}
				if before == 0 {
					remove()
				}
				require.NoError(t, lock.Release(t.Context()))
				heir := <-next
				if before > 0 {
					time.Sleep(before - leg)
					remove()
				}
				require.Equal(t, lock.Value(), heir.Value(), "it was handed over")
				assert.LessOrEqual(t, took(func() { <-heir.Context().Done() }), 3*leg)
				isOnly(t, context.Cause(heir.Context()), redlock.ErrLost)
				assert.Empty(t, r.of(sim.Submitted, protocol.OpExtend))
			})
		})
	}
}

// TestALockThatHasEndedIsNotWatched, whichever way it ended: nothing is left of its watch.
func TestALockThatHasEndedIsNotWatched(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, w *sim.World, l *redlock.Locker, k *redlock.Lock){
		"released": func(t *testing.T, _ *sim.World, _ *redlock.Locker, k *redlock.Lock) {
			require.NoError(t, k.Release(t.Context()))
		},
		"closed": func(t *testing.T, _ *sim.World, l *redlock.Locker, _ *redlock.Lock) { require.NoError(t, l.Close()) },
		"lost": func(_ *testing.T, w *sim.World, _ *redlock.Locker, k *redlock.Lock) {
			onAll(w, func(s *sim.Server) { s.Del("x") })
			<-k.Context().Done()
		},
		"MaxHold": func(_ *testing.T, _ *sim.World, _ *redlock.Locker, k *redlock.Lock) { <-k.Context().Done() },
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				l, _ := open(t, w)
				r := recorded(w)
				lock := take(t, l, "x", redlock.MaxHold(2*time.Second))
				time.Sleep(watchedAt)
				require.NotEmpty(t, r.of(sim.Submitted, protocol.OpLook))
				end(t, w, l, lock)
				time.Sleep(2 * time.Second) // and the connection for hints is closed
				r.forget()
				onAll(w, func(s *sim.Server) { s.Set("x", "another", time.Hour) })
				onAll(w, (*sim.Server).Flush)
				synctest.Wait()
				time.Sleep(ttl)
				assert.Empty(t, r.of(sim.Hinted, protocol.OpWatch))
				assert.Empty(t, r.of(sim.Submitted, protocol.OpLook))
				assert.Zero(t, holding(w, "x"))
			})
		})
	}
}
