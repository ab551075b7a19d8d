package redlock_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
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

const (
	hinted  = leg + 2*rtt            // from a change of the key: the hint, one node, and the others
	unaided = 200 * time.Millisecond // between two tries if there are no hints
)

// A record is all that has happened in a World.
type record struct {
	mu    sync.Mutex
	steps []sim.Step
}

func recorded(w *sim.World) *record {
	r := &record{}
	w.Watch(func(s sim.Step) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.steps = append(r.steps, s)
	})
	return r
}

func (r *record) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps = nil
}

// of returns the steps of one stage and operation.
func (r *record) of(stage sim.Stage, op protocol.Op) (found []sim.Step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.steps {
		if s.Stage == stage && s.Op == op {
			found = append(found, s)
		}
	}
	return found
}

// tries returns how many nodes each try of a client was sent to, in order.
func (r *record) tries(client int) (nodes []int) {
	at := map[string]int{}
	for _, s := range r.of(sim.Submitted, protocol.OpAcquire) {
		if s.Client != client {
			continue
		}
		i, ok := at[s.Value]
		if !ok {
			i = len(nodes)
			at[s.Value], nodes = i, append(nodes, 0)
		}
		nodes[i]++
	}
	return nodes
}

// firstOf returns the node whose hints a client waits for: it is the first to be
// looked at after a try.
func (r *record) firstOf(client int) (node int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	tried := false
	for _, s := range r.steps {
		switch {
		case s.Stage != sim.Submitted || s.Client != client || s.Key != "x":
		case s.Op != protocol.OpWatch:
			tried = true
		case tried:
			node, tried = s.Node, false
		}
	}
	return node
}

// listens returns once waiters have long been there, when a question of the client, or of
// any of them if it is below zero, has been answered and the next is far.
func (r *record) listens(t *testing.T, client int) {
	t.Helper()
	time.Sleep(time.Second)
	r.forget()
	for range 1000 {
		synctest.Wait()
		answers := slices.DeleteFunc(r.of(sim.Replied, protocol.OpWatch), func(s sim.Step) bool { return client >= 0 && s.Client != client })
		if len(answers) > 0 && time.Since(answers[len(answers)-1].At) < 2*rtt {
			return
		}
		time.Sleep(rtt)
	}
	require.Fail(t, "nobody waits for hints")
}

func onAll(w *sim.World, f func(*sim.Server)) {
	for _, s := range w.Servers() {
		f(s)
	}
}

// TestAWaiterOfAnotherProcessIsWokenByAHint, by whatever client the lock was freed: it need not
// have been a client of this library.
func TestAWaiterOfAnotherProcessIsWokenByAHint(t *testing.T) {
	for name, test := range map[string]struct {
		free func(t *testing.T, w *sim.World, lock *redlock.Lock)
		want time.Duration
	}{
		"release":              {func(t *testing.T, _ *sim.World, lock *redlock.Lock) { go lock.Release(t.Context()) }, leg + called},
		"DEL by somebody else": {func(_ *testing.T, w *sim.World, _ *redlock.Lock) { onAll(w, func(s *sim.Server) { s.Del("x") }) }, called},
		"FLUSHALL":             {func(_ *testing.T, w *sim.World, _ *redlock.Lock) { onAll(w, (*sim.Server).Flush) }, called + rtt}, // it is a hint of all keys
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				holder, _ := open(t, w, redlock.TTL(time.Hour))
				waiter, _ := open(t, w, longest)
				r := recorded(w)
				lock := take(t, holder, "x")
				got := waits(t.Context(), t, waiter)
				r.listens(t, 1)
				start := time.Now()
				test.free(t, w, lock)
				assert.True(t, (<-got).Valid())
				assert.Equal(t, test.want, time.Since(start))
			})
		})
	}
}

// TestACrashedHoldersLockIsNoticed as soon as it has expired.
func TestACrashedHoldersLockIsNoticed(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		holder, process := open(t, w)
		waiter, _ := open(t, w, longest)
		took := time.Now()
		take(t, holder, "x")
		got := waits(t.Context(), t, waiter)
		time.Sleep(rtt)
		process.Crash()
		<-got
		waited := time.Since(took.Add(leg + ttl))
		assert.Positive(t, waited)
		assert.LessOrEqual(t, waited, 100*time.Millisecond+hinted)
	})
}

// TestExpiryHintsToo: a key whose end came sooner than the waiter was told.
func TestExpiryHintsToo(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		waiter, _ := open(t, w, longest)
		onAll(w, func(s *sim.Server) { s.Set("x", "another", time.Hour) })
		got := waits(t.Context(), t, waiter)
		r := recorded(w)
		r.listens(t, 0)
		onAll(w, func(s *sim.Server) { s.Step(time.Hour) })
		start := time.Now()
		<-got
		assert.LessOrEqual(t, time.Since(start), 100*time.Millisecond+hinted)
	})
}

// TestWithoutHintsATimerWillDo.
func TestWithoutHintsATimerWillDo(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		w.SetNet(lose(func(l sim.Leg) bool { return l.Hint }))
		holder, _ := open(t, w)
		waiter, _ := open(t, w, longest)
		for i := range 20 {
			lock := take(t, holder, "x")
			got := waits(t.Context(), t, waiter)
			time.Sleep(time.Second + time.Duration(i)*11*time.Millisecond)
			start := time.Now()
			require.NoError(t, lock.Release(t.Context()))
			next := <-got
			assert.LessOrEqual(t, time.Since(start), 2*rtt+unaided+rtt, "a try may be under way")
			require.NoError(t, next.Release(t.Context()))
			time.Sleep(rtt)
		}
	})
}

// TestAHintInVainCostsOneTry, be the hint late, doubled or wrong, and never gives a lock to two.
func TestAHintInVainCostsOneTry(t *testing.T) {
	for name, net := range map[string]sim.Net{
		"wrong": sim.Fixed(leg),
		"late": {Patience: time.Second, Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
			if l.Hint {
				return 7 * leg, false
			}
			return leg, false
		}},
		"doubled": {Patience: time.Second, Travel: sim.Fixed(leg).Travel, Stray: func(l sim.Leg, _ bool, r *rand.Rand) (time.Duration, bool) {
			return time.Duration(r.Int64N(int64(50 * time.Millisecond))), l.Hint
		}},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				w.SetNet(net)
				holder, _ := open(t, w)
				waiter, _ := open(t, w)
				lock := take(t, holder, "x")
				got := waits(t.Context(), t, waiter)
				r := recorded(w)
				r.listens(t, 1)
				for range 50 {
					time.Sleep(40 * time.Millisecond)
					require.NoError(t, lock.Extend(t.Context())) // changes the key
				}
				assert.Empty(t, got)
				hints := len(r.of(sim.Hinted, protocol.OpWatch))
				tries, questions := len(r.tries(1)), len(r.of(sim.Submitted, protocol.OpWatch))
				assert.GreaterOrEqual(t, hints, 10)
				assert.LessOrEqual(t, tries, hints+15, "and the timer")
				assert.LessOrEqual(t, questions, 3*(tries+1), "at two nodes, and for the place")
				for _, s := range r.of(sim.Run, protocol.OpAcquire) {
					assert.Equal(t, protocol.Refused, s.Outcome)
				}
				require.NoError(t, lock.Release(t.Context()))
				assert.True(t, (<-got).Valid())
				assert.False(t, lock.Valid())
			})
		})
	}
}

// TestOneOfManyAsksTheNodes at each release. The others, who have heard of it as well, are
// behind it in the order, in whatever order they know the nodes, and take nothing: they would
// split the votes.
func TestOneOfManyAsksTheNodes(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		w.SetNet(sim.Net{Patience: time.Second, Travel: func(_ sim.Leg, r *rand.Rand) (time.Duration, bool) {
			return leg/2 + time.Duration(r.Int64N(int64(leg))), false
		}})
		holder, _ := open(t, w)
		var waiters []*redlock.Locker
		for i := range 5 {
			c := w.NewClient(1)
			nodes := c.Nodes()
			l, err := redlock.New(append(nodes[i:len(nodes):len(nodes)], nodes[:i]...), timetest.Clock(c.Clock()), redlock.MemoryGuard(false), longest)
			require.NoError(t, err)
			t.Cleanup(func() { l.Close() })
			waiters = append(waiters, l)
		}
		r := recorded(w)
		for round := range 20 {
			lock := take(t, holder, "x")
			got := make(chan *redlock.Lock, len(waiters))
			var all sync.WaitGroup
			for _, l := range waiters {
				all.Go(func() {
					k, err := l.Acquire(t.Context(), "x")
					assert.NoError(t, err)
					got <- k
				})
			}
			for range waiters {
				r.listens(t, -1)
				require.NoError(t, lock.Release(t.Context()))
				lock = <-got
				took := map[int]bool{} // the first may have tried just before, without a hint
				for _, s := range r.of(sim.Run, protocol.OpAcquire) {
					if s.Outcome == protocol.Granted {
						took[s.Client] = true
					}
				}
				assert.Len(t, took, 1, "round %d", round)
			}
			require.NoError(t, lock.Release(t.Context()))
			all.Wait()
			time.Sleep(rtt)
		}
	})
}

// TestANodeInTroubleIsInNobodysWay though it is the one that is to be asked first. One
// that is known to be of no use is replaced, and the next gives the hints.
func TestANodeInTroubleIsInNobodysWay(t *testing.T) {
	for name, test := range map[string]struct {
		trouble  func(*sim.Server)
		replaced bool
		ordered  bool // the nodes keep a queue
	}{
		"crashed":             {(*sim.Server).Crash, true, true},
		"vanished":            {(*sim.Server).Vanish, true, true},
		"hung":                {(*sim.Server).Hang, true, true},
		"hung, without order": {(*sim.Server).Hang, true, false},
		"forgetful":           {func(s *sim.Server) { s.Del("x") }, true, true},
		"stale":               {func(s *sim.Server) { s.Set("x", "stale", time.Hour) }, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				holder, _ := open(t, w, redlock.TTL(time.Hour), redlock.NodeTimeout(5*rtt))
				c := w.NewClient(1)
				nodes := c.Nodes()
				if !test.ordered {
					for i, n := range nodes {
						nodes[i] = queueless{n}
					}
				}
				waiter, err := redlock.New(nodes, redlock.MemoryGuard(false), timetest.Clock(c.Clock()), longest, redlock.NodeTimeout(5*rtt))
				require.NoError(t, err)
				defer waiter.Close()
				r := recorded(w)
				lock := take(t, holder, "x")
				got := waits(t.Context(), t, waiter)
				time.Sleep(time.Second)
				first := r.firstOf(1)
				test.trouble(w.Servers()[first])
				time.Sleep(10 * time.Second)
				assert.Equal(t, test.replaced, r.firstOf(1) != first)
				r.listens(t, 1)
				start := time.Now()
				require.NoError(t, lock.Release(t.Context()))
				assert.True(t, (<-got).Valid())
				limit := 2*rtt + unaided + rtt
				if test.replaced {
					limit = leg + hinted
				}
				if !test.ordered {
					limit += 4 * rtt // to learn from one after the other that there is no queue
				}
				assert.LessOrEqual(t, time.Since(start), limit)
			})
		})
	}
}

// TestContendersInEachOthersWayDoNotSpin: where no client can get a quorum, each try takes
// nodes, and giving them back is a hint for the others.
func TestContendersInEachOthersWayDoNotSpin(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		for _, s := range w.Servers()[:3] {
			s.Set("x", "stale", protocol.NoTTL)
		}
		ctx, cancel := context.WithCancel(t.Context())
		r := recorded(w)
		for range 3 {
			l, _ := open(t, w)
			waits(ctx, t, l)
		}
		time.Sleep(time.Second)
		r.forget()
		time.Sleep(10 * time.Second)
		tries := 0
		for client := range 3 {
			assert.LessOrEqual(t, len(r.tries(client)), 10*10, "one in half of the longest wait")
			tries += len(r.tries(client))
		}
		assert.Greater(t, tries, 10*4, "all together")
		cancel()
		time.Sleep(time.Second)
		assert.Equal(t, 3, holding(w, "x"))
	})
}

// TestANodeThatLacksTheKeyIsNotFollowed again and again, though it answers after the others, whose refusals
// have decided the vote by then.
func TestANodeThatLacksTheKeyIsNotFollowed(t *testing.T) {
	for _, late := range []time.Duration{0, leg / 5, 4 * leg} {
		t.Run(late.String(), func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				first := redlock.FirstOf(w.NewClient(1).Nodes(), "x")
				w.SetNet(sim.Net{Patience: time.Second, Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
					if l.Node == first {
						return leg + late, false
					}
					return leg, false
				}})
				for i, s := range w.Servers() {
					if i != first {
						s.Set("x", "another", protocol.NoTTL)
					}
				}
				l, _ := open(t, w)
				r := recorded(w)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				_, err := l.Acquire(ctx, "x")
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				assert.LessOrEqual(t, len(r.of(sim.Submitted, protocol.OpAcquire)), 5*100, "two tries in each of the longest waits")
			})
		})
	}
}

// TestHintsInVainAreFollowedEverLater: a key that changes all the time keeps no node busy.
func TestHintsInVainAreFollowedEverLater(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		const near = 20 * time.Microsecond
		w.SetNet(sim.Fixed(near))
		onAll(w, func(s *sim.Server) { s.Set("x", "another", time.Hour) })
		l, _ := open(t, w)
		r := recorded(w)
		ctx, cancel := context.WithCancel(t.Context())
		waits(ctx, t, l)
		time.Sleep(time.Second)
		r.forget()
		for range 10000 {
			onAll(w, func(s *sim.Server) { s.Set("x", "another", time.Hour) })
			time.Sleep(near)
		}
		tries := len(r.tries(0))
		assert.Greater(t, tries, 10)
		assert.LessOrEqual(t, tries, 40)
		cancel()
		synctest.Wait()
	})
}

// TestAWaiterLeavesNothing, be it that its context or its Locker ends: no place in
// the line, no key, and changes are not told any more.
func TestAWaiterLeavesNothing(t *testing.T) {
	for name, fair := range map[string][]redlock.LockerOption{"": nil, "fair": {redlock.Fair()}} {
		for _, closes := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				simulate(t, 5, func(t *testing.T, w *sim.World) {
					holder, _ := open(t, w, redlock.TTL(time.Hour))
					l, _ := open(t, w, fair...)
					lock := take(t, holder, "x")
					r := recorded(w)
					ctx, cancel := context.WithCancel(t.Context())
					got := make(chan error)
					go func() {
						_, err := l.Acquire(ctx, "x")
						got <- err
					}()
					r.listens(t, 1)
					if closes {
						l.Close()
						isOnly(t, <-got, redlock.ErrClosed)
					} else {
						cancel()
						isOnly(t, <-got, context.Canceled)
					}
					cancel()
					time.Sleep(2 * time.Second) // and the connection for hints is closed
					scheduled, queued, inflight := l.Leftovers()
					assert.Zero(t, scheduled+queued+inflight)
					r.forget()
					require.NoError(t, lock.Release(t.Context()))
					onAll(w, (*sim.Server).Flush)
					time.Sleep(time.Second)
					waiters := func(s sim.Step) bool { return s.Client == 1 } // the holder watches its lock
					assert.False(t, slices.ContainsFunc(r.of(sim.Hinted, protocol.OpWatch), waiters))
					assert.False(t, slices.ContainsFunc(r.of(sim.Run, protocol.OpWatch), waiters))
				})
			})
		}
	}
}

// TestWhatIsFreeIsNotWaitedFor: one request to each node, and one more at the end.
func TestWhatIsFreeIsNotWaitedFor(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		r := recorded(w)
		lock, err := l.Acquire(t.Context(), "x")
		require.NoError(t, err)
		time.Sleep(rtt)
		require.NoError(t, lock.Release(t.Context()))
		time.Sleep(time.Minute)
		assert.Len(t, r.of(sim.Run, protocol.OpAcquire), 5)
		assert.Len(t, r.of(sim.Run, protocol.OpRelease), 5)
		assert.Len(t, r.steps, 2*3*5, "submitted, run and replied, and nothing else")
	})
}

// A named is a node that has nothing but its name.
type named struct {
	protocol.Node
	name string
}

func (n named) String() string { return n.name }

// TestTheNodesThatAreAskedFirstHaveTheirShares: common names of locks are spread over
// common names of nodes. Which is the first does not depend on the order in which the
// nodes are listed, nor on the process.
func TestTheNodesThatAreAskedFirstHaveTheirShares(t *testing.T) {
	t.Parallel()
	dice := rand.New(rand.NewPCG(1, 0))
	for _, format := range []string{"10.0.0.%d:6379", "127.0.0.1:700%d", "redis-%d.redis:6379", "redis-%d.redis.svc.cluster.local:6379"} {
		var nodes []protocol.Node
		for i := range 5 {
			nodes = append(nodes, named{name: fmt.Sprintf(format, i+1)})
		}
		for pattern, key := range map[string]func(i int) string{
			"tenant/00 to tenant/99": func(i int) string { return fmt.Sprintf("tenant/%02d", i%100) },
			"job-1 to job-1000":      func(i int) string { return fmt.Sprint("job-", i+1) },
			"user:N:lock":            func(i int) string { return fmt.Sprintf("user:%d:lock", i) },
			"uuid": func(int) string {
				return fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x", dice.Uint32(), dice.Uint32N(1<<16), dice.Uint32N(1<<12), dice.Uint32N(1<<16), dice.Uint64N(1<<48))
			},
			"invoice:N": func(i int) string { return fmt.Sprint("invoice:", 10000+i) },
		} {
			keys := map[string]bool{}
			for i := range 1000 {
				keys[key(i)] = true
			}
			shares := map[string]int{}
			for key := range keys {
				first := nodes[redlock.FirstOf(nodes, key)].String()
				shares[first]++
				other := slices.Clone(nodes)
				slices.Reverse(other)
				assert.Equal(t, first, other[redlock.FirstOf(other, key)].String())
			}
			share := float64(len(keys)) / 5
			for name, n := range shares {
				assert.LessOrEqual(t, float64(n), share+4*math.Sqrt(share), "%s of %s, %v", name, pattern, shares)
			}
			assert.Len(t, shares, 5, pattern)
		}
	}
	nodes := []protocol.Node{named{name: "10.0.0.1:6379"}, named{name: "10.0.0.2:6379"}, named{name: "10.0.0.3:6379"}}
	var first []int
	for i := range 10 {
		first = append(first, redlock.FirstOf(nodes, fmt.Sprint("invoice:", i)))
	}
	assert.Equal(t, []int{1, 2, 2, 1, 1, 2, 2, 2, 0, 2}, first, "other versions of this library must choose the same")
}

// TestAPausedNodeIsInNoContendersWay: each node is paused for 150 ms, many times and at
// different moments, so that the one which contenders ask first is among them. Nobody
// is told of an outage, and the name is soon taken again.
func TestAPausedNodeIsInNoContendersWay(t *testing.T) {
	const (
		near  = time.Millisecond // there and back
		pause = 150 * time.Millisecond
		limit = 50 * time.Millisecond // a NodeTimeout is 100 ms, and the timer 200 ms
	)
	if testing.Short() {
		t.Skip("a median needs many pauses")
	}
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		w.SetNet(sim.Fixed(near / 2))
		var mu sync.Mutex
		var released time.Time
		var longest time.Duration // from a release until the next acquisition
		over := make(chan struct{})
		var all sync.WaitGroup
		for i := range 4 {
			dice := rand.New(rand.NewPCG(1, uint64(i)))
			l, _ := open(t, w, timetest.Jitter(func(limit time.Duration) time.Duration { return time.Duration(dice.Int64N(int64(limit))) }))
			all.Go(func() {
				for {
					select {
					case <-over:
						return
					default:
					}
					lock, err := l.Acquire(t.Context(), "x")
					if !assert.NoError(t, err) {
						return
					}
					mu.Lock()
					if !released.IsZero() {
						longest = max(longest, time.Since(released))
					}
					mu.Unlock()
					time.Sleep(5 * near)
					mu.Lock()
					released = time.Now()
					mu.Unlock()
					lock.Release(t.Context())
					time.Sleep(near / 10)
				}
			})
		}
		time.Sleep(pause)
		paused := make([][]time.Duration, 5)
		for round := range 50 {
			mu.Lock()
			longest = 0
			mu.Unlock()
			s := w.Servers()[round%5]
			s.Hang()
			time.Sleep(pause)
			s.Resume()
			mu.Lock()
			paused[round%5] = append(paused[round%5], longest)
			mu.Unlock()
			time.Sleep(pause + time.Duration(round)*near/7)
		}
		close(over)
		all.Wait()
		for i, longest := range paused {
			slices.Sort(longest) // chance decides who splits the nodes with whom
			assert.LessOrEqual(t, longest[len(longest)/2], limit, "server %d: %v", i, longest)
		}
	})
}

// TestThePauseOfTheFirstNodeCostsAFewRoundTrips, also if it comes just when the node is
// asked for the lock.
func TestThePauseOfTheFirstNodeCostsAFewRoundTrips(t *testing.T) {
	const near = time.Millisecond
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		w.SetNet(sim.Fixed(near / 2))
		holder, _ := open(t, w, redlock.TTL(time.Hour))
		c := w.NewClient(1)
		nodes := c.Nodes()
		for i, n := range nodes {
			nodes[i] = queueless{n}
		}
		waiter, err := redlock.New(nodes, longest, redlock.MemoryGuard(false), timetest.Clock(c.Clock()))
		require.NoError(t, err)
		defer waiter.Close()
		for i, s := range w.Servers() {
			lock := take(t, holder, "x")
			got := waits(t.Context(), t, waiter)
			time.Sleep(time.Second)
			start := time.Now()
			go lock.Release(t.Context())
			time.Sleep(near + near/4) // the hint has come, and the request has not
			s.Hang()
			time.AfterFunc(150*time.Millisecond, s.Resume)
			next := <-got
			assert.LessOrEqual(t, time.Since(start), 15*near, "server %d", i)
			time.Sleep(time.Second)
			assert.Equal(t, 5, holding(w, "x"), "a vote that comes late counts")
			require.NoError(t, next.Release(t.Context()))
			time.Sleep(time.Second)
		}
	})
}

// TestASilentNodeKeepsNoReleaseSecret: where the node that is to give the hint has
// fallen silent since it was asked, another hints.
func TestASilentNodeKeepsNoReleaseSecret(t *testing.T) {
	const near = time.Millisecond
	for name, test := range map[string]struct {
		opts  []redlock.LockerOption
		limit time.Duration
	}{
		"":     {nil, 15 * near},
		"fair": {[]redlock.LockerOption{redlock.Fair()}, 40 * near}, // the queue moves less lightly
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				w.SetNet(sim.Fixed(near / 2))
				holder, _ := open(t, w, redlock.TTL(time.Hour))
				waiter, _ := open(t, w, append(test.opts, longest)...)
				r := recorded(w)
				for i := range 5 {
					lock := take(t, holder, "x")
					got := waits(t.Context(), t, waiter)
					r.listens(t, 1)
					time.Sleep(30 * near)
					w.Servers()[i].Hang()
					time.Sleep(5 * near)
					start := time.Now()
					require.NoError(t, lock.Release(t.Context()))
					next := <-got
					assert.LessOrEqual(t, time.Since(start), test.limit, "server %d", i)
					w.Servers()[i].Resume()
					time.Sleep(time.Second)
					require.NoError(t, next.Release(t.Context()))
					time.Sleep(time.Second)
				}
			})
		})
	}
}

// TestASplitVoteDoesNotWaitForASilentNode: contenders who split the nodes among them
// would all wait for the one that hangs, and keep what they have meanwhile. That is true of those
// who come again at an interval as well, who would be in the way of all others.
func TestASplitVoteDoesNotWaitForASilentNode(t *testing.T) {
	for name, opts := range map[string][]redlock.Option{
		"in line":        nil,
		"at an interval": {redlock.RetryInterval(15 * time.Millisecond)},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				var tries []time.Duration
				l, _ := open(t, w, redlock.NodeTimeout(time.Second), redlock.Observe(observerFunc(func(e redlock.Event) {
					if e.Kind == redlock.EventAttempt {
						tries = append(tries, e.Elapsed)
					}
				})))
				onAll(w, func(s *sim.Server) { s.Set("x", "another", time.Second) })
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				time.AfterFunc(500*time.Millisecond, func() {
					w.Servers()[0].Hang()
					for _, s := range w.Servers()[1:3] {
						s.Set("x", "another", time.Minute)
					}
				})
				_, err := l.Acquire(ctx, "x", opts...)
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				assert.Greater(t, len(tries), 20)
				slices.Sort(tries)
				assert.LessOrEqual(t, tries[len(tries)*9/10], 10*rtt)
			})
		})
	}
}

// TestANodeThatFallsSilentAfterItsRefusalKeepsNobodyWaiting for the holder's TTL, which
// the others tell as well.
func TestANodeThatFallsSilentAfterItsRefusalKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, l := puppets(t, 5, func(node int, op protocol.Op, _ int) answer {
			if op == protocol.OpRelease && node == 0 {
				return answer{silent: true}
			}
			return answer{outcome: protocol.Refused, ttl: time.Second, after: time.Duration(node+1) * time.Millisecond}
		})
		var failure *redlock.QuorumError
		assert.LessOrEqual(t, took(func() {
			_, err := l.TryAcquire(t.Context(), "x")
			assert.ErrorIs(t, err, redlock.ErrHeld)
			assert.ErrorAs(t, err, &failure)
		}), 30*time.Millisecond)
		assert.Equal(t, time.Second, failure.Remaining)
	})
}

type observerFunc func(redlock.Event)

func (f observerFunc) Observe(e redlock.Event) { f(e) }
