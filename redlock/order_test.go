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
	"github.com/redquorum/redquorum/redlock"
)

const (
	apart   = 30 * time.Millisecond // time between the starts of waiters
	called  = leg + rtt             // time from a change of the key: the hint, and all nodes
	silence = time.Second + unaided // longest delay by a silent waiter
)

// A fairground has one holder and waiters of several processes.
type fairground struct {
	*sim.World
	*record
	lock *redlock.Lock
	hold time.Duration // hold time of each waiter

	mu     sync.Mutex
	served []int
	at     []time.Time
	locks  []*redlock.Lock
	all    sync.WaitGroup
}

// fair runs test with a client that holds the lock, so that other clients wait for it.
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

// keys counts the keys of locks and queues.
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

// queues starts waiter number i, which will hold the lock for a while.
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

// keeper returns the node that received the last question about the queue, and so keeps it.
func (f *fairground) keeper() int {
	steps := f.of(sim.Submitted, protocol.OpQueue)
	return steps[len(steps)-1].Node
}

// free makes the holder release the lock, and returns the time.
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

// TestFairWaitersAreServedInOrderOfArrival: hints may be faulty, and so may the clocks of the
// waiters' processes.
func TestFairWaitersAreServedInOrderOfArrival(t *testing.T) {
	for name, test := range map[string]struct {
		lose func(sim.Leg) bool
		opts []redlock.Option
		each time.Duration // longest time from release to acquisition
	}{
		"hints":    {func(sim.Leg) bool { return false }, nil, leg + called + 2*rtt},
		"no hints": {func(l sim.Leg) bool { return l.Hint }, nil, 2*unaided + 4*rtt},
		"fenced":   {func(sim.Leg) bool { return false }, []redlock.Option{redlock.Fenced()}, 2*hinted + 2*rtt},
	} {
		t.Run(name, func(t *testing.T) {
			fair(t, func(t *testing.T, f *fairground) {
				f.SetNet(lose(test.lose))
				for i, rate := range []float64{1, 0.5, 2, 1.3, 0.8, 1.1} {
					l := sim.Locker(t, f.NewClient(rate), redlock.Fair(), redlock.TTL(time.Minute))
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

// TestSilentWaiterIsSkipped: a silent waiter is skipped after a while if it is or becomes the
// first.
func TestSilentWaiterIsSkipped(t *testing.T) {
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

// TestTriesCostNoTicket: callers of a process try without a pause. Its Fair caller keeps its ticket,
// and precedes a Fair caller of another process that arrives much later.
func TestTriesCostNoTicket(t *testing.T) {
	for name, opts := range map[string][]redlock.Option{"writers": nil, "readers": {redlock.Shared()}} {
		t.Run(name, func(t *testing.T) {
			fair(t, func(t *testing.T, f *fairground) {
				a, b := two(t, f.World, redlock.Fair())
				f.queues(t.Context(), t, a, 0)
				ctx, stop := context.WithCancel(t.Context())
				for i := range 2 {
					f.all.Go(func() {
						for ctx.Err() == nil {
							if k, err := a.TryAcquire(t.Context(), "x", opts...); err == nil {
								assert.NoError(t, k.Release(t.Context()))
							}
							time.Sleep(time.Duration(20+30*i) * time.Microsecond) // at different moments
						}
					})
				}
				time.Sleep(silence + apart)
				f.queues(t.Context(), t, b, 1)
				time.Sleep(apart)
				f.free(t)
				time.Sleep(time.Second)
				stop()
				f.all.Wait()
				assert.Equal(t, upTo(2), f.served)
			})
		})
	}
}

// TestFairWaiterThatGivesUpDelaysNoCaller: the ticket is removed at once. The same applies to a
// waiter whose Locker is closed.
func TestFairWaiterThatGivesUpDelaysNoCaller(t *testing.T) {
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
				time.Sleep(2*rtt + leg) // the ticket is removed, and b is called and answers
				start := f.free(t)
				f.all.Wait()
				assert.Equal(t, []int{1}, f.served)
				assert.Equal(t, leg+called, f.at[0].Sub(start))
			})
		})
	}
}

// TestOrderOutlivesTheNodeThatKeepsIt: the waiters report their waiting times to the next node.
func TestOrderOutlivesTheNodeThatKeepsIt(t *testing.T) {
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

// TestFairnessCostsARoundTrip: it goes to one node, if no other client competes, even if the round
// trip is long.
func TestFairnessCostsARoundTrip(t *testing.T) {
	for _, leg := range []time.Duration{leg, 150 * time.Millisecond} { // the second leg is longer than the pause between two questions
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

// withoutQueues returns nodes that keep no queue.
func withoutQueues(nodes []protocol.Node) {
	for i, n := range nodes {
		nodes[i] = queueless{n}
	}
}

// TestOrderOutlivesAQuarantine: the first waiter pauses while too few nodes have a vote, but never
// long enough to seem dead to the next.
func TestOrderOutlivesAQuarantine(t *testing.T) {
	for _, forgot := range []int{3, 5} { // with or without the node that keeps the queue
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
				before := map[int]time.Time{} // time of the last question of each client
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

// near is a round trip at which the order among processes matters most.
const near = 100 * time.Microsecond

// uneven takes between half and twice d for a leg, and ten times as long for one in a hundred, so
// that two processes that ask all nodes at the same time split their votes.
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

// TestPausedWaiterDelaysNoCaller: the paused waiter is the first. The second waiter takes the free
// lock and the position of the first.
func TestPausedWaiterDelaysNoCaller(t *testing.T) {
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
		time.Sleep(5 * time.Second) // much longer than the waiters need
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

// TestLateAnswerDoesNotSeparateAWaiter: the waiter queues at the same node as the others, or
// returns there. The answers of one node to one process are late from time to time. The test
// repeats this for each node.
func TestLateAnswerDoesNotSeparateAWaiter(t *testing.T) {
	for name, test := range map[string]struct {
		late    time.Duration // delay of an answer; longer than a caller waits for a node
		callers []int         // number of callers of each process
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

// taking makes callers[i] callers of each process take a lock repeatedly. It returns the number of
// turns, and the largest number of turns of other callers while one caller waited.
func taking(t *testing.T, w *sim.World, callers []int, opts ...redlock.LockerOption) (turns, longest int) {
	var all sync.WaitGroup
	unsure := 0 // releases without a quorum: a node that had granted became silent
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
