package redlock_test

import (
	"context"
	"fmt"
	"log/slog"
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

// slotKey is the key of a slot of x.
func slotKey(slot int) string {
	if slot == 0 {
		return "x"
	}
	return fmt.Sprintf("redlock:permit:%d:{x}", slot)
}

// gateKey is the key of the lock that orders those who wait for one of k permits of x.
func gateKey(k int) string { return fmt.Sprintf("redlock:permit:gate:%d:{x}", k) }

// permitsOf returns the permits of locks, and fails if two are the same.
func permitsOf(t *testing.T, locks ...*redlock.Lock) map[int]bool {
	t.Helper()
	permits := map[int]bool{}
	for _, k := range locks {
		assert.False(t, permits[k.Permit()], "permit %d twice", k.Permit())
		permits[k.Permit()] = true
	}
	return permits
}

func TestKPermitsAndNoMore(t *testing.T) {
	for _, k := range []int{2, 3, 5, 17} {
		t.Run(fmt.Sprint(k), func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				var locks []*redlock.Lock
				for range k { // of a process each
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
		})
	}
}

// TestTheShortestPermitIsToldOf: the error says when the first of them is free.
func TestTheShortestPermitIsToldOf(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		for _, ttl := range []time.Duration{time.Hour, time.Minute, 2 * time.Hour} {
			take(t, l, "x", redlock.Permits(3), redlock.TTL(ttl), redlock.Renew(false))
		}
		_, err := l.TryAcquire(t.Context(), "x", redlock.Permits(3))
		var failed *redlock.QuorumError
		require.ErrorAs(t, err, &failed)
		assert.LessOrEqual(t, failed.Remaining, time.Minute)
		assert.Greater(t, failed.Remaining, 59*time.Second)
	})
}

func TestPermitsMustBeFrom1To1000(t *testing.T) {
	t.Parallel()
	_, l := puppets(t, 1, func(int, protocol.Op, int) answer { return answer{outcome: protocol.Granted} })
	for _, k := range []int{-1, 0, 1001} {
		_, err := l.TryAcquire(t.Context(), "x", redlock.Permits(k))
		assert.ErrorContains(t, err, fmt.Sprintf("Permits(%d): must be between 1 (the exclusive lock) and 1000", k))
	}
	_, err := l.TryAcquire(t.Context(), "x", redlock.Permits(2), redlock.Fair())
	assert.ErrorContains(t, err, "leave Fair out")
	for _, k := range []int{1, 1000} {
		_, err := l.TryAcquire(t.Context(), fmt.Sprint("y", k), redlock.Permits(k))
		assert.NoError(t, err)
	}
	assert.True(t, redlock.Reserved("redlock:permit:1:{x}"))
	_, err = l.TryAcquire(t.Context(), "redlock:permit:1:{x}")
	assert.ErrorContains(t, err, "choose another name")
}

// TestOnePermitIsTheExclusiveLock, for all who take that.
func TestOnePermitIsTheExclusiveLock(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		other, _ := open(t, w)
		r := recorded(w)
		lock := take(t, l, "x", redlock.Permits(1))
		assert.Zero(t, lock.Permit())
		_, err := other.TryAcquire(t.Context(), "x")
		assert.ErrorIs(t, err, redlock.ErrHeld)
		assert.Empty(t, r.of(sim.Submitted, protocol.OpSlots))
		time.Sleep(rtt)
		got := waits(t.Context(), t, l)
		value := lock.Value()
		require.NoError(t, lock.Release(t.Context()))
		assert.Equal(t, value, (<-got).Value(), "handed over to a plain caller")
	})
}

// TestAPlainLockIsOneOfThePermits.
func TestAPlainLockIsOneOfThePermits(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		plain := take(t, l, "x")
		a, b := take(t, l, "x", redlock.Permits(3)), take(t, l, "x", redlock.Permits(3))
		permitsOf(t, plain, a, b)
		_, err := l.TryAcquire(t.Context(), "x", redlock.Permits(3))
		assert.ErrorIs(t, err, redlock.ErrHeld)
		require.NoError(t, plain.Release(t.Context()))
		assert.Zero(t, take(t, l, "x", redlock.Permits(3)).Permit())
		_, err = l.TryAcquire(t.Context(), "x")
		assert.ErrorIs(t, err, redlock.ErrHeld)
	})
}

// TestOfDifferentNumbersTheHighestCounts.
func TestOfDifferentNumbersTheHighestCounts(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		other, _ := open(t, w)
		var locks []*redlock.Lock
		for range 3 {
			locks = append(locks, take(t, l, "x", redlock.Permits(3)))
		}
		for _, k := range locks {
			assert.Less(t, k.Permit(), 3)
		}
		for range 2 {
			locks = append(locks, take(t, other, "x", redlock.Permits(5)))
		}
		permitsOf(t, locks...)
		for _, from := range []*redlock.Locker{l, other} {
			for _, k := range []int{1, 3, 5} {
				_, err := from.TryAcquire(t.Context(), "x", redlock.Permits(k))
				assert.ErrorIs(t, err, redlock.ErrHeld, "%d permits", k)
			}
		}
		require.NoError(t, locks[3].Release(t.Context())) // slot 3 or 4
		_, err := l.TryAcquire(t.Context(), "x", redlock.Permits(3))
		assert.ErrorIs(t, err, redlock.ErrHeld, "not its slot")
		assert.Equal(t, locks[3].Permit(), take(t, l, "x", redlock.Permits(5)).Permit())
	})
}

// TestCallersWithOtherNumbersDoNotWaitForEachOther in one process: who may use fewer slots has
// no business with the rest.
func TestCallersWithOtherNumbersDoNotWaitForEachOther(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		take(t, l, "x", redlock.Permits(2))
		take(t, l, "x", redlock.Permits(2))
		few := waits(t.Context(), t, l, redlock.Permits(2))
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		more, err := l.Acquire(ctx, "x", redlock.Permits(3))
		require.NoError(t, err)
		assert.Equal(t, 2, more.Permit())
		assert.Empty(t, few)
	})
}

// TestTheFirstPermitsCostOneVote each, as an exclusive lock does.
func TestTheFirstPermitsCostOneVote(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		r := recorded(w)
		const k = 8
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for range k { // no caller tries a slot that another of its process holds
			assert.Equal(t, rtt, took(func() {
				_, err := l.Acquire(ctx, "x", redlock.Permits(k))
				require.NoError(t, err)
			}))
		}
		assert.Empty(t, r.of(sim.Submitted, protocol.OpSlots))
		assert.Len(t, r.of(sim.Submitted, protocol.OpAcquire), k*5)
	})
}

// TestThePermitThatIsLeftIsFoundAgain and again: a vote for one drawn by lot, its release, the gate, a question, and a
// vote.
func TestThePermitThatIsLeftIsFoundAgain(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		others, _ := open(t, w)
		for range 19 {
			take(t, others, "x", redlock.Permits(20))
		}
		l, _ := open(t, w)
		lock := take(t, l, "x", redlock.Permits(20))
		for range 10 {
			permit := lock.Permit()
			require.NoError(t, lock.Release(t.Context()))
			assert.LessOrEqual(t, took(func() { lock = take(t, l, "x", redlock.Permits(20)) }), 5*rtt)
			assert.Equal(t, permit, lock.Permit())
		}
	})
}

// TestAFreePermitIsFound wherever it is, by one who tries once as by one who waits.
func TestAFreePermitIsFound(t *testing.T) {
	for name, acquire := range map[string]func(*redlock.Locker, context.Context, string, ...redlock.Option) (*redlock.Lock, error){
		"TryAcquire": (*redlock.Locker).TryAcquire, "Acquire": (*redlock.Locker).Acquire,
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				const k = 100
				onAll(w, func(s *sim.Server) {
					for slot := range k {
						s.Set(slotKey(slot), "another", time.Hour)
					}
				})
				for free := range k {
					if free == k/2 { // the rest with a majority
						w.Servers()[1].Crash()
						w.Servers()[3].Crash()
					}
					onAll(w, func(s *sim.Server) { s.Del(slotKey(free)) })
					l, _ := open(t, w)
					start := time.Now()
					lock, err := acquire(l, t.Context(), "x", redlock.Permits(k))
					require.NoError(t, err)
					assert.Equal(t, free, lock.Permit())
					assert.LessOrEqual(t, time.Since(start), 5*rtt, "slot %d: a vote, its release, the gate, a question and a vote", free)
					onAll(w, func(s *sim.Server) { s.Set(slotKey(free), "another", time.Hour) })
				}
			})
		})
	}
}

// TestAFreePermitIsFoundThoughTheFirstNodeTakesItForHeld, whichever node that is: it has what an
// acquisition that failed has left there.
func TestAFreePermitIsFoundThoughTheFirstNodeTakesItForHeld(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		const k = 200
		for i, misled := range w.Servers() {
			free := 31 * i
			onAll(w, func(s *sim.Server) {
				for slot := range k {
					s.Set(slotKey(slot), "another", time.Hour)
				}
				if s != misled {
					s.Del(slotKey(free))
				}
			})
			l, _ := open(t, w)
			ctx, cancel := context.WithTimeout(t.Context(), unaided)
			lock, err := l.Acquire(ctx, "x", redlock.Permits(k))
			cancel()
			require.NoError(t, err, "node %d", i)
			assert.Equal(t, free, lock.Permit())
		}
	})
}

// TestAWaiterIsWokenWhenAnyPermitIsReleased, by a hint.
func TestAWaiterIsWokenWhenAnyPermitIsReleased(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		const k = 12
		holder, _ := open(t, w, redlock.TTL(time.Hour))
		waiter, _ := open(t, w, timetest.Jitter(func(d time.Duration) time.Duration { return d - 1 })) // rests as long as may be
		locks := map[int]*redlock.Lock{}
		for range k {
			lock := take(t, holder, "x", redlock.Permits(k))
			locks[lock.Permit()] = lock
		}
		for permit := range k {
			got := waits(t.Context(), t, waiter, redlock.Permits(k))
			time.Sleep(time.Second)
			r := recorded(w)
			for looks := 0; looks == 0; looks = len(r.of(sim.Replied, protocol.OpSlots)) { // the next is far
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

// TestWithoutHintsPermitsAreFoundByATimer.
func TestWithoutHintsPermitsAreFoundByATimer(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		w.SetNet(lose(func(l sim.Leg) bool { return l.Hint }))
		holder, _ := open(t, w)
		waiter, _ := open(t, w)
		for i := range 10 {
			locks := []*redlock.Lock{take(t, holder, "x", redlock.Permits(3)), take(t, holder, "x", redlock.Permits(3)), take(t, holder, "x", redlock.Permits(3))}
			got := waits(t.Context(), t, waiter, redlock.Permits(3))
			time.Sleep(time.Second + time.Duration(i)*11*time.Millisecond)
			start := time.Now()
			require.NoError(t, locks[i%3].Release(t.Context()))
			lock := <-got
			assert.LessOrEqual(t, time.Since(start), unaided+5*rtt)
			for _, k := range append(locks, lock) {
				k.Release(t.Context())
			}
			time.Sleep(rtt)
		}
	})
}

// TestAPermitIsHandedOverWithinAProcess, from any holder to the first who waits, and its
// slot with it.
func TestAPermitIsHandedOverWithinAProcess(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		var locks []*redlock.Lock
		for range 3 {
			locks = append(locks, take(t, l, "x", redlock.Permits(3)))
		}
		time.Sleep(rtt)
		first := waits(t.Context(), t, l, redlock.Permits(3))
		second := waits(t.Context(), t, l, redlock.Permits(3))
		time.Sleep(3 * rtt) // the first is at the gate
		r := recorded(w)
		for i, got := range []<-chan *redlock.Lock{first, second} {
			lock := locks[2-i]
			start := time.Now()
			require.NoError(t, lock.Release(t.Context()))
			next := <-got
			assert.Zero(t, time.Since(start))
			assert.Equal(t, lock.Value(), next.Value())
			assert.Equal(t, lock.Permit(), next.Permit())
			assert.ErrorIs(t, context.Cause(lock.Context()), redlock.ErrReleased)
			synctest.Wait() // the gate is handed over as well
		}
		for _, s := range r.of(sim.Submitted, protocol.OpRelease) {
			assert.Equal(t, gateKey(3), s.Key, "and given back by the last")
		}
	})
}

// TestAPermitIsNotHandedOverToAnExclusiveCaller of the process, nor the other way round: its
// slot is another lock.
func TestAPermitIsNotHandedOverToAnExclusiveCaller(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		exclusive := take(t, l, "x")
		permit := take(t, l, "x", redlock.Permits(2))
		require.Equal(t, 1, permit.Permit())
		time.Sleep(rtt)
		got := waits(t.Context(), t, l)
		require.NoError(t, permit.Release(t.Context()))
		time.Sleep(time.Second)
		assert.Empty(t, got)
		require.NoError(t, exclusive.Release(t.Context()))
		assert.NotNil(t, <-got)
	})
}

// TestWaitersForPermitsAreServedInOrder in a process.
func TestWaitersForPermitsAreServedInOrder(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		var order []int
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				lock, err := l.Acquire(t.Context(), "x", redlock.Permits(3))
				require.NoError(t, err)
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				time.Sleep(time.Duration(30+i) * time.Millisecond)
				lock.Release(t.Context())
			})
			synctest.Wait()
		}
		all.Wait()
		assert.ElementsMatch(t, []int{0, 1, 2}, order[:3], "they get theirs at one moment")
		assert.IsIncreasing(t, order[3:])
	})
}

// A crowd is processes that take permits of x again and again. It counts the holders.
type crowd struct {
	k       int
	mu      sync.Mutex
	holders int
	most    int
	waiting int
	changed time.Time     // holders or waiting
	idle    time.Duration // the longest that fewer than k held it while a caller waited
}

func (c *crowd) change(holders, waiting int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holders < c.k && c.waiting > 0 {
		c.idle = max(c.idle, time.Since(c.changed))
	}
	c.holders += holders
	c.waiting += waiting
	c.most = max(c.most, c.holders)
	c.changed = time.Now()
}

// work takes and gives back permits until end.
func (c *crowd) work(t *testing.T, l *redlock.Locker, dice *rand.Rand, end time.Time) {
	for time.Now().Before(end) {
		c.change(0, 1)
		lock, err := l.Acquire(t.Context(), "x", redlock.Permits(c.k))
		if !assert.NoError(t, err) {
			return
		}
		c.change(1, -1)
		time.Sleep(50*time.Millisecond + time.Duration(dice.Int64N(int64(100*time.Millisecond))))
		assert.True(t, lock.Valid())
		c.change(-1, 0)
		assert.NoError(t, lock.Release(t.Context()))
	}
}

// TestExactlyKHoldThePermits where many compete, as long as a majority is up, whatever the minority
// does: none is idle for long while a caller waits.
func TestExactlyKHoldThePermits(t *testing.T) {
	for name, trouble := range map[string]func(w *sim.World){
		"all well":         func(*sim.World) {},
		"two servers down": func(w *sim.World) { w.Servers()[1].Vanish(); w.Servers()[3].Crash() },
		"two servers hung": func(w *sim.World) { w.Servers()[0].Hang(); w.Servers()[2].Hang() },
		"leftovers on two servers": func(w *sim.World) {
			for slot := range 4 {
				w.Servers()[0].Set(slotKey(slot), "left", time.Hour)
				w.Servers()[1].Set(slotKey(slot), "left", time.Hour)
			}
		},
	} {
		for _, workers := range []int{1, 3} {
			t.Run(fmt.Sprint(name, ", ", workers, " a process"), func(t *testing.T) {
				simulate(t, 5, func(t *testing.T, w *sim.World) {
					w.SetNet(sim.Net{Patience: time.Second, Travel: func(_ sim.Leg, r *rand.Rand) (time.Duration, bool) {
						return time.Millisecond/2 + time.Duration(r.Int64N(int64(time.Millisecond))), false
					}})
					trouble(w)
					c := &crowd{k: 4}
					long := 5 * time.Second
					if testing.Short() {
						long = 2 * time.Second
					}
					end := time.Now().Add(long)
					var all sync.WaitGroup
					for i := range 12 {
						l, _ := open(t, w, timetest.Jitter(func(d time.Duration) time.Duration {
							return time.Duration(rand.New(rand.NewPCG(uint64(i), uint64(time.Now().UnixNano()))).Int64N(int64(d)))
						}))
						for j := range workers {
							dice := rand.New(rand.NewPCG(uint64(i), uint64(j)))
							all.Go(func() { c.work(t, l, dice, end) })
						}
					}
					time.Sleep(time.Second)
					c.mu.Lock()
					c.idle, c.changed = 0, time.Now()
					c.mu.Unlock()
					time.Sleep(time.Until(end))
					c.mu.Lock()
					idle := c.idle
					c.mu.Unlock()
					all.Wait()
					assert.Equal(t, 4, c.most)
					assert.Less(t, idle, 150*time.Millisecond)
				})
			})
		}
	}
}

// TestPermitsTellOutagesFromContention.
func TestPermitsTellOutagesFromContention(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		take(t, l, "x", redlock.Permits(2))
		take(t, l, "x", redlock.Permits(2))
		got := make(chan error, 1)
		go func() {
			_, err := l.Acquire(t.Context(), "x", redlock.Permits(3))
			got <- err
		}()
		require.NoError(t, <-got)
		waiter, _ := open(t, w)
		go func() {
			_, err := waiter.Acquire(t.Context(), "x", redlock.Permits(3))
			got <- err
		}()
		time.Sleep(time.Second)
		for i := range 3 {
			w.Servers()[i].Crash()
		}
		_, err := l.TryAcquire(t.Context(), "x", redlock.Permits(3))
		assert.ErrorIs(t, err, redlock.ErrNoQuorum)
		assert.ErrorIs(t, <-got, redlock.ErrNoQuorum, "one who waits is told as well")
	})
}

// TestEventsTellThePermit from the try that won it to its end, and nothing of other locks.
func TestEventsTellThePermit(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		rec := &recorder{}
		book, log := newLogbook(slog.LevelDebug)
		l, _ := open(t, w, redlock.Observe(rec), redlock.Log(log))
		about := []redlock.EventKind{redlock.EventAttempt, redlock.EventAcquired, redlock.EventExtended, redlock.EventReleased, redlock.EventLost}
		for range 2 {
			k := take(t, l, "x", redlock.Permits(2))
			defer k.Release(t.Context())
		}
		rec.take()
		k := take(t, l, "y", redlock.Permits(1000))
		require.NoError(t, k.Extend(t.Context()))
		require.NoError(t, k.Release(t.Context()))
		events := rec.take(about...)
		require.Len(t, events, 4)
		for _, e := range events {
			assert.Equal(t, 1000, e.Permits, e.Kind)
			assert.Equal(t, k.Permit(), e.Permit, e.Kind)
		}
		take(t, l, "y", redlock.Permits(1000))
		onAll(w, (*sim.Server).Hang)
		time.Sleep(2 * ttl)
		onAll(w, (*sim.Server).Resume)
		events = rec.take(redlock.EventLost)
		require.NotEmpty(t, events)
		for _, e := range events {
			assert.NotZero(t, e.Permits)
		}
		book.take(t)
		k = take(t, l, "z", redlock.Permits(1000))
		require.NoError(t, k.Release(t.Context()))
		records := book.take(t)
		assert.EqualValues(t, k.Permit(), records[len(records)-1]["permit"])

		rec.take()
		require.NoError(t, take(t, l, "plain").Release(t.Context()))
		for _, e := range rec.take(about...) {
			assert.Zero(t, e.Permits)
		}
		for _, r := range book.take(t) {
			assert.NotContains(t, r, "permit")
		}
	})
}

// TestOneWhoWaitedForPermitsIsToldWhoWasInTheWay, whenever the context ends: also in the middle of
// a try, which has no answers then.
func TestOneWhoWaitedForPermitsIsToldWhoWasInTheWay(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		holder, _ := open(t, w, redlock.Owner("the holder"))
		take(t, holder, "x", redlock.Permits(2))
		take(t, holder, "x", redlock.Permits(2))
		l, _ := open(t, w)
		for wait := 500 * time.Millisecond; wait < 800*time.Millisecond; wait += 3 * time.Millisecond {
			time.Sleep(2 * rtt) // one that comes while another is at the gate asks for no slot
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

// TestOneWhoWaitsForPermitsIsToldThatAllNodesHang, although none of them answers its question.
func TestOneWhoWaitsForPermitsIsToldThatAllNodesHang(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		holder, _ := open(t, w)
		take(t, holder, "x", redlock.Permits(2))
		take(t, holder, "x", redlock.Permits(2))
		l, _ := open(t, w)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		hung := make(chan time.Time, 1)
		first := -1 // the node that is asked, and not the second one
		var once sync.Once
		w.Watch(func(s sim.Step) {
			if s.Stage != sim.Submitted || s.Op != protocol.OpSlots {
				return
			}
			if first < 0 && s.Client == 1 {
				first = s.Node
			}
			if s.Node == first && s.At.Sub(start) > time.Second {
				once.Do(func() { go func() { onAll(w, (*sim.Server).Hang); hung <- time.Now() }() })
			}
		})
		got := make(chan error)
		go func() {
			_, err := l.Acquire(ctx, "x", redlock.Permits(2))
			got <- err
		}()
		assert.ErrorIs(t, <-got, redlock.ErrNoQuorum)
		assert.Less(t, time.Since(<-hung), defaultPatience+2*nodeTimeout)
	})
}

// TestHeldPermitsAreNoOutage while a minority is down, although the first answer alone cannot be
// made up for.
func TestHeldPermitsAreNoOutage(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		net := sim.Fixed(leg)
		net.Travel = slowNode(2, 2*leg)
		w.SetNet(net)
		holder, _ := open(t, w)
		for range 3 {
			take(t, holder, "x", redlock.Permits(3))
		}
		w.Servers()[0].Crash()
		w.Servers()[4].Crash()
		l, _ := open(t, w)
		_, err := l.TryAcquire(t.Context(), "x", redlock.Permits(3))
		require.ErrorIs(t, err, redlock.ErrHeld)
		assert.ErrorContains(t, err, "all 3 permits are held")
	})
}

// TestANodeLeadsToNoMorePermitsThanThereAre, whatever it answers.
func TestANodeLeadsToNoMorePermitsThanThereAre(t *testing.T) {
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
		_, err := l.TryAcquire(t.Context(), "x", redlock.Permits(3))
		require.ErrorIs(t, err, redlock.ErrHeld)
	})
}

// TestTokensRiseWithinAPermit.
func TestTokensRiseWithinAPermit(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		other, _ := open(t, w)
		highest := map[int]int64{}
		for i := range 12 {
			from := []*redlock.Locker{l, other}[i%2]
			a := take(t, from, "x", redlock.Permits(2), redlock.Fenced())
			b := take(t, l, "x", redlock.Permits(2), redlock.Fenced())
			permitsOf(t, a, b)
			for _, k := range []*redlock.Lock{a, b} {
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

// TestAPermitIsRenewedAndItsLossNoticed, as those of an exclusive lock.
func TestAPermitIsRenewedAndItsLossNoticed(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		a, b := take(t, l, "x", redlock.Permits(2)), take(t, l, "x", redlock.Permits(2))
		time.Sleep(10 * ttl)
		assert.True(t, a.Valid())
		assert.True(t, b.Valid())
		end := endOf(b)
		start := time.Now()
		onAll(w, func(s *sim.Server) { s.Del(slotKey(b.Permit())) })
		assert.Less(t, (<-end).Sub(start), 4*rtt)
		assert.ErrorIs(t, b.Release(t.Context()), redlock.ErrLost)
		assert.True(t, a.Valid(), "the other's slot is there")
	})
}

// TestWaitersForPermitsLeaveNothing behind: no line, no watch and no key.
func TestWaitersForPermitsLeaveNothing(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		holder, _ := open(t, w)
		a, b := take(t, holder, "x", redlock.Permits(2)), take(t, holder, "x", redlock.Permits(2))
		l, _ := open(t, w)
		ctx, cancel := context.WithCancel(t.Context())
		first, second := waits(ctx, t, l, redlock.Permits(2)), waits(ctx, t, l, redlock.Permits(2))
		time.Sleep(time.Second)
		cancel()
		assert.Nil(t, <-first)
		assert.Nil(t, <-second)
		time.Sleep(2 * time.Second)
		r := recorded(w)
		require.NoError(t, a.Release(t.Context()))
		require.NoError(t, b.Release(t.Context()))
		time.Sleep(time.Second)
		assert.Empty(t, r.of(sim.Hinted, protocol.OpWatch))
		_, queued, inflight := l.Leftovers()
		assert.Zero(t, queued)
		assert.Zero(t, inflight)
		for _, s := range w.Servers() {
			assert.Empty(t, s.Locks())
		}
	})
}

// TestInspectPermitsTellsTheHolderOfEach, and waits once for all of them.
func TestInspectPermitsTellsTheHolderOfEach(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		values := make([]string, 5)
		for range 3 {
			lock := take(t, l, "x", redlock.Permits(5))
			values[lock.Permit()] = lock.Value()
		}
		time.Sleep(rtt)
		var in []*redlock.Inspection
		assert.Equal(t, rtt, took(func() {
			var err error
			in, err = l.InspectPermits(t.Context(), "x", 5)
			require.NoError(t, err)
		}))
		require.Len(t, in, 5)
		for slot, of := range in {
			value, _, held := of.Holder()
			assert.Equal(t, values[slot], value)
			assert.Equal(t, values[slot] != "", held)
			assert.Equal(t, "x", of.Name)
		}
		for i := range 3 {
			w.Servers()[i].Hang()
		}
		start := time.Now()
		in, err := l.InspectPermits(t.Context(), "x", 5)
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.Len(t, in, 5)
		assert.Equal(t, nodeTimeout, time.Since(start), "the node timeout, once")
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

// TestWhoTakesAPermitAgainAloneStandsBackRarely: once a turn it goes to the gate, in case others wait.
func TestWhoTakesAPermitAgainAloneStandsBackRarely(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		more := 0
		for range 50 {
			cost := took(func() {
				lock, err := l.Acquire(t.Context(), "x", redlock.Permits(2))
				require.NoError(t, err)
				defer lock.Release(t.Context())
			})
			assert.LessOrEqual(t, cost, 5*rtt)
			if cost > 2*rtt { // a vote and a release
				more++
			}
		}
		assert.Less(t, more, 15)
	})
}
