package redlock_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// slotKey returns the key of a slot of x.
func slotKey(slot int) string {
	if slot == 0 {
		return "x"
	}
	return fmt.Sprintf("redlock:permit:%d:{x}", slot)
}

// gateKey returns the key of the lock that orders the waiters for one of k permits of x.
func gateKey(k int) string { return fmt.Sprintf("redlock:permit:gate:%d:{x}", k) }

// permitOf returns the value that another client's permit of k has on the servers.
func permitOf(k int) string { return strings.Repeat("a", 40) + fmt.Sprintf(" permits=%d", k) }

// permitsOf returns the permits of the locks. It fails the test if two permits are the same.
func permitsOf(t *testing.T, locks ...*redlock.Lock) map[int]bool {
	t.Helper()
	permits := map[int]bool{}
	for _, k := range locks {
		assert.False(t, permits[k.Permit()], "permit %d twice", k.Permit())
		permits[k.Permit()] = true
	}
	return permits
}

func TestAtMostKPermitsAreGranted(t *testing.T) {
	for _, k := range []int{2, 3, 5, 17} {
		simulateCase(t, fmt.Sprint(k), 5, func(t *testing.T, w *sim.World) {
			var locks []*redlock.Lock
			for range k { // each holder is in its own process
				l, _ := open(t, w)
				locks = append(locks, take(t, l, "x", redlock.Permits(k)))
			}
			permits := permitsOf(t, locks...)
			time.Sleep(rtt)
			for slot := range k {
				assert.True(t, permits[slot], "permit %d of %d", slot, k)
				assert.Equal(t, 5, holding(w, slotKey(slot)), "slot %d", slot)
			}
			l, _ := open(t, w)
			_, err := l.TryAcquire(t.Context(), "x", redlock.Permits(k))
			require.ErrorIs(t, err, redlock.ErrHeld)
			assert.ErrorContains(t, err, fmt.Sprintf("all %d permits are held", k))
			var failed *redlock.QuorumError
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, k, failed.Permits)
			for _, lock := range locks {
				require.NoError(t, lock.Release(t.Context()))
			}
			time.Sleep(rtt)
			for slot := range k {
				assert.Zero(t, holding(w, slotKey(slot)), "slot %d", slot)
			}
		})
	}
}

// TestShortestPermitIsReported: the error has the time until the first permit is free.
func TestShortestPermitIsReported(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		for _, ttl := range []time.Duration{time.Hour, time.Minute, time.Hour / 2} {
			take(t, l, "x", redlock.Permits(3), redlock.TTL(ttl), redlock.Renew(false))
		}
		_, err := l.TryAcquire(t.Context(), "x", redlock.Permits(3))
		var failed *redlock.QuorumError
		require.ErrorAs(t, err, &failed)
		assert.LessOrEqual(t, failed.Remaining, time.Minute)
		assert.Greater(t, failed.Remaining, 59*time.Second)
	})
}

func TestInvalidPermitsAreRefused(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.Permits(5), redlock.Weight(2))
		for text, opts := range map[string][]redlock.Option{
			"Permits(-1): must be between 1 (the exclusive lock) and 1000": {redlock.Permits(-1)},
			"Permits(0): must be between 1":                                {redlock.Permits(0)},
			"Permits(1001): must be between 1":                             {redlock.Permits(1001)},
			"Weight(0): must be between 1 and 128":                         {redlock.Weight(0)},
			"Weight(129): must be between 1 and 128":                       {redlock.Weight(129)},
			"Weight(6): there are 5 permits":                               {redlock.Weight(6)},
			"Weight(2): there are 1 permits":                               {redlock.Permits(1)},
			"Weight(2): a fencing token belongs to one permit":             {redlock.Fenced()},
			"Permits(5): cannot be combined with Fair":                     {redlock.Fair()},
			"Shared: any number of readers hold a lock ":                   {redlock.Shared()},
		} {
			assert.ErrorContains(t, errOf(l.TryAcquire(t.Context(), "x", opts...)), text)
		}
		assert.Equal(t, []int{0}, take(t, l, "z", redlock.Exclusive()).Permits())
		assert.Len(t, take(t, l, "x").Permits(), 2)
		take(t, l, "y", redlock.Permits(1000))
	})
}

// TestPermitsExcludeOtherKindsOfLocks: locks without permits, readers, and permits of another
// number, in any slot. The error names the kind, and no key is left.
func TestPermitsExcludeOtherKindsOfLocks(t *testing.T) {
	five := redlock.Permits(5)
	for says, hold := range map[string]func(t *testing.T, other *redlock.Locker) []*redlock.Lock{
		"held by a lock without permits": func(t *testing.T, other *redlock.Locker) []*redlock.Lock {
			return []*redlock.Lock{take(t, other, "x")}
		},
		"held by web-3 since 2000-01-01T00:00:00Z; held by a lock without permits": func(t *testing.T, other *redlock.Locker) []*redlock.Lock {
			return []*redlock.Lock{take(t, other, "x", redlock.Owner("web-3"))}
		},
		"held by a lock without permits; free in ": func(t *testing.T, other *redlock.Locker) []*redlock.Lock {
			return []*redlock.Lock{take(t, other, "x", redlock.Shared())}
		},
		"held by permits of 5": func(t *testing.T, other *redlock.Locker) (last []*redlock.Lock) {
			for range 5 {
				if k := take(t, other, "x", five); k.Permit() < 4 {
					defer k.Release(t.Context())
				} else {
					last = append(last, k)
				}
			}
			return last
		},
	} {
		simulateCase(t, says, 5, func(t *testing.T, w *sim.World) {
			l, other := two(t, w, longest)
			held := hold(t, other)
			for _, k := range []int{2, 3, 7} {
				for range 5 {
					err := isHeld(t, l, "x", redlock.Permits(k))
					assert.ErrorContains(t, err, says)
					assert.NotContains(t, err.Error(), "permits are held")
					var failed *redlock.QuorumError
					require.ErrorAs(t, err, &failed)
					assert.Zero(t, failed.Permits)
					assert.Positive(t, failed.Beside)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			_, err := l.Acquire(ctx, "x", redlock.Permits(3))
			isOnly(t, err, context.DeadlineExceeded)
			assert.ErrorContains(t, err, says)
			time.Sleep(rtt)
			onAll(w, func(s *sim.Server) { assert.Len(t, s.Locks(), 1) })

			got := waits(t.Context(), t, l, redlock.Permits(3), redlock.Weight(2))
			time.Sleep(time.Second)
			require.NoError(t, held[0].Release(t.Context()))
			start := time.Now()
			assert.Len(t, (<-got).Permits(), 2)
			assert.Less(t, time.Since(start), 250*time.Millisecond)
		})
	}
}

// TestLockWithoutPermitsIgnoresPermits: the lock costs no more than without permits, and only the
// first permit excludes it.
func TestLockWithoutPermitsIgnoresPermits(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, other := two(t, w)
		var held []*redlock.Lock
		for range 3 {
			held = append(held, take(t, l, "x", redlock.Permits(3)))
		}
		isHeld(t, other, "x")
		for _, k := range held {
			if k.Permit() == 0 {
				require.NoError(t, k.Release(t.Context()))
			}
		}
		r := recorded(w)
		take(t, other, "x")
		assert.Empty(t, r.of(sim.Submitted, protocol.OpKind))
		isHeld(t, l, "x", redlock.Permits(3))
	})
}

// TestFirstPermitsCostOneVote: each of them costs as much as an exclusive lock.
func TestFirstPermitsCostOneVote(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		r := recorded(w)
		const k = 8
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for range k { // no caller tries a slot that another caller of its process holds
			assert.Equal(t, rtt, took(func() {
				_, err := l.Acquire(ctx, "x", redlock.Permits(k))
				require.NoError(t, err)
			}))
		}
		assert.Empty(t, r.of(sim.Submitted, protocol.OpSlots))
		assert.Len(t, r.of(sim.Submitted, protocol.OpAcquire), k*5)
	})
}

// TestFreePermitIsFound: a single try and a waiter find a free slot at any index. One node has a
// leftover key in the slot, or two nodes are down.
func TestFreePermitIsFound(t *testing.T) {
	for name, acquire := range map[string]func(*redlock.Locker, context.Context, string, ...redlock.Option) (*redlock.Lock, error){
		"TryAcquire": (*redlock.Locker).TryAcquire, "Acquire": (*redlock.Locker).Acquire,
	} {
		simulateCase(t, name, 5, func(t *testing.T, w *sim.World) {
			const k = 100
			onAll(w, func(s *sim.Server) {
				for slot := range k {
					s.Set(slotKey(slot), permitOf(k), time.Hour)
				}
			})
			for free := range k {
				if free == k/2 { // the other nodes have a majority
					w.Servers()[1].Crash()
					w.Servers()[3].Crash()
				}
				for i, s := range w.Servers() {
					if free >= k/2 || i != free%5 {
						s.Del(slotKey(free))
					}
				}
				l, _ := open(t, w)
				start := time.Now()
				lock, err := acquire(l, t.Context(), "x", redlock.Permits(k))
				require.NoError(t, err)
				assert.Equal(t, free, lock.Permit())
				assert.LessOrEqual(t, time.Since(start), 5*rtt, "slot %d: a vote, its release, the gate, a question and a vote", free)
				onAll(w, func(s *sim.Server) { s.Set(slotKey(free), permitOf(k), time.Hour) })
			}
		})
	}
}

// TestReleaseOfAnyPermitWakesAWaiter: a hint wakes the waiter.
func TestReleaseOfAnyPermitWakesAWaiter(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		const k = 12
		holder, _ := open(t, w, redlock.TTL(time.Hour))
		waiter, _ := open(t, w, longest)
		locks := map[int]*redlock.Lock{}
		for range k {
			lock := take(t, holder, "x", redlock.Permits(k))
			locks[lock.Permit()] = lock
		}
		for permit := range k {
			got := waits(t.Context(), t, waiter, redlock.Permits(k))
			time.Sleep(time.Second)
			r := recorded(w)
			for len(r.of(sim.Replied, protocol.OpSlots)) == 0 { // the next question is not due for a while
				time.Sleep(rtt)
				synctest.Wait()
			}
			start := time.Now()
			go locks[permit].Release(t.Context())
			lock := <-got
			assert.Equal(t, permit, lock.Permit())
			assert.LessOrEqual(t, time.Since(start), leg+hinted)
			locks[permit] = lock
		}
	})
}

// TestPermitIsHandedOverWithinAProcess: any holder hands its permit, with the slot, to the first
// waiter.
func TestPermitIsHandedOverWithinAProcess(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		var locks []*redlock.Lock
		for range 3 {
			locks = append(locks, take(t, l, "x", redlock.Permits(3)))
		}
		time.Sleep(rtt)
		first := waits(t.Context(), t, l, redlock.Permits(3))
		second := waits(t.Context(), t, l, redlock.Permits(3))
		time.Sleep(3 * rtt) // the first waiter is at the gate
		r := recorded(w)
		for i, got := range []<-chan *redlock.Lock{first, second} {
			lock := locks[2-i]
			start := time.Now()
			require.NoError(t, lock.Release(t.Context()))
			next := <-got
			assert.Zero(t, time.Since(start))
			assert.Equal(t, lock.OwnValue(), next.OwnValue())
			assert.Equal(t, lock.Permit(), next.Permit())
			assert.ErrorIs(t, context.Cause(lock.Context()), redlock.ErrReleased)
			synctest.Wait() // the gate is handed over as well
		}
		for _, s := range r.of(sim.Submitted, protocol.OpRelease) {
			assert.Equal(t, gateKey(3), s.Key, "and given back by the last")
		}
	})
}

// TestEventsContainThePermit: the events begin with the winning try and end with the permit. They
// do not mention other locks.
func TestEventsContainThePermit(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		rec := &recorder{}
		book, log := newLogbook(slog.LevelDebug)
		l, _ := open(t, w, redlock.Observe(rec), redlock.Log(log))
		about := []redlock.EventKind{redlock.EventAttempt, redlock.EventAcquired, redlock.EventExtended, redlock.EventReleased, redlock.EventLost}
		k := take(t, l, "y", redlock.Permits(1000))
		require.NoError(t, k.Extend(t.Context()))
		require.NoError(t, k.Release(t.Context()))
		lost := take(t, l, "y", redlock.Permits(1000))
		time.Sleep(watchedAt)
		events := rec.take(about...)
		require.Len(t, events, 6)
		onAll(w, (*sim.Server).Flush)
		<-lost.Context().Done()
		time.Sleep(rtt)
		for i, e := range append(events, rec.take(about...)...) {
			assert.Equal(t, 1000, e.Permits, e.Kind)
			assert.Equal(t, []int{k.Permit(), lost.Permit()}[i/4], e.Permit, e.Kind)
		}
		records := book.take(t)
		assert.Contains(t, titles(records), "ERROR lock lost")
		for _, r := range records {
			if r["msg"] == "redlock: lock lost" {
				assert.EqualValues(t, lost.Permit(), r["permit"])
			}
		}

		require.NoError(t, take(t, l, "plain").Release(t.Context()))
		for _, e := range rec.take(about...) {
			assert.Zero(t, e.Permits)
		}
		for _, r := range book.take(t) {
			assert.NotContains(t, r, "permit")
		}
	})
}

// TestLostVoteForOnePermitConcernsOnlyThatPermit: other permits may be free.
func TestLostVoteForOnePermitConcernsOnlyThatPermit(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		onAll(w, func(s *sim.Server) { s.Set(slotKey(1), permitOf(2), time.Hour) })
		for lost := false; !lost; { // until the first try of a caller is for permit 1
			rec := &recorder{}
			l, _ := open(t, w, redlock.Observe(rec))
			require.NoError(t, take(t, l, "x", redlock.Permits(2)).Release(t.Context()))
			for _, e := range rec.take(redlock.EventAttempt) {
				if e.Err != nil {
					lost = true
					assert.Equal(t, 1, e.Permit)
					assert.NotContains(t, e.Err.Error(), "permits")
				}
			}
		}
	})
}

// TestWaiterForPermitsLearnsTheObstacle: the context may end at any time, even during a try that
// has no answers yet.
func TestWaiterForPermitsLearnsTheObstacle(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		holder, _ := open(t, w, redlock.Owner("the holder"))
		take(t, holder, "x", redlock.Permits(2))
		take(t, holder, "x", redlock.Permits(2))
		l, _ := open(t, w)
		for wait := 500 * time.Millisecond; wait < 800*time.Millisecond; wait += 3 * time.Millisecond {
			time.Sleep(2 * rtt) // a caller that arrives while another is at the gate asks for no slot
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			_, err := l.Acquire(ctx, "x", redlock.Permits(2))
			cancel()
			isOnly(t, err, context.DeadlineExceeded)
			var failed *redlock.QuorumError
			require.ErrorAs(t, err, &failed)
			require.Equal(t, "the holder", failed.Holder.Owner, "after %v: %v", wait, err)
		}
	})
}

// TestOneHeldPermitIsNotAll: a waiter that has tried one permit does not know the state of the others.
func TestOneHeldPermitIsNotAll(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, unspread) // this Locker draws slot 0
		onAll(w, func(s *sim.Server) { s.Set("x", permitOf(3), time.Hour); s.Set(gateKey(3), "another", time.Hour) })
		for _, wait := range []time.Duration{leg, ttl} { // the end is in the vote, or at the gate
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			_, err := l.Acquire(ctx, "x", redlock.Permits(3))
			cancel()
			var failed *redlock.QuorumError
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, wait > leg, failed.Kind() == redlock.ErrHeld, "%v", err)
			assert.Zero(t, failed.Permits, "%v", err)
			assert.NotContains(t, err.Error(), "permits")
		}
	})
}

// TestOldQuestionAboutPermitsIsNotAnOutage: the first caller at the gate asks the nodes itself.
func TestOldQuestionAboutPermitsIsNotAnOutage(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.Patience(time.Second))
		for slot := range 3 {
			onAll(w, func(s *sim.Server) { s.Set(slotKey(slot), permitOf(3), time.Hour) })
		}
		waits := func(until time.Duration) (context.CancelFunc, <-chan error) {
			ctx, cancel := context.WithTimeout(t.Context(), until)
			ended := make(chan error, 1)
			go func() { ended <- errOf(l.Acquire(ctx, "x", redlock.Permits(3))) }()
			time.Sleep(ttl)
			return cancel, ended
		}
		leave, first := waits(time.Hour)
		defer leave()
		stop, second := waits(4 * ttl)
		defer stop()
		onEach(w.Servers()[:3], (*sim.Server).Crash)
		time.Sleep(500 * time.Millisecond) // the first caller has asked, and knows that no node answered
		onAll(w, func(s *sim.Server) { s.Set(gateKey(3), "another", ttl) })
		leave()
		onEach(w.Servers(), (*sim.Server).Restart)
		<-first
		assert.ErrorIs(t, <-second, context.DeadlineExceeded)
	})
}

// TestNodeCannotCauseTooManyPermits: the node may give any answer.
func TestNodeCannotCauseTooManyPermits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ps, l := puppets(t, 1, func(_ int, op protocol.Op, _ int) answer {
			switch op {
			case protocol.OpSlots:
				return answer{outcome: protocol.Granted, free: []int{3, -1, 1 << 30, 1000}}
			case protocol.OpAcquire:
				return answer{outcome: protocol.Refused}
			}
			return answer{outcome: protocol.Refused, ttl: time.Hour}
		}, redlock.MemoryGuard(false))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, waited := l.Acquire(ctx, "x", redlock.Permits(3))
		reqs, _ := ps[0].requests(protocol.OpAcquire)
		require.NotEmpty(t, reqs)
		for _, r := range reqs {
			require.Contains(t, []string{slotKey(0), slotKey(1), slotKey(2), gateKey(3)}, r.Key)
		}
		require.ErrorIs(t, waited, context.DeadlineExceeded)
		require.ErrorIs(t, errOf(l.TryAcquire(t.Context(), "x", redlock.Permits(3))), redlock.ErrHeld)
	})
}

func TestTokensRisePerPermit(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, other := two(t, w)
		highest := map[int]int64{}
		for i := range 12 {
			from := []*redlock.Locker{l, other}[i%2]
			both := []*redlock.Lock{take(t, from, "x", redlock.Permits(2), redlock.Fenced()), take(t, l, "x", redlock.Permits(2), redlock.Fenced())}
			permitsOf(t, both...)
			for _, k := range both {
				assert.Greater(t, k.Fence(), highest[k.Permit()])
				highest[k.Permit()] = k.Fence()
				require.NoError(t, k.Release(t.Context()))
			}
		}
		keys := w.Servers()[0].Keys()
		assert.Contains(t, keys, "redlock:fence:{x}")
		assert.Contains(t, keys, "redlock:fence:[redlock:permit:1:{x}]")
	})
}

// TestInspectPermitsReturnsEachHolder: InspectPermits waits once for the answers about all permits.
func TestInspectPermitsReturnsEachHolder(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		values := make([]string, 5)
		for range 3 {
			lock := take(t, l, "x", redlock.Permits(5))
			values[lock.Permit()] = lock.Value()
		}
		time.Sleep(rtt)
		var in []*redlock.Inspection
		var err error
		inspect := func() { in, err = l.InspectPermits(t.Context(), "x", 5) }
		assert.Equal(t, rtt, took(inspect))
		require.NoError(t, err)
		require.Len(t, in, 5)
		for slot, of := range in {
			value, _, held := of.Holder()
			assert.Equal(t, values[slot], value)
			assert.Equal(t, values[slot] != "", held)
			assert.Equal(t, "x", of.Name)
		}
		onEach(w.Servers()[:3], (*sim.Server).Hang)
		assert.Equal(t, nodeTimeout, took(inspect), "once")
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.Len(t, in, 5)
		for _, k := range []int{0, 1001} {
			_, err = l.InspectPermits(t.Context(), "x", k)
			assert.ErrorContains(t, err, "must be between 1")
		}
		_, err = l.InspectPermits(t.Context(), "", 2)
		assert.ErrorContains(t, err, "must not be empty")
		var none context.Context
		_, err = l.InspectPermits(none, "x", 2)
		assert.ErrorContains(t, err, "the context is nil")
	})
}

// weighs returns the options of a caller that wants w of five permits.
func weighs(w int) []redlock.Option { return []redlock.Option{redlock.Permits(5), redlock.Weight(w)} }

// heldSlots returns the number of the five permits that a majority holds.
func heldSlots(w *sim.World) (n int) {
	for slot := range 5 {
		if holding(w, slotKey(slot)) >= 3 {
			n++
		}
	}
	return n
}

func TestWeightIsAllOrNone(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, other := two(t, w)
		three := take(t, l, "x", weighs(3)...)
		assert.Len(t, slices.Compact(three.Permits()), 3)
		assert.Contains(t, three.Permits(), three.Permit())
		assert.Equal(t, "x", three.Name())
		for _, l := range []*redlock.Locker{l, other} {
			err := isHeld(t, l, "x", weighs(3)...)
			assert.ErrorContains(t, err, "fewer than 3 of 5 permits are free")
			time.Sleep(rtt)
			assert.Equal(t, 3, heldSlots(w), "what it had got is given back")
		}
		two := take(t, other, "x", weighs(2)...)
		assert.Len(t, slices.Compact(slices.Sorted(slices.Values(append(three.Permits(), two.Permits()...)))), 5)
		isHeld(t, l, "x", redlock.Permits(5))
		require.NoError(t, three.Extend(t.Context()))
		require.NoError(t, three.Release(t.Context()))
		require.NoError(t, two.Release(t.Context()))
		time.Sleep(rtt)
		onAll(w, func(s *sim.Server) { assert.Empty(t, s.Locks()) })
	})
}

// TestConcurrentTriesAllGetTheirWeight: there are enough permits for all. A caller that finds
// another caller at the gate tries again, because the other needs only a few round trips.
func TestConcurrentTriesAllGetTheirWeight(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		var all sync.WaitGroup
		for range 4 {
			l, _ := open(t, w)
			all.Go(func() {
				lock, err := l.TryAcquire(t.Context(), "x", redlock.Permits(8), redlock.Weight(2))
				if assert.NoError(t, err) {
					assert.Len(t, lock.Permits(), 2)
				}
			})
			time.Sleep(rtt)
		}
		all.Wait()
	})
}

// TestNodesWithoutPermitsDelayNoCaller: two nodes were down when the permits were acquired, so they
// report the permits as free. A caller gets a released permit within a few round trips.
func TestNodesWithoutPermitsDelayNoCaller(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		const k = 8
		w.SetNet(uneven(time.Millisecond / 2))
		for from, lacks := range w.Servers() {
			onAll(w, func(s *sim.Server) {
				for slot := range k {
					if s != lacks && s != w.Servers()[(from+1)%5] {
						s.Set(slotKey(slot), permitOf(k), time.Hour)
					}
				}
			})
			ctx, cancel := context.WithCancel(t.Context())
			got := make(chan *redlock.Lock)
			var all sync.WaitGroup
			for range 4 {
				l, _ := open(t, w)
				all.Go(func() {
					if lock, err := l.Acquire(ctx, "x", redlock.Permits(k)); err == nil {
						got <- lock
						<-ctx.Done()
						assert.NoError(t, lock.Release(t.Context()))
					}
				})
			}
			for slot := range 2 {
				time.Sleep(time.Second / 2)
				start := time.Now()
				onAll(w, func(s *sim.Server) {
					if s.Keys()[slotKey(slot)] == permitOf(k) { // a waiter that tries the slot has another value
						s.Del(slotKey(slot))
					}
				})
				assert.Equal(t, slot, (<-got).Permit())
				assert.LessOrEqual(t, time.Since(start), 100*time.Millisecond, "from node %d", from)
			}
			cancel()
			all.Wait()
			time.Sleep(time.Second)
			forget(w.Servers()...)
		}
	})
}

// TestPermitsSeeALockThatAServerForgot: the answer of a server in quarantine does not prove that there is no lock.
func TestPermitsSeeALockThatAServerForgot(t *testing.T) {
	for _, first := range []int{0, 1, 2} { // each server answers last once
		simulateCase(t, fmt.Sprint(first), 3, func(t *testing.T, w *sim.World) {
			l, holder := open(t, w, redlock.MemoryGuard(true))
			b, _ := open(t, w, redlock.MemoryGuard(true))
			s := w.Servers()
			time.Sleep(2 * ttl)
			_, err := b.Acquire(t.Context(), "warm")
			require.NoError(t, err)
			lock, err := l.Acquire(t.Context(), "x")
			require.NoError(t, err)
			ends := time.Now().Add(lock.Remaining())
			holder.Pause() // the holder repairs no key
			s[(first+2)%3].Del("x")
			s[first].Flush()
			for ; time.Now().Before(ends); time.Sleep(ttl / 20) {
				permit, err := b.TryAcquire(t.Context(), "x", redlock.Permits(3), redlock.Renew(false))
				if err == nil && time.Now().Before(ends) {
					t.Fatalf("permit %d is held next to a lock", permit.Permit())
				}
			}
		})
	}
}
