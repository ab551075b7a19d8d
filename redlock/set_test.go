package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/check"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

var abc = []string{"a", "b", "c"}

// takeAll acquires names that are free.
func takeAll(t *testing.T, l *redlock.Locker, names []string, opts ...redlock.Option) *redlock.Lock {
	t.Helper()
	k, err := l.TryAcquireAll(t.Context(), names, opts...)
	require.NoError(t, err)
	k.Context() // see simtest.Take
	return k
}

// waitsAll acquires the names in a goroutine.
func waitsAll(ctx context.Context, t *testing.T, l *redlock.Locker, names []string, opts ...redlock.Option) <-chan *redlock.Lock {
	got := make(chan *redlock.Lock, 1)
	go func() {
		k, err := l.AcquireAll(ctx, names, opts...)
		assert.NoError(t, err)
		got <- k
	}()
	return got
}

// submitted counts the requests that are submitted from now on, by operation.
func submitted(w *sim.World) func(protocol.Op) int {
	var mu sync.Mutex
	counts := map[protocol.Op]int{}
	w.Watch(func(s sim.Step) {
		if s.Stage == sim.Submitted {
			mu.Lock()
			defer mu.Unlock()
			counts[s.Op]++
		}
	})
	return func(op protocol.Op) int { mu.Lock(); defer mu.Unlock(); return counts[op] }
}

func TestASetIsOneVote(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.TTL(ttl), redlock.Prefix("app:"))
		other, _ := open(t, w, redlock.TTL(ttl), redlock.Prefix("app:"))
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
				_, err := other.TryAcquire(t.Context(), name)
				isOnly(t, err, redlock.ErrHeld)
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

// TestASetIsAllOrNone, and its error tells which name was in the way.
func TestASetIsAllOrNone(t *testing.T) {
	for i, name := range abc {
		t.Run(name, func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				l, _ := open(t, w, redlock.TTL(ttl))
				other, _ := open(t, w, redlock.TTL(ttl))
				held := take(t, other, name)
				_, err := l.TryAcquireAll(t.Context(), abc)
				isOnly(t, err, redlock.ErrHeld)
				var failure *redlock.QuorumError
				require.ErrorAs(t, err, &failure)
				assert.Equal(t, []string{name}, failure.InTheWay)
				assert.Equal(t, "a, b, c", failure.Name)
				assert.InDelta(t, ttl, failure.Remaining, float64(10*leg)) // it asks twice where it has won the first
				assert.ErrorContains(t, err, fmt.Sprintf(`node1, node2, node3, node4, node5: %q: holds another's value for`, name))
				time.Sleep(rtt) // their releases are on the way
				for j, free := range abc {
					if j != i {
						assert.Zero(t, holding(w, free), free)
					}
				}
				require.NoError(t, held.Release(t.Context()))
				assert.NoError(t, takeAll(t, l, abc).Release(t.Context()))
			})
		})
	}
}

// TestEachNameOfASetHasAQuorumOfItsOwn, which need not be the same.
func TestEachNameOfASetHasAQuorumOfItsOwn(t *testing.T) {
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

func TestASetTellsContentionFromAnOutage(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.TTL(ttl))
		for _, s := range w.Servers()[:3] {
			s.Crash()
		}
		_, err := l.TryAcquireAll(t.Context(), abc)
		isOnly(t, err, redlock.ErrNoQuorum)
		_, err = l.AcquireAll(t.Context(), abc)
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
		assert.ErrorContains(t, err, `node1, node2, node3: "b": the key holds another type`)
	})
}

func TestBadSetsAreRefused(t *testing.T) {
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
			"none":          {ctx, nil, nil, "no names: give at least one"},
			"too many":      {ctx, many, nil, "129 names, at most 128"},
			"an empty name": {ctx, []string{"a", ""}, nil, "must not be empty"},
			"a long name":   {ctx, []string{"a", strings.Repeat("x", 1025)}, nil, "too long"},
			"a reserved":    {ctx, []string{"a", "redlock:epoch"}, nil, "redlock's own"},
			"readers":       {ctx, abc, []redlock.Option{redlock.Shared()}, "readers lock one name at a time"},
			"permits":       {ctx, abc, []redlock.Option{redlock.Permits(2)}, "permits are of one name"},
			"no context":    {noContext, abc, nil, "the context is nil"},
			"a bad option":  {ctx, abc, []redlock.Option{redlock.TTL(0)}, "TTL(0s)"},
		} {
			_, err := l.AcquireAll(bad.ctx, bad.names, bad.opts...)
			assert.ErrorContains(t, err, bad.says, name)
			assert.ErrorContains(t, err, "redlock: ", name)
			_, err = l.TryAcquireAll(bad.ctx, bad.names, bad.opts...)
			assert.ErrorContains(t, err, bad.says, name)
			assert.ErrorContains(t, l.DoAll(bad.ctx, bad.names, func(context.Context) error { return nil }, bad.opts...), bad.says, name)
		}
		assert.ErrorContains(t, l.DoAll(t.Context(), abc, nil), "the function is nil")
		lock := takeAll(t, l, append(many[:128], many[:128]...))
		assert.Len(t, lock.Names(), 128, "as many as may be, and doubles do not count")
		assert.Equal(t, "n0, n1, n10 and 125 more", lock.Name())
		require.NoError(t, lock.Release(t.Context()))
		require.NoError(t, l.Close())
		_, err := l.AcquireAll(t.Context(), abc)
		isOnly(t, err, redlock.ErrClosed)
	})
}

// TestASetOfOneNameIsThatLock, and is handed over.
func TestASetOfOneNameIsThatLock(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		lock := take(t, l, "a")
		assert.Equal(t, []string{"a"}, lock.Names())
		next := waitsAll(t.Context(), t, l, []string{"a", "a"})
		synctest.Wait()
		require.NoError(t, lock.Release(t.Context()))
		got := <-next
		assert.Equal(t, lock.Value(), got.Value())
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
			for _, s := range w.Servers()[:3] {
				s.Del("c")
			}
			<-ctx.Done()
			return nil
		}), redlock.ErrLost)
	})
}

// TestASetThatIsInTheWayIsWaitedFor name by name: what is free is held meanwhile, and nothing of it
// is released.
func TestASetThatIsInTheWayIsWaitedFor(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.TTL(ttl), unspread)
		other, _ := open(t, w, redlock.TTL(ttl))
		held := take(t, other, "c")
		got := waitsAll(t.Context(), t, l, []string{"c", "b", "a"})
		time.Sleep(10 * ttl)
		assert.Equal(t, 5, holding(w, "a"))
		assert.Equal(t, 5, holding(w, "b"))
		for _, name := range abc {
			_, err := other.TryAcquire(t.Context(), name)
			isOnly(t, err, redlock.ErrHeld)
		}
		var whole atomic.Bool // the set is to be released
		w.Watch(func(s sim.Step) {
			if s.Op == protocol.OpRelease && !whole.Load() { // by the holder before, or of a try for c that it refused
				assert.Equal(t, "c", s.Key)
			}
		})
		require.NoError(t, held.Release(t.Context()))
		released := time.Now()
		lock := <-got
		assert.LessOrEqual(t, time.Since(released), 5*rtt, "a hint and a vote")
		assert.GreaterOrEqual(t, lock.Remaining(), validity-ttl/3-rtt, "its names were renewed")
		assert.Equal(t, abc, lock.Names())
		time.Sleep(1 * time.Nanosecond)
		assert.Equal(t, 5, lock.Votes())
		time.Sleep(10 * ttl)
		assert.True(t, lock.Valid())
		for _, name := range abc {
			assert.Equal(t, 5, holding(w, name))
		}
		whole.Store(true)
		require.NoError(t, lock.Release(t.Context()))
		time.Sleep(leg + 1)
		for _, name := range abc {
			assert.Zero(t, holding(w, name), name)
		}
		scheduled, queued, inflight := l.Leftovers()
		assert.Equal(t, []int{0, 0, 0}, []int{scheduled, queued, inflight})
	})
}

// TestASetIsGatheredOverSlowNodes: the records are read behind the extension from which on it is not
// renewed, and both together take longer than a node timeout.
func TestASetIsGatheredOverSlowNodes(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		const timeout = 100 * time.Millisecond
		ls := settled(t, w, 2, redlock.NodeTimeout(timeout))
		w.SetNet(sim.Fixed(timeout * 35 / 100))
		held := take(t, ls[1], "b")
		time.AfterFunc(time.Second, func() { assert.NoError(t, held.Release(t.Context())) })
		lock, err := ls[0].AcquireAll(t.Context(), []string{"a", "b"}, redlock.Renew(false))
		require.NoError(t, err)
		require.NoError(t, lock.Release(t.Context()))
	})
}

// TestWhatASetHasIsGivenBackWhenItsWaitingEnds, and the error says for which name it waited.
func TestWhatASetHasIsGivenBackWhenItsWaitingEnds(t *testing.T) {
	for name, local := range map[string]bool{"another process": false, "the same": true} {
		t.Run(name, func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
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
				scheduled, queued, _ := l.Leftovers()
				assert.Equal(t, []int{0, 0}, []int{scheduled, queued})
			})
		})
	}
}

// TestCloseEndsTheWaitingForASet.
func TestCloseEndsTheWaitingForASet(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.TTL(ttl))
		other, _ := open(t, w, redlock.TTL(ttl))
		take(t, other, "b")
		failed := make(chan error)
		go func() { _, err := l.AcquireAll(t.Context(), abc); failed <- err }()
		time.Sleep(time.Second)
		assert.Equal(t, 5, holding(w, "a"))
		require.NoError(t, l.Close())
		isOnly(t, <-failed, redlock.ErrClosed)
		assert.Zero(t, holding(w, "a"))
	})
}

// TestASetBeginsAnewWhenAPartIsLost: what it has is not enough.
func TestASetBeginsAnewWhenAPartIsLost(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.TTL(ttl))
		other, _ := open(t, w, redlock.TTL(ttl))
		held := take(t, other, "c")
		got := waitsAll(t.Context(), t, l, abc)
		time.Sleep(time.Second)
		for _, s := range w.Servers()[:3] {
			s.Set("a", "by hand", 5*time.Second)
		}
		time.Sleep(time.Second)
		for range 500 { // a try that is under way has the other two for a moment
			if holding(w, "a") == 3 {
				break
			}
			time.Sleep(time.Millisecond)
		}
		assert.Equal(t, 3, holding(w, "a"), "it was lost on a majority and given back on the others")
		assert.Zero(t, holding(w, "b"), "what came after it is not kept while it is waited for again")
		time.Sleep(ttl)
		assert.Equal(t, 5, holding(w, "b"))
		require.NoError(t, held.Release(t.Context()))
		lock := <-got
		assert.NotEqual(t, "by hand", w.Servers()[0].Keys()["a"])
		require.NoError(t, lock.Release(t.Context()))
	})
}

// TestASetIsLostWithOneOfItsNames, which watches tell within milliseconds, and renewals where there
// are none.
func TestASetIsLostWithOneOfItsNames(t *testing.T) {
	for _, name := range abc {
		for _, hints := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", hints: ", hints), func(t *testing.T) {
				simulate(t, 5, func(t *testing.T, w *sim.World) {
					if !hints {
						w.SetNet(lose(func(l sim.Leg) bool { return l.Hint }))
					}
					l, _ := open(t, w, redlock.TTL(ttl), unspread)
					lock := takeAll(t, l, abc)
					time.Sleep(watchedAt)
					for _, s := range w.Servers()[:3] {
						s.Set(name, "another", time.Hour)
					}
					late := leg + rtt // a hint, and a look
					if !hints {
						late = ttl/3 - watchedAt
					}
					assert.Equal(t, late, took(func() { <-lock.Context().Done() }))
					cause := context.Cause(lock.Context())
					isOnly(t, cause, redlock.ErrLost)
					assert.ErrorContains(t, cause, fmt.Sprintf("%q: lock lost: 3 of 5 servers no longer have it (another has it)", name))
					time.Sleep(rtt)
					for _, own := range abc {
						if own != name {
							assert.Zero(t, holding(w, own), "the rest is given back")
						}
					}
					assert.Equal(t, 3, holding(w, name), "another's is left alone")
				})
			})
		}
	}
}

// TestASetDoesNotGoOnWithoutAName: with the first that is lost all are.
func TestASetDoesNotGoOnWithoutAName(t *testing.T) {
	for _, name := range abc {
		t.Run(name, func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				l, _ := open(t, w, redlock.TTL(ttl), redlock.Renew(false))
				lock := takeAll(t, l, abc)
				for _, s := range w.Servers()[:3] {
					s.Del(name)
				}
				err := lock.Extend(t.Context())
				isOnly(t, err, redlock.ErrLost)
				var failure *redlock.QuorumError
				require.ErrorAs(t, err, &failure)
				assert.Equal(t, name, failure.Name)
				isOnly(t, context.Cause(lock.Context()), redlock.ErrLost)
				time.Sleep(leg + 1)
				for _, each := range abc {
					assert.Zero(t, holding(w, each), "the rest is given back")
				}
			})
		})
	}
}

// TestASetIsGivenBackToNodesThatLackANameOfIt.
func TestASetIsGivenBackToNodesThatLackANameOfIt(t *testing.T) {
	for _, gathered := range []bool{false, true} {
		t.Run(fmt.Sprint("gathered: ", gathered), func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				l, _ := open(t, w, redlock.TTL(ttl))
				var lock *redlock.Lock
				if gathered {
					held := take(t, l, "b")
					got := waitsAll(t.Context(), t, l, abc)
					time.Sleep(time.Second)
					held.Release(t.Context())
					lock = <-got
				} else {
					lock = takeAll(t, l, abc)
				}
				time.Sleep(watchedAt)
				w.Servers()[0].Del("b")
				w.Servers()[1].Flush()
				time.Sleep(100 * time.Millisecond)
				for _, name := range abc {
					assert.Equal(t, 5, holding(w, name), name)
				}
				assert.Equal(t, 5, lock.Votes())
				require.NoError(t, lock.Release(t.Context()))
				time.Sleep(leg + 1)
				for _, name := range abc {
					assert.Zero(t, holding(w, name), name)
				}
			})
		})
	}
}

// TestASetDoesNotPassThoseWhoWaitInItsProcess: they came first.
func TestASetDoesNotPassThoseWhoWaitInItsProcess(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.TTL(ttl))
		other, _ := open(t, w, redlock.TTL(ttl))
		held := take(t, other, "b")
		first := make(chan *redlock.Lock, 1)
		go func() { k, _ := l.Acquire(t.Context(), "b"); first <- k }()
		time.Sleep(time.Second)
		var behind atomic.Bool
		w.Watch(func(s sim.Step) {
			if s.Key == "c" {
				behind.Store(true)
			}
		})
		second := waitsAll(t.Context(), t, l, abc)
		time.Sleep(time.Second)
		assert.False(t, behind.Load(), "it asks for no name behind one that others wait for")
		require.NoError(t, held.Release(t.Context()))
		lock := <-first
		time.Sleep(10 * time.Second)
		assert.Empty(t, second)
		require.NoError(t, lock.Release(t.Context()))
		set := <-second

		third := make(chan *redlock.Lock, 1)
		go func() { k, _ := l.Acquire(t.Context(), "b"); third <- k }()
		time.Sleep(time.Second)
		assert.Empty(t, third)
		require.NoError(t, set.Release(t.Context()))
		assert.LessOrEqual(t, took(func() { lock = <-third }), standsBack+rtt, "a release of the set wakes who waits for one of its names")
		require.NoError(t, lock.Release(t.Context()))
	})
}

// TestANameOfASetIsHandedOver to a caller that waits for it, and the others are released.
func TestANameOfASetIsHandedOver(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		set := takeAll(t, l, abc)
		single := make(chan *redlock.Lock, 1)
		go func() {
			k, err := l.Acquire(t.Context(), "a")
			assert.NoError(t, err)
			assert.Error(t, set.Context().Err(), "two callers must not work at once")
			single <- k
		}()
		synctest.Wait()
		require.NoError(t, set.Release(t.Context()))
		lock := <-single
		assert.Equal(t, set.Value(), lock.Value())
		assert.Equal(t, []string{"a"}, lock.Names())
		assert.False(t, set.Valid())
		assert.True(t, lock.Valid())
		assert.Equal(t, 5, holding(w, "a"))
		assert.Zero(t, holding(w, "b"))
		require.NoError(t, lock.Release(t.Context()))
		time.Sleep(leg + 1)
		assert.Zero(t, holding(w, "a"))
	})
}

// TestSetsDoNotWaitInACircle, whatever order their callers give, and in which processes they are.
func TestSetsDoNotWaitInACircle(t *testing.T) {
	for _, processes := range []int{1, 3} {
		t.Run(fmt.Sprint(processes, " processes"), func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				lockers := make([]*redlock.Locker, processes)
				for i := range lockers {
					lockers[i], _ = open(t, w, redlock.TTL(ttl))
				}
				names := []string{"a", "b", "c", "d", "e", "f"}
				var held sync.Map
				var all sync.WaitGroup
				for i := range 12 {
					dice := rand.New(rand.NewPCG(uint64(i), 0))
					all.Go(func() {
						for range 20 {
							mine := slices.Clone(names)
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
			})
		})
	}
}

// TestALargeSetGetsItsTurn beside callers who take a single name of it again as soon as they have
// released it, so that all names are hardly ever free at one moment. The set waits for one or two
// holders for each name, by chance for some more: for three seconds in all, and a minute if its
// parts ask one node first.
func TestALargeSetGetsItsTurn(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		const turn = 12 * time.Second
		var names []string
		for i := range 16 {
			names = append(names, fmt.Sprintf("n%02d", i))
		}
		set, _ := open(t, w, redlock.TTL(ttl))
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		history := map[string][]check.Hold{}
		var mu sync.Mutex
		note := func(name string, from time.Time) {
			mu.Lock()
			defer mu.Unlock()
			history[name] = append(history[name], check.Hold{From: from.UnixNano(), Until: time.Now().UnixNano()})
		}
		for i, name := range names {
			single, _ := open(t, w, redlock.TTL(ttl))
			all.Go(func() {
				time.Sleep(time.Duration(i) * 7 * time.Millisecond)
				for ctx.Err() == nil {
					lock, err := single.Acquire(ctx, name)
					if err != nil {
						return
					}
					from := time.Now()
					time.Sleep(100 * time.Millisecond)
					note(name, from)
					lock.Release(t.Context())
				}
			})
		}
		time.Sleep(time.Second)
		for range 3 {
			began := time.Now()
			lock, err := set.AcquireAll(t.Context(), names)
			require.NoError(t, err)
			assert.Less(t, time.Since(began), turn)
			from := time.Now()
			time.Sleep(time.Second)
			for _, name := range names {
				note(name, from)
			}
			require.NoError(t, lock.Release(t.Context()))
		}
		cancel()
		all.Wait()
		for name, holds := range history {
			assert.Greater(t, len(holds), 5, name)
			assert.Empty(t, check.Overlaps(holds, func(h check.Hold) check.Hold { return h }), name)
		}
	})
}

// TestAFairSetWaitsInOrder at each name.
func TestAFairSetWaitsInOrder(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		a, _ := open(t, w, redlock.Fair())
		b, _ := open(t, w, redlock.Fair())
		c, _ := open(t, w, redlock.Fair())
		held := take(t, a, "b")
		first := waitsAll(t.Context(), t, b, abc)
		time.Sleep(time.Second)
		second := waitsAll(t.Context(), t, c, abc)
		time.Sleep(time.Second)
		require.NoError(t, held.Release(t.Context()))
		lock := <-first
		time.Sleep(time.Second)
		assert.Empty(t, second)
		require.NoError(t, lock.Release(t.Context()))
		<-second
	})
}

// TestTheOptionsOfASetHoldFromItsBeginning, and not for the waiting.
func TestTheOptionsOfASetHoldFromItsBeginning(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.TTL(ttl))
		held := take(t, l, "c")
		once := waitsAll(t.Context(), t, l, []string{"a", "c"}, redlock.Renew(false))
		capped := waitsAll(t.Context(), t, l, []string{"b", "c"}, redlock.MaxHold(2*ttl))
		time.Sleep(10 * ttl)
		require.NoError(t, held.Release(t.Context()))
		for range 2 {
			select {
			case lock := <-once:
				assert.Equal(t, validity, took(func() { <-lock.Context().Done() }))
			case lock := <-capped:
				assert.Equal(t, 2*ttl, took(func() { <-lock.Context().Done() }))
				assert.ErrorContains(t, context.Cause(lock.Context()), "MaxHold")
			}
		}
	})
}

// TestASetWithRetriesTriesSoOften, and all names at once.
func TestASetWithRetriesTriesSoOften(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.TTL(ttl))
		other, _ := open(t, w, redlock.TTL(ttl))
		held := take(t, other, "b")
		count := submitted(w)
		_, err := l.AcquireAll(t.Context(), abc, redlock.Retries(3))
		isOnly(t, err, redlock.ErrHeld)
		assert.Equal(t, 4*5*3, count(protocol.OpAcquire))
		time.AfterFunc(time.Second, func() { held.Release(t.Context()) })
		_, err = l.AcquireAll(t.Context(), abc, redlock.RetryInterval(200*time.Millisecond))
		require.NoError(t, err)
	})
}

// TestASetWaitsOutAQuarantine.
func TestASetWaitsOutAQuarantine(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.TTL(ttl), redlock.MemoryGuard(true))
		_, err := l.TryAcquireAll(t.Context(), abc)
		isOnly(t, err, redlock.ErrNoQuorum)
		assert.ErrorIs(t, err, redlock.ErrQuarantine)
		waited := took(func() {
			lock, err := l.AcquireAll(t.Context(), abc)
			require.NoError(t, err)
			require.NoError(t, lock.Release(t.Context()))
		})
		assert.Greater(t, waited, ttl/2)
		assert.Less(t, waited, 2*ttl)
	})
}

// An endsObserver keeps what is told of the beginnings and ends of locks.
type endsObserver struct {
	mu   sync.Mutex
	told []string
}

func (o *endsObserver) Observe(e redlock.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch e.Kind {
	case redlock.EventVote, redlock.EventAttempt:
	default:
		o.told = append(o.told, fmt.Sprint(e.Kind, " ", e.Name, " ", e.Err))
	}
}

func (o *endsObserver) ends() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.told)
}

// TestEventsOfASet: one acquisition and one end, also if it was gathered.
func TestEventsOfASet(t *testing.T) {
	const acquired = "acquired a, b, c <nil>"
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
			for _, s := range w.Servers()[:3] {
				s.Del("b")
			}
			<-k.Context().Done()
			time.Sleep(leg + 1)
			isOnly(t, k.Release(t.Context()), redlock.ErrLost)
		}, `lost a, b, c redlock: "b": lock lost: 3 of 5 servers no longer have it (released by another)`},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				o := &endsObserver{}
				l, _ := open(t, w, redlock.TTL(ttl), redlock.Observe(o))
				other, _ := open(t, w, redlock.TTL(ttl))
				held := take(t, other, "b")
				got := waitsAll(t.Context(), t, l, abc)
				time.Sleep(2 * ttl)
				require.NoError(t, held.Release(t.Context()))
				lock := <-got
				time.Sleep(ttl)
				test.end(t, w, l, lock)
				told := o.ends()
				require.Greater(t, len(told), 2)
				assert.Equal(t, acquired, told[0], "nothing is told of it before")
				for _, renewed := range told[1 : len(told)-1] {
					assert.Equal(t, "extended a, b, c <nil>", renewed)
				}
				last := told[len(told)-1]
				assert.True(t, strings.HasPrefix(last, test.want), last)
			})
		})
	}
}

// TestEachNameOfASetHasItsToken, above those that the name had before.
func TestEachNameOfASetHasItsToken(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.TTL(ttl), redlock.Fenced())
		other, _ := open(t, w, redlock.TTL(ttl), redlock.Fenced())
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

// TestASetIsReleasedOnce, by whichever of its callers is first, and told once.
func TestASetIsReleasedOnce(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		o := &endsObserver{}
		l, _ := open(t, w, redlock.TTL(ttl), redlock.Observe(o))
		var many []string
		for i := range 100 {
			many = append(many, fmt.Sprint("n", i))
		}
		for range 20 {
			lock := takeAll(t, l, many)
			var released atomic.Int32
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					switch err := lock.Release(t.Context()); {
					case err == nil:
						released.Add(1)
					default:
						isOnly(t, err, redlock.ErrReleased)
					}
				})
			}
			all.Wait()
			assert.EqualValues(t, 1, released.Load())
			time.Sleep(rtt)
		}
		assert.Len(t, o.ends(), 40, "each begins and ends once")
	})
}

// TestAReleaseTellsOfALossThatIsDue: one of the names is over.
func TestAReleaseTellsOfALossThatIsDue(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		o := &endsObserver{}
		l, c := open(t, w, redlock.TTL(ttl), redlock.Renew(false), redlock.Observe(o))
		lock := takeAll(t, l, abc)
		c.Pause() // no timer fires
		time.Sleep(ttl)
		released := make(chan error, 1)
		go func() { released <- lock.Release(t.Context()) }()
		synctest.Wait()
		c.Resume()
		isOnly(t, <-released, redlock.ErrLost)
		assert.ErrorIs(t, context.Cause(lock.Context()), redlock.ErrLost)
		told := o.ends()
		require.Len(t, told, 2)
		assert.Contains(t, told[1], "lost a, b, c")
	})
}

// TestAVotedSetTellsItsTry, as a lock of one name does.
func TestAVotedSetTellsItsTry(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		var mu sync.Mutex
		var tries []redlock.Event
		l, _ := open(t, w, redlock.TTL(ttl), redlock.Observe(observerFunc(func(e redlock.Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.Kind == redlock.EventAttempt {
				tries = append(tries, e)
			}
		})))
		takeAll(t, l, abc)
		mu.Lock()
		defer mu.Unlock()
		require.Len(t, tries, 3)
		for i, e := range tries {
			assert.Equal(t, abc[i], e.Name)
			assert.Equal(t, rtt, e.Elapsed)
			assert.Positive(t, e.Remaining)
		}
	})
}

// TestOfTwoThatHaveWonANameEachOneGetsBoth: the one that has won the first name asks again, and the other
// gives way.
func TestOfTwoThatHaveWonANameEachOneGetsBoth(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		net := sim.Fixed(leg)
		net.Travel = func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
			switch {
			case l.Op != protocol.OpAcquire || l.Reply:
			case l.Key == "x" && l.Client == 1: // behind the other's, and before its y
				return leg + leg/2, false
			case l.Key == "y" && l.Client == 0:
				return 2 * leg, false
			}
			return leg, false
		}
		w.SetNet(net)
		got := make([]*redlock.Lock, 2)
		var all sync.WaitGroup
		for i := range got {
			l, _ := open(t, w)
			all.Go(func() {
				var err error
				if got[i], err = l.TryAcquireAll(t.Context(), []string{"x", "y"}); err != nil {
					assert.ErrorIs(t, err, redlock.ErrHeld)
				}
			})
		}
		all.Wait()
		assert.NotNil(t, got[0])
		assert.Nil(t, got[1])
	})
}
