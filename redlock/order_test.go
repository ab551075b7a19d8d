package redlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/internal/simtest"
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

// TestAFairWaiterThatGivesUpIsInNobodysWay, nor one whose Locker is closed: its place is given back at once.
func TestAFairWaiterThatGivesUpIsInNobodysWay(t *testing.T) {
	for _, closes := range []bool{false, true} {
		t.Run(fmt.Sprint("closes: ", closes), func(t *testing.T) {
			fair(t, func(t *testing.T, f *fairground) {
				a, _ := open(t, f.World, redlock.Fair())
				b, _ := open(t, f.World, redlock.Fair(), longest)
				ctx, cancel := context.WithCancel(t.Context())
				f.queues(ctx, t, a, 0)
				f.queues(t.Context(), t, b, 1)
				time.Sleep(time.Second)
				if closes {
					require.NoError(t, a.Close())
				}
				cancel()
				time.Sleep(2*rtt + leg) // the place is given back, b is called and says that it is there
				start := f.free(t)
				f.all.Wait()
				assert.Equal(t, []int{1}, f.served)
				assert.Equal(t, leg+called, f.at[0].Sub(start))
			})
		})
	}
}

// TestTheOrderOutlivesTheNodeThatKeepsIt: the waiters tell the next one how long they have waited.
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

// TestFairnessCostsARoundTrip to one node, where no other client is in the way, however long it takes.
func TestFairnessCostsARoundTrip(t *testing.T) {
	for _, leg := range []time.Duration{leg, 150 * time.Millisecond} { // longer than the pause between two questions
		simulateCase(t, leg.String(), 5, func(t *testing.T, w *sim.World) {
			w.SetNet(sim.Fixed(leg))
			l, _ := open(t, w, redlock.Fair(), redlock.NodeTimeout(time.Second))
			r := recorded(w)
			assert.Equal(t, 4*leg, took(func() { waited(t, l, "x") }))
			time.Sleep(2 * leg)
			assert.Len(t, r.of(sim.Run, protocol.OpAcquire), 5)
			assert.Len(t, r.of(sim.Run, protocol.OpQueue), 2, "take the place and give it back")
			onAll(w, func(s *sim.Server) { assert.Len(t, s.Keys(), len(s.Locks()), "no queue") })
		})
	}
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

// withoutQueues makes nodes keep no queue.
func withoutQueues(nodes []protocol.Node) {
	for i, n := range nodes {
		nodes[i] = queueless{n}
	}
}

// TestTheOrderOutlivesAQuarantine: the first waiter rests while too few nodes have a vote, but never for so long that
// the next takes it for dead.
func TestTheOrderOutlivesAQuarantine(t *testing.T) {
	for _, forgot := range []int{3, 5} { // with the node that keeps the queue, or without
		for began := time.Duration(0); began < 2*time.Second; began += 400 * time.Millisecond {
			simulateCase(t, fmt.Sprint(forgot, " nodes, ", began), 5, func(t *testing.T, w *sim.World) {
				ls := settled(t, w, 4, redlock.Fair(), longest)
				forget(w.Servers()[:forgot]...)
				_, err := ls[3].TryAcquire(t.Context(), "y") // the quarantine begins
				require.ErrorIs(t, err, redlock.ErrQuarantine)
				time.Sleep(ttl - 3*time.Second + began)
				f := &fairground{World: w, record: recorded(w), hold: apart}
				for i, l := range ls[:3] {
					f.queues(t.Context(), t, l, i)
				}
				f.all.Wait()
				assert.Equal(t, upTo(3), f.served)
				before := map[int]time.Time{} // the last question of each client
				for _, step := range f.of(sim.Submitted, protocol.OpQueue) {
					if at, ok := before[step.Client]; ok {
						assert.Less(t, step.At.Sub(at), time.Second*3/4)
					}
					before[step.Client] = step.At
				}
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

// TestAPausedWaiterKeepsNobodyWaiting though it is the first: the second takes the free lock, and the place of the
// first.
func TestAPausedWaiterKeepsNobodyWaiting(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		holder, _ := open(t, w, redlock.TTL(time.Hour))
		f := &fairground{World: w, record: recorded(w), lock: take(t, holder, "x"), hold: apart}
		var processes []*sim.Client
		for i := range 5 {
			l, process := open(t, w)
			processes = append(processes, process)
			f.queues(t.Context(), t, l, i)
		}
		processes[0].Pause()
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
}

// TestALateAnswerDoesNotPartAWaiterFromTheOthers: it takes its place at the node where they have theirs, or goes back
// there. For one process a node's answers are late now and then, whichever node it is.
func TestALateAnswerDoesNotPartAWaiterFromTheOthers(t *testing.T) {
	for name, test := range map[string]struct {
		late    time.Duration // for longer than a node is waited for
		callers []int         // of each process
		opts    []redlock.LockerOption
	}{
		"plain":      {20 * time.Millisecond, []int{1, 1, 1, 1}, nil},
		"plain, two": {20 * time.Millisecond, []int{1, 8}, nil},
		"fair":       {40 * time.Millisecond, []int{1, 1, 1, 1}, []redlock.LockerOption{redlock.Fair()}},
	} {
		for late := range 3 {
			simulateCase(t, fmt.Sprint(name, late), 3, func(t *testing.T, w *sim.World) {
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
				turns, longest := taking(t, w, test.callers, test.opts...)
				assert.LessOrEqual(t, longest, 30, "of %d turns", turns)
			})
		}
	}
}

const (
	takingFor  = time.Second
	takingHold = 2 * time.Millisecond
)

// taking has so many callers of each process take a lock again and again. It returns how many turns that made, and the
// most that others had while one waited.
func taking(t *testing.T, w *sim.World, callers []int, opts ...redlock.LockerOption) (turns, longest int) {
	var all sync.WaitGroup
	unsure := 0 // releases without a quorum: a node that had granted has fallen silent
	end := time.Now().Add(takingFor)
	var mu sync.Mutex
	take := func(l *redlock.Locker) {
		for time.Now().Before(end) {
			mu.Lock()
			before := turns
			mu.Unlock()
			lock := waited(t, l, "x")
			mu.Lock()
			turns++
			longest = max(longest, turns-before)
			mu.Unlock()
			time.Sleep(takingHold)
			if err := lock.Release(t.Context()); err != nil {
				isOnly(t, err, redlock.ErrNoQuorum)
				mu.Lock()
				unsure++
				mu.Unlock()
			}
		}
	}
	for _, n := range callers {
		l, _ := open(t, w, append(opts, redlock.NodeTimeout(time.Second))...)
		for range n {
			all.Go(func() { take(l) })
		}
	}
	all.Wait()
	assert.LessOrEqual(t, unsure, 1)
	return turns, longest
}
