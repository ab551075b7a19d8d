package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

var abc = []string{"a", "b", "c"}

// takeAll acquires free names.
func takeAll(t *testing.T, l *redlock.Locker, names []string, opts ...redlock.Option) *redlock.Lock {
	t.Helper()
	k, err := l.TryAcquireAll(t.Context(), names, opts...)
	require.NoError(t, err)
	k.Context() // see sim.Take
	return k
}

// waitsAll acquires the names in a goroutine and returns a channel for the lock.
func waitsAll(ctx context.Context, t *testing.T, l *redlock.Locker, names []string, opts ...redlock.Option) <-chan *redlock.Lock {
	got := make(chan *redlock.Lock, 1)
	go func() {
		k, err := l.AcquireAll(ctx, names, opts...)
		assert.NoError(t, err)
		got <- k
	}()
	return got
}

func TestSetTakesOneAttempt(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, other := two(t, w, redlock.TTL(ttl), redlock.Prefix("app:"))
		for _, acquire := range []func(context.Context, []string, ...redlock.Option) (*redlock.Lock, error){l.TryAcquireAll, l.AcquireAll} {
			var lock *redlock.Lock
			assert.Equal(t, rtt, took(func() {
				var err error
				lock, err = acquire(t.Context(), []string{"c", "a", "b", "a"})
				require.NoError(t, err)
			}))
			assert.Equal(t, validity, lock.Remaining())
			assert.Equal(t, abc, lock.Names())
			assert.Equal(t, "a, b, c", lock.Name())
			assert.Zero(t, lock.Fence())
			time.Sleep(1 * time.Nanosecond)
			assert.Equal(t, 5, lock.Votes())
			for _, name := range abc {
				assert.Equal(t, 5, holding(w, "app:"+name))
				isHeld(t, other, name)
			}
			require.NoError(t, lock.Extend(t.Context()))
			require.NoError(t, lock.Release(t.Context()))
			isOnly(t, lock.Release(t.Context()), redlock.ErrReleased)
			time.Sleep(leg + 1)
			for _, name := range abc {
				assert.Zero(t, holding(w, "app:"+name))
				require.NoError(t, take(t, other, name).Release(t.Context()))
			}
		}
	})
}

// TestFairSetWaitsInOrder: a Fair caller of another process has waited for one of its names, which
// becomes free when the set arrives.
func TestFairSetWaitsInOrder(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		holder, waiter := two(t, w, redlock.Fair())
		late, _ := open(t, w, redlock.Fair())
		for after := time.Duration(0); after < 4*rtt; after += time.Millisecond {
			lock := take(t, holder, "x")
			first := waits(t.Context(), t, waiter)
			time.Sleep(5 * rtt)
			time.AfterFunc(2*rtt, func() { assert.NoError(t, lock.Release(t.Context())) })
			time.Sleep(after)
			set := waitsAll(t.Context(), t, late, []string{"a", "x"})
			select {
			case k := <-first:
				require.NoError(t, k.Release(t.Context()))
				require.NoError(t, (<-set).Release(t.Context()))
			case k := <-set:
				require.NoError(t, k.Release(t.Context()))
				require.NoError(t, (<-first).Release(t.Context()))
				assert.Fail(t, "the set was first", "it came after %v", after)
			}
			time.Sleep(time.Second)
		}
		assert.Equal(t, 5*rtt, took(func() {
			require.NoError(t, (<-waitsAll(t.Context(), t, late, []string{"a", "x"})).Release(t.Context()))
		}))
	})
}

// TestSetIsAllOrNone: the error lists the names that blocked the set.
func TestSetIsAllOrNone(t *testing.T) {
	for i, name := range abc {
		simulateCase(t, name, 5, func(t *testing.T, w *sim.World) {
			l, other := two(t, w, redlock.TTL(ttl))
			held := take(t, other, name)
			_, err := l.TryAcquireAll(t.Context(), abc)
			isOnly(t, err, redlock.ErrHeld)
			var failure *redlock.QuorumError
			require.ErrorAs(t, err, &failure)
			assert.Equal(t, []string{name}, failure.InTheWay)
			assert.Equal(t, "a, b, c", failure.Name)
			assert.InDelta(t, ttl, failure.Remaining, float64(10*leg)) // the set asks twice if it has won the first name
			assert.ErrorContains(t, err, fmt.Sprintf(`node1, node2, node3, node4, node5: %q: holds another value for`, name))
			time.Sleep(rtt) // wait until the releases have arrived
			for j, free := range abc {
				if j != i {
					assert.Zero(t, holding(w, free), free)
				}
			}
			require.NoError(t, held.Release(t.Context()))
			assert.NoError(t, takeAll(t, l, abc).Release(t.Context()))
		})
	}
}

// TestEachNameOfASetHasItsOwnQuorum: the quorums of two names may differ.
func TestEachNameOfASetHasItsOwnQuorum(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.TTL(ttl))
		for i, s := range w.Servers() {
			s.Set([]string{"a", "a", "b", "b", "c"}[i], "another", time.Minute)
		}
		lock := takeAll(t, l, abc)
		time.Sleep(1 * time.Nanosecond)
		assert.Equal(t, 3, lock.Votes(), "those of the name that has the fewest")
		require.NoError(t, lock.Release(t.Context()))
		time.Sleep(leg + 1)
		assert.Equal(t, []int{2, 2, 1}, []int{holding(w, "a"), holding(w, "b"), holding(w, "c")}, "another's is left alone")
	})
}

func TestSetDistinguishesContentionFromAnOutage(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.TTL(ttl))
		onEach(w.Servers()[:3], (*sim.Server).Crash)
		isOnly(t, errOf(l.TryAcquireAll(t.Context(), abc)), redlock.ErrNoQuorum)
		_, err := l.AcquireAll(t.Context(), abc)
		isOnly(t, err, redlock.ErrNoQuorum)
		var failure *redlock.QuorumError
		require.ErrorAs(t, err, &failure)
		assert.Empty(t, failure.InTheWay)

		for _, s := range w.Servers()[:3] {
			s.Restart()
			s.SetWrongType("b")
		}
		_, err = l.AcquireAll(t.Context(), abc)
		isOnly(t, err, redlock.ErrNoQuorum)
		assert.ErrorIs(t, err, redlock.ErrWrongType)
		assert.ErrorContains(t, err, `node1, node2, node3: "b": the key holds other data than a lock`)
	})
}

func TestInvalidSetsAreRefused(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		many := make([]string, 129)
		for i := range many {
			many[i] = fmt.Sprint("n", i)
		}
		var noContext context.Context
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for name, bad := range map[string]struct {
			ctx   context.Context
			names []string
			opts  []redlock.Option
			says  string
		}{
			"none":          {ctx, nil, nil, "no names: pass at least one"},
			"too many":      {ctx, many, nil, "129 names, at most 128"},
			"an empty name": {ctx, []string{"a", ""}, nil, "must not be empty"},
			"a long name":   {ctx, []string{"a", strings.Repeat("x", 1025)}, nil, "too long"},
			"a reserved":    {ctx, []string{"a", "redlock:epoch"}, nil, "redlock's own"},
			"readers":       {ctx, abc, []redlock.Option{redlock.Shared()}, "readers lock one name at a time"},
			"permits":       {ctx, abc, []redlock.Option{redlock.Permits(2)}, "permits belong to one name"},
			"no context":    {noContext, abc, nil, "the context is nil"},
			"a bad option":  {ctx, abc, []redlock.Option{redlock.TTL(0)}, "TTL(0s)"},
		} {
			_, err := l.AcquireAll(bad.ctx, bad.names, bad.opts...)
			assert.ErrorContains(t, err, bad.says, name)
			assert.ErrorContains(t, err, "redlock: ", name)
			assert.ErrorContains(t, errOf(l.TryAcquireAll(bad.ctx, bad.names, bad.opts...)), bad.says, name)
			assert.ErrorContains(t, l.DoAll(bad.ctx, bad.names, func(context.Context) error { return nil }, bad.opts...), bad.says, name)
		}
		assert.ErrorContains(t, l.DoAll(t.Context(), abc, nil), "the function is nil")
		lock := takeAll(t, l, append(many[:128], many[:128]...))
		assert.Len(t, lock.Names(), 128, "as many as may be, and doubles do not count")
		assert.Equal(t, "n0, n1, n10 and 125 more", lock.Name())
		require.NoError(t, lock.Release(t.Context()))
		require.NoError(t, l.Close())
		isOnly(t, errOf(l.AcquireAll(t.Context(), abc)), redlock.ErrClosed)
	})
}

// TestSetOfOneNameIsAPlainLock: the set can be handed over.
func TestSetOfOneNameIsAPlainLock(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		lock := take(t, l, "a")
		assert.Equal(t, []string{"a"}, lock.Names())
		next := waitsAll(t.Context(), t, l, []string{"a", "a"})
		synctest.Wait()
		require.NoError(t, lock.Release(t.Context()))
		got := <-next
		assert.Equal(t, lock.OwnValue(), got.OwnValue())
		assert.Equal(t, []string{"a"}, got.Names())
	})
}

func TestDoAllHoldsAllNames(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		failed := errors.New("it failed")
		assert.Equal(t, failed, l.DoAll(t.Context(), abc, func(ctx context.Context) error {
			assert.Equal(t, 5, holding(w, "b"))
			return failed
		}))
		assert.Zero(t, holding(w, "a"))
		assert.ErrorIs(t, l.DoAll(t.Context(), abc, func(ctx context.Context) error {
			onEach(w.Servers()[:3], func(s *sim.Server) { s.Del("c") })
			<-ctx.Done()
			return nil
		}), redlock.ErrLost)
	})
}

// TestSetWaitsForAnotherSetNameByName: during the wait, the set holds the names before the blocked
// name, and the names after it are free. When the blocked name is released, the other names take
// one attempt.
func TestSetWaitsForAnotherSetNameByName(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, other := two(t, w, redlock.TTL(ttl), unspread)
		held := take(t, other, "b")
		got := waitsAll(t.Context(), t, l, []string{"d", "c", "b", "a"})
		time.Sleep(10 * ttl)
		hold := func() (n []int) {
			for _, name := range []string{"a", "b", "c", "d"} {
				n = append(n, holding(w, name))
			}
			return n
		}
		assert.Equal(t, []int{5, 5, 0, 0}, hold())
		require.NoError(t, takeAll(t, other, []string{"c", "d"}).Release(t.Context()))
		isHeld(t, other, "a")
		r := recorded(w)
		require.NoError(t, held.Release(t.Context()))
		released := time.Now()
		lock := <-got
		assert.LessOrEqual(t, time.Since(released), 6*rtt, "a hint and two votes")
		assert.GreaterOrEqual(t, lock.Remaining(), validity-ttl/3-rtt, "its names were renewed")
		for _, s := range r.of(sim.Submitted, protocol.OpRelease) {
			assert.NotEqual(t, "a", s.Key)
		}
		assert.Equal(t, []string{"a", "b", "c", "d"}, lock.Names())
		time.Sleep(10 * ttl)
		assert.True(t, lock.Valid())
		assert.Equal(t, 5, lock.Votes())
		assert.Equal(t, []int{5, 5, 5, 5}, hold())
		require.NoError(t, lock.Release(t.Context()))
		time.Sleep(leg + 1)
		assert.Equal(t, []int{0, 0, 0, 0}, hold())
		assert.Zero(t, l.Leftovers())
	})
}

// TestCancelledSetReleasesItsNames: the error contains the name for which the set waited.
func TestCancelledSetReleasesItsNames(t *testing.T) {
	for name, local := range map[string]bool{"another process": false, "the same": true} {
		simulateCase(t, name, 5, func(t *testing.T, w *sim.World) {
			l, _ := open(t, w, redlock.TTL(ttl))
			other := l
			if !local {
				other, _ = open(t, w, redlock.TTL(ttl))
			}
			held := take(t, other, "b")
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := l.AcquireAll(ctx, abc)
			isOnly(t, err, context.DeadlineExceeded)
			var failure *redlock.QuorumError
			require.ErrorAs(t, err, &failure)
			assert.Equal(t, []string{"b"}, failure.InTheWay)
			assert.Equal(t, "a, b, c", failure.Name)
			time.Sleep(leg + 1)
			assert.Zero(t, holding(w, "a"))
			assert.Equal(t, 5, holding(w, "b"))
			require.NoError(t, held.Release(t.Context()))
			assert.Zero(t, l.Leftovers())
		})
	}
}

// TestSetStartsOverWhenAPartIsLost: the other parts are not enough for the set.
func TestSetStartsOverWhenAPartIsLost(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, other := two(t, w, redlock.TTL(ttl))
		held := take(t, other, "c")
		got := waitsAll(t.Context(), t, l, abc)
		time.Sleep(time.Second)
		onEach(w.Servers()[:3], func(s *sim.Server) { s.Set("a", "by hand", 5*time.Second) })
		time.Sleep(time.Second)
		for range 500 { // a try in progress holds the other two names for a moment
			if holding(w, "a") == 3 {
				break
			}
			time.Sleep(time.Millisecond)
		}
		assert.Equal(t, 3, holding(w, "a"), "it was lost on a majority and given back on the others")
		assert.Zero(t, holding(w, "b"), "the names after it are released while the set waits for it again")
		time.Sleep(ttl)
		assert.Equal(t, 5, holding(w, "b"))
		require.NoError(t, held.Release(t.Context()))
		lock := <-got
		assert.NotEqual(t, "by hand", w.Servers()[0].Keys()["a"])
		require.NoError(t, lock.Release(t.Context()))
	})
}

// TestWaitingSetSurvivesAnOutage: the outage begins when the set has all of its names and switches
// to its own terms.
func TestWaitingSetSurvivesAnOutage(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, other := two(t, w, redlock.TTL(ttl), redlock.Renew(false))
		held := take(t, other, "b", redlock.Renew(true))
		got := waitsAll(t.Context(), t, l, []string{"a", "b"})
		time.Sleep(ttl)
		require.NoError(t, held.Release(t.Context()))
		for holding(w, "b") == 0 {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(leg + time.Millisecond) // the last vote is won
		onEach(w.Servers()[:3], (*sim.Server).Hang)
		time.Sleep(1500 * time.Millisecond) // the outage is longer than the wait for a vote
		onEach(w.Servers()[:3], (*sim.Server).Resume)
		assert.True(t, (<-got).Valid())
	})
}

// TestCancelledSetReportsNoOutage: the context ends during the last request of the set.
func TestCancelledSetReportsNoOutage(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, other := two(t, w, redlock.TTL(ttl), redlock.Renew(false))
		held := take(t, other, "b", redlock.Renew(true))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- errOf(l.AcquireAll(ctx, []string{"a", "b"})) }()
		time.Sleep(ttl)
		require.NoError(t, held.Release(t.Context()))
		for holding(w, "b") == 0 {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(leg + time.Millisecond)
		cancel()
		err := <-ended
		isOnly(t, err, context.Canceled)
		var failed *redlock.QuorumError
		require.ErrorAs(t, err, &failed)
		assert.NotErrorIs(t, failed.Kind(), redlock.ErrNoQuorum)
	})
}

// TestSetIsLostWithOneOfItsNames: a watch notices the loss within milliseconds. Without a watch, a
// renewal notices it.
func TestSetIsLostWithOneOfItsNames(t *testing.T) {
	for _, name := range abc {
		for _, hints := range []bool{true, false} {
			simulateCase(t, fmt.Sprint(name, ", hints: ", hints), 5, func(t *testing.T, w *sim.World) {
				late := leg + rtt // time for a hint and a look
				if !hints {
					w.SetNet(lose(func(l sim.Leg) bool { return l.Hint }))
					late = ttl/3 - watchedAt
				}
				l, _ := open(t, w, redlock.TTL(ttl), unspread)
				lock := takeAll(t, l, abc)
				time.Sleep(watchedAt)
				onEach(w.Servers()[:3], func(s *sim.Server) { s.Set(name, "another", time.Hour) })
				assert.Equal(t, late, took(func() { <-lock.Context().Done() }))
				cause := context.Cause(lock.Context())
				isOnly(t, cause, redlock.ErrLost)
				assert.ErrorContains(t, cause, fmt.Sprintf("%q: lock lost: 3 of 5 servers no longer have it (another has it)", name))
				isOnly(t, lock.Extend(t.Context()), redlock.ErrLost)
				time.Sleep(rtt)
				for _, each := range abc {
					want := 0 // the other keys are released
					if each == name {
						want = 3 // the other client's key stays
					}
					assert.Equal(t, want, holding(w, each), each)
				}
			})
		}
	}
}

// TestSetDoesNotOvertakeWaitersOfItsProcess: the waiters came first.
func TestSetDoesNotOvertakeWaitersOfItsProcess(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, other := two(t, w, redlock.TTL(ttl))
		held := take(t, other, "b")
		first := waitsAll(t.Context(), t, l, []string{"b"})
		time.Sleep(time.Second)
		r := recorded(w)
		second := waitsAll(t.Context(), t, l, abc)
		time.Sleep(time.Second)
		for _, s := range r.of(sim.Submitted, protocol.OpAcquire) {
			assert.NotEqual(t, "c", s.Key, "it asks for no name behind one that others wait for")
		}
		require.NoError(t, held.Release(t.Context()))
		lock := <-first
		time.Sleep(10 * time.Second)
		assert.Empty(t, second)
		require.NoError(t, lock.Release(t.Context()))
		set := <-second
		third := waitsAll(t.Context(), t, l, []string{"b"})
		time.Sleep(time.Second)
		assert.Empty(t, third)
		require.NoError(t, set.Release(t.Context()))
		assert.LessOrEqual(t, took(func() { lock = <-third }), standsBack+rtt, "a release of the set wakes who waits for one of its names")
		require.NoError(t, lock.Release(t.Context()))
	})
}

// TestNameOfASetIsHandedOver: a name goes to the caller that waits for it, and the other names are
// released.
func TestNameOfASetIsHandedOver(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		set := takeAll(t, l, abc)
		single := make(chan *redlock.Lock, 1)
		go func() {
			k := waited(t, l, "a")
			assert.Error(t, set.Context().Err(), "two callers must not work at once")
			single <- k
		}()
		synctest.Wait()
		require.NoError(t, set.Release(t.Context()))
		lock := <-single
		assert.Equal(t, set.OwnValue(), lock.OwnValue())
		assert.Equal(t, []string{"a"}, lock.Names())
		assert.False(t, set.Valid())
		assert.True(t, lock.Valid())
		assert.Equal(t, 5, holding(w, "a"))
		assert.Zero(t, holding(w, "b"))
	})
}

// TestSetsDoNotDeadlock: the sets have their names in any order, within a process and across
// processes.
func TestSetsDoNotDeadlock(t *testing.T) {
	for _, processes := range []int{1, 3} {
		simulateCase(t, fmt.Sprint(processes, " processes"), 5, func(t *testing.T, w *sim.World) {
			lockers := make([]*redlock.Locker, processes)
			for i := range lockers {
				lockers[i], _ = open(t, w, redlock.TTL(ttl))
			}
			var held sync.Map
			var all sync.WaitGroup
			for i := range 12 {
				dice := rand.New(rand.NewPCG(uint64(i), 0))
				all.Go(func() {
					for range 20 {
						mine := []string{"a", "b", "c", "d", "e", "f"}
						dice.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
						mine = mine[:1+dice.IntN(4)]
						ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
						lock, err := lockers[i%processes].AcquireAll(ctx, mine)
						cancel()
						if !assert.NoError(t, err, "%v", mine) {
							return
						}
						for _, name := range mine {
							_, taken := held.LoadOrStore(name, i)
							assert.False(t, taken, name)
						}
						time.Sleep(time.Duration(dice.IntN(50)) * time.Millisecond)
						for _, name := range mine {
							held.Delete(name)
						}
						assert.NoError(t, lock.Release(t.Context()))
					}
				})
			}
			all.Wait()
			for _, l := range lockers {
				time.Sleep(rtt)
				assert.Zero(t, l.Leftovers())
			}
		})
	}
}

// TestSetWithRetriesIsCounted: the retries are counted, and each requests all names at once.
func TestSetWithRetriesIsCounted(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, other := two(t, w, redlock.TTL(ttl))
		held := take(t, other, "b")
		r := recorded(w)
		isOnly(t, errOf(l.AcquireAll(t.Context(), abc, redlock.Retries(3))), redlock.ErrHeld)
		assert.Len(t, r.of(sim.Submitted, protocol.OpAcquire), 4*5*3)
		time.AfterFunc(time.Second, func() { held.Release(t.Context()) })
		_, err := l.AcquireAll(t.Context(), abc, redlock.RetryInterval(200*time.Millisecond))
		require.NoError(t, err)
	})
}

// TestEventsOfASet: a set has one acquisition and one end, even if it waited for its names.
func TestEventsOfASet(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(*testing.T, *sim.World, *redlock.Locker, *redlock.Lock)
		want string
	}{
		"released": {func(t *testing.T, _ *sim.World, _ *redlock.Locker, k *redlock.Lock) {
			require.NoError(t, k.Release(t.Context()))
		}, "released a, b, c <nil>"},
		"closed": {func(t *testing.T, _ *sim.World, l *redlock.Locker, k *redlock.Lock) {
			require.NoError(t, l.Close())
			assert.ErrorIs(t, context.Cause(k.Context()), redlock.ErrClosed)
			isOnly(t, k.Release(t.Context()), redlock.ErrClosed)
		}, "released a, b, c locker closed"},
		"lost": {func(t *testing.T, w *sim.World, _ *redlock.Locker, k *redlock.Lock) {
			time.Sleep(watchedAt)
			onEach(w.Servers()[:3], func(s *sim.Server) { s.Del("b") })
			<-k.Context().Done()
			time.Sleep(leg + 1)
			isOnly(t, k.Release(t.Context()), redlock.ErrLost)
		}, `lost a, b, c redlock: "b": lock lost: 3 of 5 servers no longer have it (released by another)`},
	} {
		simulateCase(t, name, 5, func(t *testing.T, w *sim.World) {
			seen := &recorder{}
			l, _ := open(t, w, redlock.TTL(ttl), redlock.Observe(seen))
			other, _ := open(t, w, redlock.TTL(ttl))
			held := take(t, other, "b")
			got := waitsAll(t.Context(), t, l, abc)
			time.Sleep(2 * ttl)
			require.NoError(t, held.Release(t.Context()))
			lock := <-got
			time.Sleep(ttl)
			test.end(t, w, l, lock)
			var told []string
			for _, e := range seen.take() {
				if e.Kind != redlock.EventVote && e.Kind != redlock.EventAttempt {
					told = append(told, fmt.Sprint(e.Kind, " ", e.Name, " ", e.Err))
				}
			}
			require.Greater(t, len(told), 2)
			last := len(told) - 1
			assert.Equal(t, "acquired a, b, c <nil>", told[0], "nothing is told of it before")
			for _, renewed := range told[1:last] {
				assert.Equal(t, "extended a, b, c <nil>", renewed)
			}
			assert.True(t, strings.HasPrefix(told[last], test.want), told[last])
		})
	}
}

// TestEachNameOfASetHasItsToken: each token is above the earlier tokens of its name.
func TestEachNameOfASetHasItsToken(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, other := two(t, w, redlock.TTL(ttl), redlock.Fenced())
		last := map[string]int64{}
		for i := range 6 {
			for _, name := range abc[:i%3] {
				single := take(t, other, name)
				assert.Greater(t, single.Fence(), last[name])
				last[name] = single.Fence()
				require.NoError(t, single.Release(t.Context()))
			}
			lock := takeAll(t, l, abc)
			assert.Zero(t, lock.Fence(), "it has none for all names")
			assert.Zero(t, lock.FenceOf("d"))
			for _, name := range abc {
				assert.Greater(t, lock.FenceOf(name), last[name])
				last[name] = lock.FenceOf(name)
			}
			require.NoError(t, lock.Release(t.Context()))
		}
		single := take(t, l, "a")
		assert.Equal(t, single.Fence(), single.FenceOf("a"))
	})
}

// TestSetReportsItsTries: a set reports its tries like a lock of one name.
func TestSetReportsItsTries(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		seen := &recorder{}
		l, _ := open(t, w, redlock.TTL(ttl), redlock.Observe(seen))
		takeAll(t, l, abc)
		tries := seen.take(redlock.EventAttempt)
		require.Len(t, tries, 3)
		for i, e := range tries {
			assert.Equal(t, abc[i], e.Name)
			assert.Equal(t, rtt, e.Elapsed)
			assert.Positive(t, e.Remaining)
		}
	})
}

// TestCancelledSetLeavesNothing: the context may end at any step.
func TestCancelledSetLeavesNothing(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.Renew(false))
		other, _ := open(t, w)
		for end := leg / 2; end < 20*leg; end += leg / 2 {
			held := take(t, other, "b")
			time.AfterFunc(4*leg, func() { assert.NoError(t, held.Release(t.Context())) })
			ctx, cancel := context.WithTimeout(t.Context(), end)
			if lock, err := l.AcquireAll(ctx, abc); err == nil {
				require.NoError(t, lock.Release(t.Context()))
			} else {
				isOnly(t, err, context.DeadlineExceeded)
			}
			cancel()
			time.Sleep(time.Second)
			assert.Zero(t, holding(w, "a")+holding(w, "b")+holding(w, "c"), end)
			assert.Zero(t, l.Leftovers(), end)
		}
	})
}

// TestTryingSetEndsWithItsContext: the context ends between two tries. The error contains the last
// obstacle.
func TestTryingSetEndsWithItsContext(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, other := two(t, w, redlock.TTL(ttl))
		take(t, other, "b")
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
		defer cancel()
		_, err := l.AcquireAll(ctx, abc, redlock.Retries(100), redlock.RetryInterval(100*time.Millisecond))
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		var e *redlock.QuorumError
		require.ErrorAs(t, err, &e)
		assert.Equal(t, redlock.ErrHeld, e.Kind())
		assert.Equal(t, []string{"b"}, e.InTheWay)
	})
}
