package redlock_test

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/sim"
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
func (r *record) of(stage sim.Stage, op redlock.Op) (found []sim.Step) {
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
	for _, s := range r.of(sim.Submitted, redlock.OpAcquire) {
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

// firstOf returns the node whose hints a client waits for.
func (r *record) firstOf(client int) int {
	steps := slices.DeleteFunc(r.of(sim.Submitted, redlock.OpWatch), func(s sim.Step) bool {
		return s.Client != client || s.Key != "x"
	})
	return steps[len(steps)-1].Node
}

// listens returns once waiters have long been there, when a look of the client, or of
// any of them if it is below zero, has been answered and the next is far.
func (r *record) listens(t *testing.T, client int) {
	t.Helper()
	time.Sleep(time.Second)
	r.forget()
	for range 1000 {
		synctest.Wait()
		looks := slices.DeleteFunc(r.of(sim.Replied, redlock.OpWatch), func(s sim.Step) bool { return client >= 0 && s.Client != client })
		if len(looks) > 0 && time.Since(looks[len(looks)-1].At) < 2*rtt {
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

// TestAWaiterOfAnotherProcessIsWokenByAHint, whoever freed the lock: it need not
// have been a client of this library.
func TestAWaiterOfAnotherProcessIsWokenByAHint(t *testing.T) {
	for name, test := range map[string]struct {
		free func(t *testing.T, w *sim.World, lock *redlock.Lock)
		want time.Duration
	}{
		"release":              {func(t *testing.T, _ *sim.World, lock *redlock.Lock) { go lock.Release(t.Context()) }, leg + hinted},
		"DEL by somebody else": {func(_ *testing.T, w *sim.World, _ *redlock.Lock) { onAll(w, func(s *sim.Server) { s.Del("x") }) }, hinted},
		"FLUSHALL":             {func(_ *testing.T, w *sim.World, _ *redlock.Lock) { onAll(w, (*sim.Server).Flush) }, hinted},
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

// TestAHintInVainCostsOneNodeOneRequest, be the hint late, doubled or wrong, and
// never gives a lock to two.
func TestAHintInVainCostsOneNodeOneRequest(t *testing.T) {
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
				hints := len(r.of(sim.Hinted, redlock.OpWatch))
				alone, looks := 0, len(r.of(sim.Submitted, redlock.OpWatch))
				for _, nodes := range r.tries(1) {
					if nodes == 1 {
						alone++
					} else {
						assert.Equal(t, 5, nodes, "the timer")
					}
				}
				timed := len(r.tries(1)) - alone
				assert.Positive(t, alone)
				assert.GreaterOrEqual(t, hints, 10)
				assert.LessOrEqual(t, alone, hints)
				assert.LessOrEqual(t, looks, alone+timed+1)
				for _, s := range r.of(sim.Run, redlock.OpAcquire) {
					assert.Equal(t, redlock.Refused, s.Outcome)
				}
				require.NoError(t, lock.Release(t.Context()))
				assert.True(t, (<-got).Valid())
				assert.False(t, lock.Valid())
			})
		})
	}
}

// TestOneOfManyGoesOnToAllNodes at each release. The others, who have heard of it
// as well, ask the same one node first, in whatever order they know the nodes, and
// take nothing: they would split the votes.
func TestOneOfManyGoesOnToAllNodes(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		w.SetNet(sim.Net{Patience: time.Second, Travel: func(_ sim.Leg, r *rand.Rand) (time.Duration, bool) {
			return leg/2 + time.Duration(r.Int64N(int64(leg))), false
		}})
		holder, _ := open(t, w)
		var waiters []*redlock.Locker
		for i := range 5 {
			c := w.NewClient(1)
			nodes := c.Nodes()
			l, err := redlock.New(append(nodes[i:len(nodes):len(nodes)], nodes[:i]...), redlock.Clock(c.Clock()), redlock.MemoryGuard(false), longest)
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
				took := map[string]int{}
				for _, s := range r.of(sim.Run, redlock.OpAcquire) {
					if s.Outcome == redlock.Granted {
						took[s.Value]++
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
