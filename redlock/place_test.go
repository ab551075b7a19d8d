package redlock_test

import (
	"context"
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

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/internal/simtest"
	"github.com/redquorum/redquorum/internal/timetest"
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
	hold time.Duration // of each waiter

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
		f := &fairground{World: w, record: recorded(w), lock: take(t, holder, "x"), hold: apart}
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
		time.Sleep(f.hold)
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
		"hints":    {func(sim.Leg) bool { return false }, nil, leg + called + 2*rtt},
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

// TestAClosedLockerLeavesNoPlace that would keep others waiting.
func TestAClosedLockerLeavesNoPlace(t *testing.T) {
	fair(t, func(t *testing.T, f *fairground) {
		a, _ := open(t, f.World, redlock.Fair())
		b, _ := open(t, f.World, redlock.Fair(), longest)
		f.queues(t.Context(), t, a, 0)
		f.queues(t.Context(), t, b, 1)
		time.Sleep(time.Second)
		require.NoError(t, a.Close())
		time.Sleep(2*rtt + leg) // as above
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

// TestFairWaitersOfOneProcessBypassNobody who came before, once the turn of their process is over.
func TestFairWaitersOfOneProcessBypassNobody(t *testing.T) {
	fair(t, func(t *testing.T, f *fairground) {
		f.hold = 10 * rtt
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

// A queueless is a node that keeps no queue.
type queueless struct{ protocol.Node }

// Submit implements protocol.Node.
func (n queueless) Submit(req *protocol.Request, slot int, to protocol.Receiver) error {
	if req.Op != protocol.OpQueue {
		return n.Node.Submit(req, slot, to)
	}
	time.AfterFunc(rtt, func() {
		to.Receive(slot, protocol.Reply{Outcome: protocol.Failed, Err: protocol.ErrWrongType})
	})
	return nil
}

// Watch implements protocol.Watchable.
func (n queueless) Watch(key string, hint func(key string)) (stop func()) {
	return n.Node.(protocol.Watchable).Watch(key, hint)
}

// TestAFairWaiterRestsWhereNoNodeKeepsAQueue, and hears of a release all the same.
func TestAFairWaiterRestsWhereNoNodeKeepsAQueue(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		holder, _ := open(t, w, longest)
		lock := take(t, holder, "x")
		client := w.NewClient(1)
		nodes := client.Nodes()
		for i := range nodes {
			nodes[i] = queueless{nodes[i]}
		}
		l, err := redlock.New(nodes, timetest.Clock(client.Clock()), redlock.MemoryGuard(false), redlock.Fair(), longest)
		require.NoError(t, err)
		t.Cleanup(func() { l.Close() })
		r := recorded(w)
		got := waits(t.Context(), t, l)
		time.Sleep(10*time.Second + unaided/2)
		tries := len(r.tries(1))
		assert.LessOrEqual(t, tries, 56, "one in each of the longest waits, and some before")
		start := time.Now()
		require.NoError(t, lock.Release(t.Context()))
		require.NoError(t, (<-got).Release(t.Context()))
		assert.LessOrEqual(t, time.Since(start), hinted+5*rtt+2*rtt)
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
					f := &fairground{World: w, record: r, hold: apart}
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

// comers are n processes with one caller each that hold a lock for so long and want it again as
// soon as they have released it, for so many rounds.
type comers struct {
	n      int
	hold   time.Duration
	rounds int
}

// come returns how long the comers waited each time, also for what came too late, and how long it
// took from one holder to the next.
func (c comers) come(t *testing.T, w *sim.World, opts ...redlock.LockerOption) (waits []time.Duration, each time.Duration) {
	begin := time.Now()
	var mu sync.Mutex
	var all sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for range c.n {
		l, _ := open(t, w, opts...)
		all.Go(func() {
			for ctx.Err() == nil {
				start := time.Now()
				lock, err := l.Acquire(ctx, "x")
				waited := time.Since(start)
				if err != nil {
					mu.Lock()
					waits = append(waits, waited)
					mu.Unlock()
					return
				}
				time.Sleep(c.hold)
				assert.NoError(t, lock.Release(context.WithoutCancel(ctx)))
				mu.Lock()
				if waits = append(waits, waited); len(waits) == c.rounds*c.n {
					stop()
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return waits, time.Since(begin) / time.Duration(len(waits))
}

// TestNobodyIsPassedOverForLong though the one who has just released is always the fastest, and no
// caller asked for fairness.
func TestNobodyIsPassedOverForLong(t *testing.T) {
	if testing.Short() {
		t.Skip("a percentile needs many turns")
	}
	for _, n := range []int{2, 4, 16} {
		for _, hold := range []time.Duration{0, 2 * time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond} {
			t.Run(fmt.Sprintf("%d processes, %v", n, hold), func(t *testing.T) {
				simulate(t, 5, func(t *testing.T, w *sim.World) {
					w.SetNet(sim.Fixed(near / 2))
					servesEachInTime(t, w, n, hold)
				})
			})
			if hold > 2*time.Millisecond {
				continue // split votes are rare there
			}
			t.Run(fmt.Sprintf("%d processes, %v, unevenly", n, hold), func(t *testing.T) {
				simulate(t, 5, func(t *testing.T, w *sim.World) {
					w.SetNet(uneven(near / 2))
					servesEachInTime(t, w, n, hold)
				})
			})
		}
	}
}

// near is a round trip where the order among processes matters most.
const near = 100 * time.Microsecond

// uneven takes between half and twice d for a leg, and ten times as long for one in a hundred: so two processes that ask all nodes at the same time split their votes.
func uneven(d time.Duration) sim.Net {
	net := sim.Fixed(d)
	net.Travel = func(_ sim.Leg, r *rand.Rand) (time.Duration, bool) {
		if r.IntN(100) == 0 {
			return 10 * d, false
		}
		return d/2 + time.Duration(r.Int64N(int64(3*d/2))), false
	}
	return net
}

// servesEachInTime has n processes come again at once, and asserts how long they wait: by the time
// that a round of all of them takes in strict order.
func servesEachInTime(t *testing.T, w *sim.World, n int, hold time.Duration) {
	_, inOrder := comers{n, hold, max(20, 400/n)}.come(t, w, redlock.Fair())
	waits, each := comers{n, hold, max(100, 2000/n)}.come(t, w)
	slices.Sort(waits)
	p99, longest := waits[len(waits)*99/100], waits[len(waits)-1]
	t.Logf("each %v, in order %v, p99 %v, longest %v", each, inOrder, p99, longest)
	assert.LessOrEqual(t, each, hold+4*near, "from one holder to the next")
	// A process that has not heard of others has the lock for its turn.
	const turn = 5*time.Millisecond + 30*near
	round := time.Duration(n) * inOrder
	assert.LessOrEqual(t, p99, max(3*round, turn))
	assert.LessOrEqual(t, p99, max(time.Duration(3*n)*each, turn))
	assert.LessOrEqual(t, longest, time.Duration(n+4)*each+turn)
}

// TestALateAnswerDoesNotPartAWaiterFromTheOthers: it takes its place at the node where they have theirs,
// or goes back there. For one process a node's answers are late now and then, whichever node it is.
func TestALateAnswerDoesNotPartAWaiterFromTheOthers(t *testing.T) {
	for name, test := range map[string]struct {
		late time.Duration // for longer than a node is waited for
		opts []redlock.LockerOption
	}{
		"plain": {20 * time.Millisecond, nil},
		"fair":  {40 * time.Millisecond, []redlock.LockerOption{redlock.Fair()}},
	} {
		for _, callers := range [][]int{{1, 1, 1, 1}, {1, 8}} { // of each process
			for late := range 3 {
				t.Run(fmt.Sprint(name, callers, late), func(t *testing.T) {
					simulate(t, 3, func(t *testing.T, w *sim.World) {
						begin, net := w.Now(), uneven(near/2)
						travel := net.Travel
						net.Travel = func(l sim.Leg, r *rand.Rand) (time.Duration, bool) {
							d, lost := travel(l, r)
							if l.Client == 0 && l.Node == late && l.Reply {
								d = max(d, test.late-w.Now().Sub(begin)%(300*time.Millisecond))
							}
							return d, lost
						}
						w.SetNet(net)
						turns, longest := taking(t, w, callers, test.opts...)
						assert.LessOrEqual(t, longest, 30, "of %d turns", turns)
					})
				})
			}
		}
	}
}

// TestANodeThatIsDownCostsWaitersLittle, whether it kept the queue or not: they go back to it when it
// answers, and not before.
func TestANodeThatIsDownCostsWaitersLittle(t *testing.T) {
	for name, stop := range map[string]func(*sim.Server){
		"hung": (*sim.Server).Hang, "vanished": (*sim.Server).Vanish, "crashed": (*sim.Server).Crash,
	} {
		for kind, opts := range map[string][]redlock.LockerOption{"plain": nil, "fair": {redlock.Fair()}} {
			for down := range 3 {
				t.Run(fmt.Sprint(name, ", ", kind, down), func(t *testing.T) {
					simulate(t, 3, func(t *testing.T, w *sim.World) {
						w.SetNet(uneven(near / 2))
						server := w.Servers()[down]
						time.AfterFunc(100*time.Millisecond, func() { stop(server) })
						turns, longest := taking(t, w, []int{1, 1, 1, 1}, opts...)
						assert.LessOrEqual(t, longest, 30, "of %d turns", turns)
						assert.Greater(t, turns, int(takingFor/(takingHold+6*near)))
						server.Resume()
						server.Restart()
					})
				})
			}
		}
	}
}

const (
	takingFor  = 3 * time.Second
	takingHold = 2 * time.Millisecond
)

// taking has so many callers of each process take a lock again and again. It returns how many turns that
// made, and the most that others had while one waited.
func taking(t *testing.T, w *sim.World, callers []int, opts ...redlock.LockerOption) (turns, longest int) {
	var mu sync.Mutex
	var all sync.WaitGroup
	var unsure atomic.Int32
	take := func(l *redlock.Locker) bool {
		mu.Lock()
		before := turns
		mu.Unlock()
		lock, err := l.Acquire(t.Context(), "x")
		if !assert.NoError(t, err) {
			return false
		}
		mu.Lock()
		turns++
		longest = max(longest, turns-before)
		mu.Unlock()
		time.Sleep(takingHold)
		if err := lock.Release(t.Context()); err != nil { // a node that had granted it has fallen silent
			isOnly(t, err, redlock.ErrNoQuorum)
			unsure.Add(1)
		}
		return true
	}
	end := time.Now().Add(takingFor)
	for _, n := range callers {
		l, _ := open(t, w, append(opts, redlock.NodeTimeout(time.Second))...)
		for range n {
			all.Go(func() {
				for time.Now().Before(end) && take(l) {
				}
			})
		}
	}
	all.Wait()
	assert.LessOrEqual(t, unsure.Load(), int32(1), "releases without a quorum")
	return turns, longest
}

// TestWhoIsAloneForgetsItsRivals: a process that has met another once, and is alone since, has long
// turns again, in which it lines up for nothing.
func TestWhoIsAloneForgetsItsRivals(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		w.SetNet(sim.Fixed(near / 2))
		l, _ := open(t, w)
		rival, _ := open(t, w)
		burst := func() {
			for range 2 {
				lock, err := l.Acquire(t.Context(), "x")
				require.NoError(t, err)
				time.Sleep(2 * time.Millisecond)
				require.NoError(t, lock.Release(t.Context()))
			}
			time.Sleep(100 * time.Millisecond)
		}
		lock := take(t, rival, "x")
		var met sync.WaitGroup
		met.Go(burst)
		time.Sleep(20 * time.Millisecond)
		require.NoError(t, lock.Release(t.Context()))
		met.Wait()
		for range 15 {
			burst()
		}
		record := recorded(w)
		for range 10 {
			burst()
		}
		assert.Empty(t, record.of(sim.Submitted, protocol.OpQueue))
	})
}

// TestAPausedWaiterKeepsNobodyWaiting though it is the first: the second takes the free lock, and
// the place of the first.
func TestAPausedWaiterKeepsNobodyWaiting(t *testing.T) {
	for name, stop := range map[string]func(*sim.Client){"paused": (*sim.Client).Pause, "crashed": (*sim.Client).Crash} {
		t.Run(name, func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				holder, _ := open(t, w, redlock.TTL(time.Hour))
				f := &fairground{World: w, record: recorded(w), lock: take(t, holder, "x"), hold: apart}
				var processes []*sim.Client
				for i := range 5 {
					l, process := open(t, w)
					processes = append(processes, process)
					f.queues(t.Context(), t, l, i)
				}
				stop(processes[0])
				last := f.free(t)
				time.Sleep(5 * time.Second) // far more than they need
				f.mu.Lock()
				defer f.mu.Unlock()
				assert.Equal(t, []int{1, 2, 3, 4}, f.served)
				for i, at := range f.at {
					limit := called + 2*rtt
					if i == 0 { // 20 ms until it looks, and six round trips for the first to take the lock
						limit += 2*rtt + 6*rtt
					}
					assert.LessOrEqual(t, at.Sub(last), limit, "number %d", i)
					last = at.Add(apart)
				}
				processes[0].Resume()
			})
		})
	}
}

// TestAFairCallerWhoComesInTheTurnOfItsProcessWaitsForOthers who came before.
func TestAFairCallerWhoComesInTheTurnOfItsProcessWaitsForOthers(t *testing.T) {
	fair(t, func(t *testing.T, f *fairground) {
		a, _ := open(t, f.World, redlock.Fair())
		b, _ := open(t, f.World, redlock.Fair())
		f.queues(t.Context(), t, a, 0)
		f.queues(t.Context(), t, b, 1)
		f.free(t)
		time.Sleep(2 * called) // a has it
		f.queues(t.Context(), t, a, 2)
		f.all.Wait()
		assert.Equal(t, upTo(3), f.served)
	})
}

// TestWhoIsAloneWaitsForNobody though it takes the lock again and again: it has to line up once in a turn, at most.
func TestWhoIsAloneWaitsForNobody(t *testing.T) {
	const near, cycles = time.Millisecond, 100
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		w.SetNet(sim.Fixed(near / 2))
		l, _ := open(t, w)
		record := recorded(w)
		var all time.Duration
		for range cycles {
			waited := took(func() {
				lock, err := l.Acquire(t.Context(), "x")
				require.NoError(t, err)
				require.NoError(t, lock.Release(t.Context()))
			})
			all += waited
			assert.LessOrEqual(t, waited, 3*near, "the lock and its release, and once in a turn the order")
		}
		assert.LessOrEqual(t, all, cycles*2*near+(cycles/5+1)*near)
		asked := len(record.of(sim.Submitted, protocol.OpQueue))
		assert.LessOrEqual(t, asked, cycles/3+2)
	})
}

// TestWhoIsAloneWaitsForNoSilentNode to learn whether others wait: one server that hangs costs a
// caller who takes the lock again and again a few round trips, once.
func TestWhoIsAloneWaitsForNoSilentNode(t *testing.T) {
	const near = time.Millisecond
	for silent := range 5 {
		t.Run(fmt.Sprint("node ", silent), func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				w.SetNet(sim.Fixed(near / 2))
				l, _ := open(t, w, redlock.NodeTimeout(time.Second))
				w.Servers()[silent].Hang()
				late := 0
				for range 100 {
					waited := took(func() {
						lock := take(t, l, "other")
						require.NoError(t, lock.Release(t.Context()))
						lock, err := l.Acquire(t.Context(), "x")
						require.NoError(t, err)
						require.NoError(t, lock.Release(t.Context()))
					})
					assert.LessOrEqual(t, waited, 20*near)
					if waited > 6*near {
						late++
					}
				}
				assert.LessOrEqual(t, late, 1)
				w.Servers()[silent].Resume()
			})
		})
	}
}

// TestWhoComesAgainAtOnceKeepsNobodyWaiting though it has heard of no other process.
func TestWhoComesAgainAtOnceKeepsNobodyWaiting(t *testing.T) {
	for _, servers := range []int{1, 3, 5} {
		for _, hold := range []time.Duration{0, 2 * time.Millisecond} {
			simulateN(t, servers, func(t *testing.T, w *sim.World) {
				w.SetNet(sim.Fixed(near / 2))
				alone, _ := open(t, w)
				other, _ := open(t, w)
				for range 20 {
					ctx, stop := context.WithCancel(t.Context())
					var turns atomic.Int32
					var all sync.WaitGroup
					all.Go(func() {
						for ctx.Err() == nil {
							k := waited(t, alone, "x")
							time.Sleep(hold)
							assert.NoError(t, k.Release(t.Context()))
							turns.Add(1)
						}
					})
					time.Sleep(20 * time.Millisecond)
					before := turns.Load()
					assert.NoError(t, waited(t, other, "x").Release(t.Context()))
					assert.LessOrEqual(t, turns.Load()-before, int32(30), "hold %v: a turn is 5 ms, which are 25 without a hold", hold)
					stop()
					all.Wait()
					time.Sleep(2 * time.Second) // nothing is known of each other any more
				}
			})
		}
	}
}
