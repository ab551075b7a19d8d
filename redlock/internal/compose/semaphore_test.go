package compose_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock/internal/compose"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/engine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var terms = core.Terms{TTL: 10 * time.Second, Timeout: time.Second, Renew: true, Patience: 3 * time.Second}

// x returns a Want for permits of k.
func x(k, weight int) compose.Want {
	return compose.Want{Key: "x", K: k, Weight: weight, Terms: &terms}
}

// A process has semaphores on simulated servers.
type process struct {
	*compose.Semaphores
	engine *engine.Engine
	client *sim.Client
}

func begin(t *testing.T, w *sim.World) *process {
	return beginWith(t, w, func(n protocol.Node) protocol.Node { return n })
}

// beginWith starts a process with wrapped nodes.
func beginWith(t *testing.T, w *sim.World, wrap func(protocol.Node) protocol.Node) *process {
	p := &process{client: w.NewClient(1)}
	nodes := p.client.Nodes()
	for i, n := range nodes {
		nodes[i] = wrap(n)
	}
	p.engine = engine.New(engine.Config{Nodes: nodes, Clock: p.client.Clock()})
	p.Semaphores = compose.NewSemaphores(p.engine, nodes, p.client.Clock())
	t.Cleanup(func() {
		p.client.Resume()
		assert.NoError(t, p.engine.Close(context.Background()))
		for _, n := range nodes {
			assert.NoError(t, n.Close())
		}
	})
	return p
}

func (p *process) take(t *testing.T, w compose.Want) *compose.Permits {
	t.Helper()
	got, f, err := p.Acquire(t.Context(), w)
	require.NoError(t, err)
	require.Nil(t, f)
	require.Len(t, got.Slots, w.Weight)
	return got
}

// waits starts a caller. It returns when the caller waits.
func (p *process) waits(t *testing.T, w compose.Want) <-chan *compose.Permits {
	got := make(chan *compose.Permits, 1)
	go func() {
		if k, _, _ := p.Acquire(t.Context(), w); k != nil { // nil if the test has ended
			got <- k
		}
	}()
	time.Sleep(time.Second) // of virtual time
	return got
}

// soon returns the value received within a few round trips.
func soon(t *testing.T, got <-chan *compose.Permits) *compose.Permits {
	t.Helper()
	select {
	case k := <-got:
		return k
	case <-time.After(8 * sim.RTT):
		require.FailNow(t, "not in time")
		return nil
	}
}

func isEmpty(t *testing.T, w *sim.World) {
	t.Helper()
	time.Sleep(5 * time.Second)
	for _, s := range w.Servers() {
		assert.Empty(t, s.Locks())
	}
}

// TestSlotIsOneOfK: at most k callers can therefore hold permits.
func TestSlotIsOneOfK(t *testing.T) {
	sim.Simulate(t, 1, func(t *testing.T, w *sim.World) {
		p := begin(t, w)
		for i := range 20 {
			want := x(1, 1)
			want.Key = fmt.Sprint("x", i)
			assert.Equal(t, []int{0}, p.take(t, want).Slots)
		}
	})
}

// TestAtMostKHoldAndNothingIsLeft: nothing is left on the servers or in the engines, and no caller
// waits without end, in spite of any faults of a minority of the servers.
func TestAtMostKHoldAndNothingIsLeft(t *testing.T) {
	const k = 5
	for name, trouble := range map[string]func(s *sim.Server){
		"all well": func(*sim.Server) {}, "down": (*sim.Server).Crash, "hung": (*sim.Server).Hang,
		"leftovers": func(s *sim.Server) {
			for slot := range k {
				s.Set(keys.Slot("x", slot), "left", time.Minute)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			sim.Simulate(t, 5, func(t *testing.T, w *sim.World) {
				for _, s := range w.Servers()[:2] {
					trouble(s)
				}
				var held, most atomic.Int32
				var wg sync.WaitGroup
				all := []*process{begin(t, w), begin(t, w), begin(t, w)}
				for i := range 12 {
					dice := rand.New(rand.NewPCG(uint64(i), 0))
					wg.Go(func() {
						for range 20 {
							want := x(k, 1+dice.IntN(k))
							ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
							got, f, err := all[i%len(all)].Acquire(ctx, want)
							cancel()
							if !assert.NoError(t, err) || !assert.Nil(t, f) {
								return
							}
							most.Store(max(most.Load(), held.Add(int32(want.Weight))))
							time.Sleep(time.Duration(dice.IntN(50)) * time.Millisecond)
							held.Add(int32(-want.Weight))
							got.Release(t.Context())
						}
					})
				}
				wg.Wait()
				assert.EqualValues(t, k, most.Load())
				for _, s := range w.Servers()[:2] {
					s.Resume()
				}
				time.Sleep(time.Minute)
				isEmpty(t, w)
				for _, p := range all {
					assert.Zero(t, p.engine.Entries())
				}
			})
		})
	}
}

// TestCallersAreServedInOrderOfArrival: the callers are in one process, or in two.
func TestCallersAreServedInOrderOfArrival(t *testing.T) {
	sim.Simulate(t, 5, func(t *testing.T, w *sim.World) {
		a, b := begin(t, w), begin(t, w)
		held := []*compose.Permits{a.take(t, x(3, 1)), a.take(t, x(3, 1)), b.take(t, x(3, 1))}
		waiting := []<-chan *compose.Permits{b.waits(t, x(3, 1)), a.waits(t, x(3, 1)), b.waits(t, x(3, 1)), b.waits(t, x(3, 1))}
		// When the first caller hands the gate over, the turn of b has ended, and process a is
		// served before the other callers of b.
		for i, p := range held {
			p.Release(t.Context())
			soon(t, waiting[i])
			for _, other := range waiting[i+1:] {
				require.Empty(t, other)
			}
			time.Sleep(time.Second)
		}
	})
}

// TestReturningProcessDoesNotStarveWaiters: the waiters are at the gate.
func TestReturningProcessDoesNotStarveWaiters(t *testing.T) {
	sim.Simulate(t, 5, func(t *testing.T, w *sim.World) {
		a, b := begin(t, w), begin(t, w)
		held := a.take(t, x(1, 1))
		got := b.waits(t, x(1, 1))
		over, cancel := context.WithCancel(t.Context())
		cancel()
		for range 3 {
			held.Release(over) // before other callers have noticed the release
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			held, _, _ = a.Acquire(ctx, x(1, 1))
			cancel()
			if held == nil {
				assert.NotNil(t, soon(t, got))
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
		assert.Fail(t, "it was overtaken three times")
	})
}

// TestProcessThatDiesAtTheGate: other callers are delayed by the TTL of the gate, and no longer.
func TestProcessThatDiesAtTheGate(t *testing.T) {
	for _, weight := range []int{1, 2} {
		t.Run(fmt.Sprint("weight ", weight), func(t *testing.T) {
			sim.Simulate(t, 5, func(t *testing.T, w *sim.World) {
				dies, a := begin(t, w), begin(t, w)
				held := a.take(t, x(2, 1))
				other := a.take(t, x(2, 1))
				ctx, cancel := context.WithCancel(t.Context())
				gone := make(chan bool)
				go func() { _, _, _ = dies.Acquire(ctx, x(2, weight)); close(gone) }()
				time.Sleep(time.Second)
				dies.client.Crash()
				held.Release(t.Context())
				start := time.Now()
				a.take(t, x(2, 1))
				assert.LessOrEqual(t, time.Since(start), 3*time.Second)
				other.Release(t.Context())
				cancel()
				<-gone
			})
		})
	}
}

// TestCloseEndsAllWaits: Close ends all permits, too.
func TestCloseEndsAllWaits(t *testing.T) {
	sim.Simulate(t, 5, func(t *testing.T, w *sim.World) {
		p := begin(t, w)
		held := p.take(t, x(2, 2))
		told := make(chan *core.Failure, 3)
		for _, weight := range []int{1, 2, 1} {
			go func() { _, f, _ := p.Acquire(t.Context(), x(2, weight)); told <- f }()
		}
		time.Sleep(time.Second)
		require.NoError(t, p.engine.Close(t.Context()))
		for range 3 {
			assert.Equal(t, core.AfterClose, (<-told).Kind)
		}
		assert.Zero(t, held.Deadline())
		isEmpty(t, w)
	})
}

// slotsOf makes a process hold slots of k. release releases them in order.
func (p *process) slotsOf(t *testing.T, k int, slots ...int) (release func()) {
	t.Helper()
	var held []engine.Lock
	terms := terms
	terms.Permits = k
	for _, slot := range slots {
		lock, f, err := p.engine.Acquire(t.Context(), keys.Slot("x", slot), &terms)
		require.NoError(t, err)
		require.Nil(t, f)
		held = append(held, lock)
	}
	return func() {
		held[0].Release(t.Context())
		held = held[1:]
	}
}

// TestWeightsOfDifferentKNeverDeadlock: if permits did not exclude permits of another k, each of
// two callers could take a part of the slots that the other needs.
func TestWeightsOfDifferentKNeverDeadlock(t *testing.T) {
	sim.Simulate(t, 5, func(t *testing.T, w *sim.World) {
		other, a, b := begin(t, w), begin(t, w), begin(t, w)
		for range 10 {
			release := other.slotsOf(t, 4, 3, 0)
			three := a.waits(t, x(3, 3))
			four := b.waits(t, x(4, 3))
			release()
			time.Sleep(time.Second)
			release()
			for range 2 {
				select {
				case p := <-three:
					p.Release(t.Context())
				case p := <-four:
					p.Release(t.Context())
				case <-time.After(10 * time.Second):
					require.Fail(t, "they wait for each other")
				}
			}
		}
	})
}

// TestCallerWithALostGateLetsTheNextGoFirst: the caller keeps no permit that the next caller needs.
func TestCallerWithALostGateLetsTheNextGoFirst(t *testing.T) {
	sim.Simulate(t, 5, func(t *testing.T, w *sim.World) {
		other, a, b := begin(t, w), begin(t, w), begin(t, w)
		release := other.slotsOf(t, 2, 0)
		first := a.waits(t, x(2, 2)) // the caller has slot 1
		second := b.waits(t, x(2, 2))
		for _, s := range w.Servers() {
			s.Del(keys.Gate.Of("x"))
			s.Del(keys.GateOf("x", 2))
		}
		time.Sleep(5 * time.Second)
		release()
		p := soon(t, second)
		assert.Empty(t, first)
		p.Release(t.Context())
		<-first
	})
}

// TestPermitLostDuringTheWaitIsReplaced: all permits are alive when the caller gets them.
func TestPermitLostDuringTheWaitIsReplaced(t *testing.T) {
	sim.Simulate(t, 5, func(t *testing.T, w *sim.World) {
		other, a := begin(t, w), begin(t, w)
		release := other.slotsOf(t, 2, 0)
		got := a.waits(t, x(2, 2)) // the caller has slot 1
		for _, s := range w.Servers() {
			s.Del(keys.Slot("x", 1))
		}
		time.Sleep(10 * time.Second)
		release()
		select {
		case p := <-got:
			assert.NotZero(t, p.Deadline())
			assert.ElementsMatch(t, []int{0, 1}, p.Slots)
			votes, f := p.Extend(t.Context(), 0)
			assert.Nil(t, f)
			assert.GreaterOrEqual(t, votes, 3)
		case <-time.After(5 * time.Second):
			assert.Fail(t, "it waits in vain")
		}
	})
}

// TestTryGetsItsWholeWeight: a node reports at most eight free slots.
func TestTryGetsItsWholeWeight(t *testing.T) {
	sim.Simulate(t, 5, func(t *testing.T, w *sim.World) {
		p := begin(t, w)
		for _, want := range []compose.Want{x(20, 20), x(1000, 40)} {
			want.Try = true
			got := p.take(t, want)
			got.Release(t.Context())
		}
	})
}

// TestTTLCountsFromTheLastPermit: MaxHold counts from the last permit, too.
func TestTTLCountsFromTheLastPermit(t *testing.T) {
	sim.Simulate(t, 5, func(t *testing.T, w *sim.World) {
		other, p := begin(t, w), begin(t, w)
		for _, change := range []func(*core.Terms){
			func(t *core.Terms) { t.Renew = false },
			func(t *core.Terms) { t.MaxHold = 10 * time.Second },
		} {
			want, changed := x(2, 2), terms
			change(&changed)
			want.Terms = &changed
			release := other.slotsOf(t, 2, 0)
			got := p.waits(t, want)
			time.Sleep(15 * time.Second)
			release()
			k := soon(t, got)
			time.Sleep(9 * time.Second)
			assert.NotZero(t, k.Deadline())
			time.Sleep(2 * time.Second)
			assert.Zero(t, k.Deadline())
		}
	})
}

// TestCancelledCallerLeavesNothing: at any step, no key and no entry of the engine is left. The
// caller's error does not report an outage.
func TestCancelledCallerLeavesNothing(t *testing.T) {
	sim.Simulate(t, 5, func(t *testing.T, w *sim.World) {
		a, b := begin(t, w), begin(t, w)
		short, unrenewed := x(4, 2), terms
		unrenewed.Renew = false
		short.Terms = &unrenewed
		for _, held := range []int{0, 1, 3} {
			other := b.take(t, x(4, 1+held))
			for _, want := range []compose.Want{x(4, 1), x(4, 2), short, x(5, 4)} {
				for after := time.Duration(0); after < 8*sim.RTT; after += sim.OneWay / 2 {
					ctx, cancel := context.WithTimeout(t.Context(), after)
					if p, _, err := a.Acquire(ctx, want); p != nil {
						p.Release(t.Context())
					} else {
						require.Equal(t, context.DeadlineExceeded, err, "after %v", after)
					}
					cancel()
				}
			}
			other.Release(t.Context())
		}
		isEmpty(t, w)
		assert.Zero(t, a.engine.Entries())
	})
}

// TestWeightsOfOneProcessAreServedInOrder: the callers arrive almost at the same time.
func TestWeightsOfOneProcessAreServedInOrder(t *testing.T) {
	sim.Simulate(t, 5, func(t *testing.T, w *sim.World) {
		other, p := begin(t, w), begin(t, w)
		release := other.slotsOf(t, 5, 0)
		order := make(chan int, 2)
		for _, weight := range []int{5, 2} {
			go func() {
				got := p.take(t, x(5, weight))
				order <- weight
				got.Release(t.Context())
			}()
			time.Sleep(sim.OneWay)
		}
		time.Sleep(time.Second)
		release()
		assert.Equal(t, []int{5, 2}, []int{<-order, <-order})
	})
}

// TestTryReportsItsObstacle: a try reports an outage even if its own process holds all permits. If
// the other nodes are down, a slow majority still has the timeout of the terms to answer.
func TestTryReportsItsObstacle(t *testing.T) {
	for kind, down := range map[core.Kind]int{core.ByOther: 2, core.NoQuorum: 5} {
		t.Run(fmt.Sprint(down, " servers down"), func(t *testing.T) {
			sim.Simulate(t, 5, func(t *testing.T, w *sim.World) {
				a, b := begin(t, w), begin(t, w)
				a.take(t, x(2, 2))
				for _, s := range w.Servers()[:down] {
					s.Crash()
				}
				w.SetNet(sim.Fixed(terms.Timeout / 5))
				try := x(2, 1)
				try.Try = true
				for _, p := range []*process{a, b} {
					_, f, err := p.Acquire(t.Context(), try)
					require.NoError(t, err)
					require.NotNil(t, f)
					assert.Equal(t, kind, f.Kind)
				}
			})
		})
	}
}

// A silent is a node that sends no hints.
type silent struct{ protocol.Node }

// TestReleasedPermitWakesAWaiterOfItsProcess: both Drop and Release wake it, because nodes send no
// hints about changes by their own client.
func TestReleasedPermitWakesAWaiterOfItsProcess(t *testing.T) {
	for name, giveBack := range map[string]func(*compose.Permits, context.Context){
		"Drop":    func(p *compose.Permits, _ context.Context) { p.Drop() },
		"Release": func(p *compose.Permits, ctx context.Context) { p.Release(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			sim.Simulate(t, 5, func(t *testing.T, w *sim.World) {
				var asked atomic.Int32
				w.Watch(func(s sim.Step) {
					if s.Stage == sim.Replied && s.Op == protocol.OpSlots {
						asked.Add(1)
					}
				})
				other, p := begin(t, w), beginWith(t, w, func(n protocol.Node) protocol.Node { return silent{n} })
				release := other.slotsOf(t, 2, 0, 1)
				got := p.waits(t, x(2, 1))
				for asked.Store(0); asked.Load() < 5; { // so that the next question is not due for a while
					time.Sleep(sim.RTT)
				}
				release()
				try := x(2, 1)
				try.Try = true
				mine := p.take(t, try) // before the waiter can know that the slot is free
				giveBack(mine, t.Context())
				assert.Equal(t, mine.Slots, soon(t, got).Slots)
			})
		})
	}
}

// TestPermitsOfDifferentKAreNeverHeldTogether: the callers may even arrive at the same moment.
func TestPermitsOfDifferentKAreNeverHeldTogether(t *testing.T) {
	sim.Simulate(t, 5, func(t *testing.T, w *sim.World) {
		a, b := begin(t, w), begin(t, w)
		net := sim.Fixed(sim.OneWay)
		net.Travel = func(_ sim.Leg, dice *rand.Rand) (time.Duration, bool) {
			return sim.OneWay/2 + time.Duration(dice.Int64N(int64(sim.OneWay))), false
		}
		w.SetNet(net)
		won := 0
		for range 200 {
			var held [2]*compose.Permits
			var both sync.WaitGroup
			for i, p := range []*process{a, b} {
				both.Go(func() {
					time.Sleep(time.Duration(rand.Int64N(int64(3 * sim.OneWay))))
					want := x(2+i, 1)
					want.Try = true
					held[i], _, _ = p.Acquire(t.Context(), want)
				})
			}
			both.Wait()
			require.False(t, held[0] != nil && held[1] != nil)
			for _, p := range held {
				if p != nil {
					won++
					p.Release(t.Context())
				}
			}
			time.Sleep(time.Second)
		}
		assert.Greater(t, won, 50)
	})
}
