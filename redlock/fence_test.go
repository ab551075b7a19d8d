package redlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/internal/timetest"
	"github.com/redquorum/redquorum/redlock"
)

// fencing returns the Locker of a new process whose wall clock is ahead by so
// much, and locks with tokens.
func fencing(t *testing.T, w *sim.World, ahead time.Duration, opts ...redlock.LockerOption) *redlock.Locker {
	t.Helper()
	l, _ := open(t, w, append([]redlock.LockerOption{redlock.TTL(ttl), redlock.Fenced(),
		timetest.Wall(func() time.Time { return time.Now().Add(ahead) })}, opts...)...)
	return l
}

// TestTokensRise from lock to lock, whatever client takes it and whatever its clock
// says, and cost no time while clocks agree.
func TestTokensRise(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		last := int64(0)
		turn := func(l *redlock.Locker) {
			k := take(t, l, "x")
			assert.Greater(t, k.Fence(), last)
			assert.Less(t, k.Fence(), int64(1)<<53)
			last = k.Fence()
			require.NoError(t, k.Release(t.Context()))
		}
		exact := fencing(t, w, 0)
		assert.Equal(t, 2*rtt, took(func() { turn(exact) }), "acquired and released in a round trip each")
		for _, ahead := range []time.Duration{time.Hour, -time.Hour, ttl / 3, -ttl / 3, 2 * ttl} {
			other := fencing(t, w, ahead)
			for range 3 {
				turn(other)
				turn(exact)
			}
		}
		assert.WithinDuration(t, time.Now(), time.UnixMicro(last), ttl, "a mad clock has not used up the numbers")
	})
}

// TestALowProposalCostsOneMoreRoundTrip, and no more.
func TestALowProposalCostsOneMoreRoundTrip(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		ahead, exact := fencing(t, w, ttl/8), fencing(t, w, 0)
		first := take(t, ahead, "x")
		require.NoError(t, first.Release(t.Context()))
		var second *redlock.Lock
		assert.Equal(t, 2*rtt, took(func() { second = take(t, exact, "x") }))
		assert.Greater(t, second.Fence(), first.Fence())
		assert.Equal(t, validity-rtt, second.Remaining(), "the lease counts from the first")
	})
}

// TestALockWithoutATokenIsNone: if no majority accepts one number, the lock is
// given back, and the error tells.
func TestALockWithoutATokenIsNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ps, l := puppets(t, 5, func(i int, op protocol.Op, _ int) answer {
			if op == protocol.OpAcquireFenced || op == protocol.OpRaise && i < 3 {
				return answer{outcome: protocol.Granted, floor: int64(1000 + i)}
			}
			return grants
		}, redlock.Fenced())
		_, err := l.TryAcquire(t.Context(), "x")
		isOnly(t, err, redlock.ErrNoQuorum)
		assert.ErrorContains(t, err, "no quorum for a fencing token")
		assert.ErrorContains(t, err, "has accepted a higher fencing token")
		for _, p := range ps {
			reqs, _ := p.requests(protocol.OpReleaseFenced)
			require.Len(t, reqs, 1)
			assert.True(t, reqs[0].MayHold)
			raised, _ := p.requests(protocol.OpRaise)
			assert.Equal(t, raised[0].Token, reqs[0].Token, "what was asked for last must not come later")
		}
	})
}

// TestATokenNeedsOneNumberFromAMajority: two numbers of two nodes each, or a
// number and floors, are none.
func TestATokenNeedsOneNumberFromAMajority(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, l := puppets(t, 5, func(i int, op protocol.Op, _ int) answer {
			switch {
			case op == protocol.OpAcquireFenced && i >= 2, op == protocol.OpRaise && i == 4:
				return answer{outcome: protocol.Granted, floor: 1}
			case op == protocol.OpRaise && i < 2:
				return faults[0]
			}
			return grants
		}, redlock.Fenced())
		_, err := l.TryAcquire(t.Context(), "x")
		isOnly(t, err, redlock.ErrNoQuorum)
	})
}

// TestANodeWithAMadClockIsLeftBehind: the others settle on a number that it
// does not accept, also where it answers before them.
func TestANodeWithAMadClockIsLeftBehind(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				w.Servers()[0].Step(step)
				w.Servers()[1].Step(step)
				net := sim.Fixed(leg)
				net.Travel = func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
					return leg * time.Duration(1+l.Node), false
				}
				w.SetNet(net)
				last := int64(0)
				for _, ahead := range []time.Duration{0, step, ttl, 0} {
					k := take(t, fencing(t, w, ahead), "x")
					assert.Greater(t, k.Fence(), last)
					last = k.Fence()
					require.NoError(t, k.Release(t.Context()))
				}
				assert.WithinDuration(t, time.Now(), time.UnixMicro(last), ttl)
			})
		})
	}
}

// TestTokensRiseThoughNodesForget their counters: after the quarantine
// everything near their clocks is above what they had accepted.
func TestTokensRiseThoughNodesForget(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		const most = ttl * 15 / 100 // just within what nodes accept
		ahead := fencing(t, w, most, redlock.MemoryGuard(true))
		behind := fencing(t, w, -most, redlock.MemoryGuard(true))
		k, err := ahead.Acquire(t.Context(), "x")
		require.NoError(t, err)
		for range 5 {
			last := k.Fence()
			require.NoError(t, k.Release(t.Context()))
			forget(w.Servers()...)
			k, err = behind.Acquire(t.Context(), "x")
			require.NoError(t, err)
			assert.Greater(t, k.Fence(), last)
			last = k.Fence()
			require.NoError(t, k.Release(t.Context()))
			k, err = ahead.Acquire(t.Context(), "x")
			require.NoError(t, err)
			assert.Greater(t, k.Fence(), last)
		}
	})
}

// TestAnOldTokenIsNotSettledByNodesThatForgot: it is near enough to their clocks, and they do not
// know of higher ones before.
func TestAnOldTokenIsNotSettledByNodesThatForgot(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		const short, slack = time.Second, 2 * time.Second
		wall := time.Unix(0, 0)
		ls := settled(t, w, 2, redlock.Fenced(), redlock.TTL(short), timetest.Wall(func() time.Time { return wall }))
		wall = time.Now().Add(slack * 3 / 4)
		first := take(t, ls[0], "x")
		require.NoError(t, first.Release(t.Context()))
		time.Sleep(leg)
		forget(w.Servers()...)
		wall = time.Now().Add(-slack * 9 / 10)
		_, err := ls[1].TryAcquire(t.Context(), "x")
		require.ErrorIs(t, err, redlock.ErrQuarantine)
		time.Sleep(slack + redlock.Drift(short) + 2*rtt)
		wall = time.Now().Add(-slack * 9 / 10)
		second := take(t, ls[1], "x")
		assert.Greater(t, second.Fence(), first.Fence())
	})
}

// TestASplitTokenIsSettled: the proposal is at the edge of what nodes accept,
// whose clocks differ, and there is no node to spare. No client is starved by it.
func TestASplitTokenIsSettled(t *testing.T) {
	for _, edge := range []time.Duration{-leg, 0, leg, 20 * leg} {
		t.Run(edge.String(), func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				for i, step := range []time.Duration{50, -50, 50, -50} {
					w.Servers()[i].Step(step * time.Millisecond)
				}
				w.Servers()[4].Crash()
				ahead, exact := fencing(t, w, ttl/6+edge), fencing(t, w, 0)
				last := int64(0)
				for range 10 {
					for _, l := range []*redlock.Locker{ahead, exact} {
						k := take(t, l, "x")
						assert.Greater(t, k.Fence(), last)
						last = k.Fence()
						require.NoError(t, k.Release(t.Context()))
						time.Sleep(rtt)
					}
				}
			})
		})
	}
}

// TestTokensDoNotClimb by clients who are each a little ahead of the one before:
// what they get stays near to the nodes' clocks.
func TestTokensDoNotClimb(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		last := int64(0)
		for i := range 30 {
			k := take(t, fencing(t, w, time.Duration(i)*ttl/6), "x")
			assert.Greater(t, k.Fence(), last)
			last = k.Fence()
			require.NoError(t, k.Release(t.Context()))
		}
		assert.Less(t, time.Until(time.UnixMicro(last)), 2*ttl/5)
	})
}

// TestWithoutATokenTheNextTryWaits, lest it keep others from theirs.
func TestWithoutATokenTheNextTryWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ps, l := puppets(t, 3, func(_ int, op protocol.Op, _ int) answer {
			if op == protocol.OpAcquireFenced || op == protocol.OpRaise {
				return answer{outcome: protocol.Granted, floor: 1000}
			}
			return grants
		}, redlock.Fenced())
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := l.Acquire(ctx, "x")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		tries, _ := ps[0].requests(protocol.OpAcquireFenced)
		assert.Less(t, len(tries), 150)
		assert.Greater(t, len(tries), 20)
	})
}

// TestANodeInQuarantineDoesNotSettleAToken either: it has lost its counter.
func TestANodeInQuarantineDoesNotSettleAToken(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		ls := settled(t, w, 2, redlock.Fenced(), timetest.Wall(func() time.Time { return time.Now().Add(ttl / 4) }))
		behind := fencing(t, w, -ttl/4, redlock.MemoryGuard(true))
		first := take(t, ls[0], "x")
		require.NoError(t, first.Release(t.Context()))
		time.Sleep(rtt)
		forget(w.Servers()[3:]...)
		w.Servers()[0].Hang()
		second, err := behind.TryAcquire(t.Context(), "x")
		require.Error(t, err, "two nodes remember, and three are needed: %v", second)
	})
}

// TestTokensOfOneProcessDiffer, however many are asked for at one moment.
func TestTokensOfOneProcessDiffer(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l := fencing(t, w, 0)
		var mu sync.Mutex
		seen := map[int64]bool{}
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				k, err := l.TryAcquire(t.Context(), fmt.Sprint("x", i))
				if assert.NoError(t, err) {
					mu.Lock()
					defer mu.Unlock()
					seen[k.Fence()] = true
				}
			})
		}
		all.Wait()
		assert.Len(t, seen, 100)
	})
}

// grabbed starts callers of one process that acquire x, and release it at once. The channel has the
// locks in the order in which they were granted, and is closed behind the last.
func grabbed(t *testing.T, l *redlock.Locker, n int, opts ...redlock.Option) <-chan *redlock.Lock {
	t.Helper()
	got := make(chan *redlock.Lock, n)
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			k, err := l.Acquire(t.Context(), "x", opts...)
			if assert.NoError(t, err) {
				got <- k
				assert.NoError(t, k.Release(t.Context()))
			}
		})
	}
	synctest.Wait() // they stand in line
	go func() {
		all.Wait()
		close(got)
	}()
	return got
}

// TestTokensRiseThroughHandovers without a message to the nodes, and across processes, whatever
// their clocks say.
func TestTokensRiseThroughHandovers(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		last, handed := int64(0), 0
		rises := func(k *redlock.Lock) {
			assert.Greater(t, k.Fence(), last)
			last = k.Fence()
		}
		for _, ahead := range []time.Duration{0, -ttl / 8, ttl / 8, 0, -time.Hour} {
			l, other := fencing(t, w, ahead), fencing(t, w, 0)
			holder := take(t, other, "x")
			rises(holder)
			got := grabbed(t, l, 20)
			require.NoError(t, holder.Release(t.Context()))
			value := ""
			for k := range got {
				rises(k)
				if k.Value() == value {
					handed++
				}
				value = k.Value()
			}
			next := take(t, other, "x")
			rises(next)
			require.NoError(t, next.Release(t.Context()))
			time.Sleep(rtt)
		}
		assert.Equal(t, 5*19, handed)
	})
}

// TestASessionHandsOutNoMoreTokensThanItReserved on the nodes.
func TestASessionHandsOutNoMoreTokensThanItReserved(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		holder := take(t, fencing(t, w, 0), "x")
		got := grabbed(t, fencing(t, w, 0), 400)
		require.NoError(t, holder.Release(t.Context()))
		holders, last := map[string]int{}, holder.Fence()
		most := 0
		for k := range got {
			holders[k.Value()]++
			most = max(most, holders[k.Value()])
			assert.Greater(t, k.Fence(), last)
			last = k.Fence()
		}
		assert.Equal(t, 256, most)
	})
}

// TestTokensRiseWhenAHolderOfManyCrashes: what it has handed out is below what follows, also
// where the clock of the next client is behind.
func TestTokensRiseWhenAHolderOfManyCrashes(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		wall := func(ahead time.Duration) redlock.LockerOption {
			return timetest.Wall(func() time.Time { return time.Now().Add(ahead) })
		}
		l, process := open(t, w, redlock.TTL(ttl), redlock.Fenced(), wall(0))
		holder := take(t, l, "x")
		var last *redlock.Lock
		for range 100 {
			var held sync.WaitGroup
			held.Add(1)
			go func(before *redlock.Lock) {
				defer held.Done()
				k, err := l.Acquire(t.Context(), "x")
				if assert.NoError(t, err) {
					assert.Greater(t, k.Fence(), before.Fence())
					last = k
				}
			}(holder)
			synctest.Wait()
			require.NoError(t, holder.Release(t.Context()))
			held.Wait()
			holder = last
		}
		process.Crash()
		next, err := fencing(t, w, -time.Second).Acquire(t.Context(), "x")
		require.NoError(t, err)
		assert.Greater(t, next.Fence(), last.Fence())
	})
}

// TestALockIsHandedOverAmongCallersWithTokens, or among those without.
func TestALockIsHandedOverAmongCallersWithTokens(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		for _, c := range []struct{ first, second []redlock.Option }{
			{nil, []redlock.Option{redlock.Fenced()}},
			{[]redlock.Option{redlock.Fenced()}, nil},
		} {
			holder := take(t, l, "x", c.first...)
			got := grabbed(t, l, 2, c.second...)
			require.NoError(t, holder.Release(t.Context()))
			for k := range got {
				assert.NotEqual(t, holder.Value(), k.Value())
				assert.Equal(t, c.second != nil, k.Fence() > 0)
			}
			time.Sleep(rtt)
		}
	})
}

// TestWhoIsAloneReservesOneToken: what is reserved in vain can cost the next holder a round trip.
func TestWhoIsAloneReservesOneToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ps, l := puppets(t, 3, func(int, protocol.Op, int) answer { return grants }, redlock.Fenced())
		for range 2 {
			k, err := l.Acquire(t.Context(), "x")
			require.NoError(t, err)
			require.NoError(t, k.Release(t.Context()))
		}
		reqs, _ := ps[0].requests(protocol.OpAcquireFenced)
		require.Len(t, reqs, 2)
		for _, req := range reqs {
			assert.Equal(t, int64(1), req.Block)
		}
	})
}

// TestARaiseIsForNoMoreTokensThanTimeHasPassed, because they would run ahead of the clocks. Here no
// time passes.
func TestARaiseIsForNoMoreTokensThanTimeHasPassed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ps, l := puppets(t, 3, func(_ int, op protocol.Op, nth int) answer {
			if op == protocol.OpAcquireFenced && nth > 0 {
				return answer{outcome: protocol.Granted, floor: time.Now().Add(time.Second).UnixMicro()}
			}
			return grants
		}, redlock.Fenced())
		holder := take(t, l, "x")
		got := grabbed(t, l, 3)
		require.NoError(t, holder.Release(t.Context()))
		values := map[string]bool{}
		for k := range got {
			values[k.Value()] = true
		}
		assert.Len(t, values, 3, "there is no other token to hand over with")
		acquired, _ := ps[0].requests(protocol.OpAcquireFenced)
		assert.Greater(t, acquired[1].Block, int64(1))
		raised, _ := ps[0].requests(protocol.OpRaise)
		require.NotEmpty(t, raised)
		for _, req := range raised {
			assert.Equal(t, int64(1), req.Block)
		}
	})
}

// TestFenceIsZeroWithoutTheOption, which a single lock can have.
func TestFenceIsZeroWithoutTheOption(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		assert.Zero(t, take(t, l, "x").Fence())
		assert.Positive(t, take(t, l, "y", redlock.Fenced()).Fence())
		isOnly(t, func() error { _, err := l.TryAcquire(t.Context(), "x", redlock.Fenced()); return err }(), redlock.ErrHeld)
		isOnly(t, func() error { _, err := l.TryAcquire(t.Context(), "y"); return err }(), redlock.ErrHeld)
	})
}

// TestTokensRiseThoughQuarantinesAreShort: what nodes had accepted before they forgot may be
// further ahead of their clocks than the quarantine lasts.
func TestTokensRiseThoughQuarantinesAreShort(t *testing.T) {
	const short = time.Second
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		ahead := fencing(t, w, 1900*time.Millisecond, redlock.MemoryGuard(true), redlock.TTL(short))
		behind := fencing(t, w, -10*time.Second, redlock.MemoryGuard(true), redlock.TTL(short))
		first := waited(t, ahead, "x")
		require.NoError(t, first.Release(t.Context()))
		time.Sleep(rtt)
		forget(w.Servers()...)
		begin := time.Now()
		second := waited(t, behind, "x")
		assert.Greater(t, second.Fence(), first.Fence())
		assert.Less(t, time.Since(begin), 5*time.Second, "a raise reaches what may have been accepted")
	})
}

// TestATokenOutOfReachIsAQuarantine: a raise reaches above all that new servers may have
// accepted two seconds after their birth. Shorter locks wait for that, as for a quarantine.
func TestATokenOutOfReachIsAQuarantine(t *testing.T) {
	const short = 500 * time.Millisecond
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		begin := time.Now()
		plain, _ := guarded(t, w, redlock.TTL(short))
		waited(t, plain, "x")
		require.Less(t, time.Since(begin), 3*short)

		l, _ := guarded(t, w, redlock.TTL(short), redlock.Fenced())
		_, err := l.TryAcquire(t.Context(), "y")
		isOnly(t, err, redlock.ErrNoQuorum)
		assert.ErrorContains(t, err, "forgotten higher fencing tokens")
		for _, left := range quarantined(err) {
			if left > 0 { // not one that has only to be asked again
				assert.InDelta(t, 2*time.Second-time.Since(begin), left, float64(short))
			}
		}
		k, err := l.Acquire(t.Context(), "y")
		require.NoError(t, err)
		assert.Positive(t, k.Fence())
		assert.Less(t, time.Since(begin), 2*time.Second+short)
	})
}
