package redlock_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/redlocktest"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/internal/simtest"
	"github.com/redquorum/redquorum/protocol"
	"github.com/redquorum/redquorum/redlock"
)

const (
	apart   = 30 * time.Millisecond // waiters begin
	called  = leg + rtt             // from a change of the key: the hint, and all nodes
	silence = time.Second + unaided // how long a waiter that says nothing can keep others waiting
)

// A fairground has one holder and waiters of several processes.
type fairground struct {
	*sim.World
	*record
	lock *redlock.Lock

	mu     sync.Mutex
	served []int
	at     []time.Time
	locks  []*redlock.Lock
	all    sync.WaitGroup
}

// fair has a client hold the lock that others will wait for.
func fair(t *testing.T, test func(t *testing.T, f *fairground)) {
	t.Helper()
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		holder, _ := open(t, w, redlock.TTL(time.Hour))
		f := &fairground{World: w, record: recorded(w), lock: take(t, holder, "x")}
		test(t, f)
		f.all.Wait()
		f.lock.Release(t.Context())
		time.Sleep(5 * time.Second)
		assert.Zero(t, f.keys(), "nothing is left on the servers")
	})
}

// keys counts those of locks and queues.
func (f *fairground) keys() (n int) {
	for _, s := range f.Servers() {
		for key := range s.Keys() {
			if !strings.Contains(key, "redlock:fence:") {
				n++
			}
		}
	}
	return n
}

// queues starts waiter number i, who will hold the lock for a while.
func (f *fairground) queues(ctx context.Context, t *testing.T, l *redlock.Locker, i int, opts ...redlock.Option) {
	f.all.Go(func() {
		k, err := l.Acquire(ctx, "x", opts...)
		if err != nil {
			return
		}
		f.mu.Lock()
		f.served, f.at, f.locks = append(f.served, i), append(f.at, time.Now()), append(f.locks, k)
		f.mu.Unlock()
		time.Sleep(apart)
		assert.NoError(t, k.Release(t.Context()))
	})
	time.Sleep(apart)
}

// keeper returns the node that keeps the queue, by the last question.
func (f *fairground) keeper() int {
	steps := f.of(sim.Submitted, protocol.OpQueue)
	return steps[len(steps)-1].Node
}

// free has the holder release the lock, and returns when.
func (f *fairground) free(t *testing.T) time.Time {
	start := time.Now()
	require.NoError(t, f.lock.Release(t.Context()))
	return start
}

func upTo(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// TestFairWaitersAreServedInTheOrderOfTheirComing, whatever goes wrong with the hints
// or their processes' clocks.
func TestFairWaitersAreServedInTheOrderOfTheirComing(t *testing.T) {
	for name, test := range map[string]struct {
		lose func(sim.Leg) bool
		opts []redlock.Option
		each time.Duration // at most, from release to acquisition
	}{
		"hints":    {func(sim.Leg) bool { return false }, nil, leg + called + rtt},
		"no hints": {func(l sim.Leg) bool { return l.Hint }, nil, 2*unaided + 4*rtt},
		"fenced":   {func(sim.Leg) bool { return false }, []redlock.Option{redlock.Fenced()}, 2*hinted + 2*rtt},
	} {
		t.Run(name, func(t *testing.T) {
			fair(t, func(t *testing.T, f *fairground) {
				f.SetNet(lose(test.lose))
				for i, rate := range []float64{1, 0.5, 2, 1.3, 0.8, 1.1} {
					l := simtest.Locker(t, f.NewClient(rate), redlock.Fair(), redlock.TTL(time.Minute))
					f.queues(t.Context(), t, l, i, test.opts...)
				}
				time.Sleep(time.Second)
				last := f.free(t)
				f.all.Wait()
				assert.Equal(t, upTo(6), f.served)
				for i, at := range f.at {
					assert.LessOrEqual(t, at.Sub(last), test.each)
					last = at.Add(apart)
					if i > 0 && len(test.opts) > 0 {
						assert.Greater(t, f.locks[i].Fence(), f.locks[i-1].Fence())
					}
				}
			})
		})
	}
}

// TestASilentWaiterIsPassedOver after a while, if it is the first or comes to be.
func TestASilentWaiterIsPassedOver(t *testing.T) {
	for name, stop := range map[string]func(*sim.Client){"paused": (*sim.Client).Pause, "crashed": (*sim.Client).Crash} {
		for dead := range 2 {
			t.Run(name, func(t *testing.T) {
				fair(t, func(t *testing.T, f *fairground) {
					var clients []*sim.Client
					for i := range 3 {
						l, c := open(t, f.World, redlock.Fair())
						clients = append(clients, c)
						f.queues(t.Context(), t, l, i)
					}
					stop(clients[dead])
					start := f.free(t)
					time.Sleep(4 * time.Second)
					f.mu.Lock()
					served, at := f.served, f.at
					f.mu.Unlock()
					if assert.Len(t, served, 2) {
						assert.Equal(t, 2, served[1])
						assert.LessOrEqual(t, at[1].Sub(start), silence+apart+2*hinted)
					}
					clients[dead].Resume()
				})
			})
		}
	}
}

// TestAFairWaiterThatGivesUpIsInNobodysWay: its place is given back at once.
func TestAFairWaiterThatGivesUpIsInNobodysWay(t *testing.T) {
	fair(t, func(t *testing.T, f *fairground) {
		a, _ := open(t, f.World, redlock.Fair())
		b, _ := open(t, f.World, redlock.Fair(), longest)
		ctx, cancel := context.WithCancel(t.Context())
		f.queues(ctx, t, a, 0)
		f.queues(t.Context(), t, b, 1)
		time.Sleep(time.Second)
		cancel()
		time.Sleep(2*rtt + leg) // the place is given back, b is called and says that it is there
		start := f.free(t)
		f.all.Wait()
		assert.Equal(t, []int{1}, f.served)
		assert.Equal(t, leg+called, f.at[0].Sub(start))
	})
}

// TestTheOrderOutlivesTheNodeThatKeepsIt: the waiters tell the next one how long they
// have waited.
func TestTheOrderOutlivesTheNodeThatKeepsIt(t *testing.T) {
	for name, trouble := range map[string]func(*sim.Server){
		"crashed": (*sim.Server).Crash, "vanished": (*sim.Server).Vanish, "hung": (*sim.Server).Hang, "flushed": (*sim.Server).Flush,
	} {
		t.Run(name, func(t *testing.T) {
			fair(t, func(t *testing.T, f *fairground) {
				for i := range 6 {
					l, _ := open(t, f.World, redlock.Fair())
					f.queues(t.Context(), t, l, i)
				}
				keeper := f.Servers()[f.keeper()]
				trouble(keeper)
				time.Sleep(5 * time.Second)
				start := f.free(t)
				f.all.Wait()
				assert.Equal(t, upTo(6), f.served)
				assert.LessOrEqual(t, f.at[5].Sub(start), 6*(apart+unaided))
				keeper.Resume()
				keeper.Restart()
			})
		})
	}
}

// TestFairWaitersOfOneProcessBypassNobody: each has its own place.
func TestFairWaitersOfOneProcessBypassNobody(t *testing.T) {
	fair(t, func(t *testing.T, f *fairground) {
		var ls []*redlock.Locker
		for range 3 {
			l, _ := open(t, f.World, redlock.Fair())
			ls = append(ls, l)
		}
		for i, l := range []int{0, 0, 1, 0, 2, 1, 1, 0} {
			f.queues(t.Context(), t, ls[l], i)
		}
		time.Sleep(time.Second)
		f.free(t)
		f.all.Wait()
		assert.Equal(t, upTo(8), f.served)
	})
}

// TestFairnessCostsARoundTrip to one node, where no other client is in the way.
func TestFairnessCostsARoundTrip(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.Fair())
		r := recorded(w)
		assert.Equal(t, 2*rtt, took(func() {
			_, err := l.Acquire(t.Context(), "x")
			assert.NoError(t, err)
		}))
		time.Sleep(rtt)
		assert.Len(t, r.of(sim.Run, protocol.OpAcquire), 5)
		assert.Len(t, r.of(sim.Run, protocol.OpQueue), 2, "take the place and give it back")
		var queues int
		for _, s := range w.Servers() {
			queues += len(s.Keys()) - len(s.Locks())
		}
		assert.Zero(t, queues)
	})
}

// TestFairnessOverALongWay: an answer may take longer than the pause between two
// questions.
func TestFairnessOverALongWay(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		const far = 300 * time.Millisecond // and back
		w.SetNet(sim.Fixed(far / 2))
		l, _ := open(t, w, redlock.Fair(), redlock.NodeTimeout(time.Second))
		assert.Equal(t, 2*far, took(func() {
			_, err := l.Acquire(t.Context(), "x")
			assert.NoError(t, err)
		}))
	})
}

// TestAFairWaiterHearsOfAReleaseInItsOwnProcess, of which the servers do not hint.
func TestAFairWaiterHearsOfAReleaseInItsOwnProcess(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.Fair(), longest)
		r := recorded(w)
		lock := take(t, l, "x")
		got := waits(t.Context(), t, l)
		r.listens(t, 0)
		start := time.Now()
		require.NoError(t, lock.Release(t.Context()))
		<-got
		assert.Equal(t, rtt, time.Since(start))
	})
}

// TestOthersNeedNotBeFair: both kinds get the lock in the end, and those who do not
// wait get it when it is free.
func TestOthersNeedNotBeFair(t *testing.T) {
	fair(t, func(t *testing.T, f *fairground) {
		a, _ := open(t, f.World, redlock.Fair())
		plain, _ := open(t, f.World)
		f.queues(t.Context(), t, a, 0)
		f.queues(t.Context(), t, plain, 1)
		_, err := plain.TryAcquire(t.Context(), "x")
		isOnly(t, err, redlock.ErrHeld)
		_, err = a.TryAcquire(t.Context(), "x")
		isOnly(t, err, redlock.ErrHeld)
		f.free(t)
		f.all.Wait()
		assert.ElementsMatch(t, upTo(2), f.served)
		time.Sleep(rtt)
		lock := take(t, a, "x")
		require.NoError(t, lock.Release(t.Context()))
		synctest.Wait()
	})
}

// A lastWord is a node that is asked to keep a queue when its Locker is being closed.
type lastWord struct {
	protocol.Node
	asked *atomic.Int32
	close func()
}

// Submit implements redlock.Node.
func (n lastWord) Submit(req *protocol.Request, slot int, to protocol.Receiver) error {
	if req.Op != protocol.OpQueue || req.Ticket.Leave {
		return n.Node.Submit(req, slot, to)
	}
	n.asked.Add(1)
	n.close()
	return redlock.ErrClosed
}

// TestAFairWaiterAsksNobodyAfterClose: that one node fails then is no reason to turn
// to the next.
func TestAFairWaiterAsksNobodyAfterClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		given, _ := nodes("a", "b", "c", "d", "e")
		var l *redlock.Locker
		var asked atomic.Int32
		closed := sync.OnceFunc(func() { assert.NoError(t, l.Close()) })
		for i := range given {
			given[i] = lastWord{given[i], &asked, closed}
		}
		l, err := redlock.New(given, redlocktest.Clock(clock.NewFake(1)), redlock.MemoryGuard(false), redlock.Fair())
		require.NoError(t, err)
		_, err = l.Acquire(t.Context(), "x")
		isOnly(t, err, redlock.ErrClosed)
		assert.EqualValues(t, 1, asked.Load())
	})
}

// TestTheOrderOutlivesAQuarantine: the first waiter rests while too few nodes
// have a vote, but never for so long that the next takes it for dead.
func TestTheOrderOutlivesAQuarantine(t *testing.T) {
	for _, forgot := range []int{3, 5} { // with the node that keeps the queue, or without
		for began := time.Duration(0); began < 2*time.Second; began += 200 * time.Millisecond {
			t.Run(fmt.Sprint(forgot, " nodes, ", began), func(t *testing.T) {
				simulate(t, 5, func(t *testing.T, w *sim.World) {
					ls := settled(t, w, 4, redlock.Fair(), longest)
					forget(w.Servers()[:forgot]...)
					_, err := ls[3].TryAcquire(t.Context(), "y") // the quarantine begins
					require.ErrorIs(t, err, redlock.ErrQuarantine)
					time.Sleep(ttl - 3*time.Second + began)
					r := recorded(w)
					f := &fairground{World: w, record: r}
					for i, l := range ls[:3] {
						f.queues(t.Context(), t, l, i)
					}
					f.all.Wait()
					assert.Equal(t, upTo(3), f.served)
					assert.Less(t, r.longestSilence(), time.Second*3/4)
				})
			})
		}
	}
}

// longestSilence returns the longest time between two questions of a waiter.
func (r *record) longestSilence() (longest time.Duration) {
	before := map[int]time.Time{} // by client
	for _, step := range r.of(sim.Submitted, protocol.OpQueue) {
		if at, ok := before[step.Client]; ok {
			longest = max(longest, step.At.Sub(at))
		}
		before[step.Client] = step.At
	}
	return longest
}
