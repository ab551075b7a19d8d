package redlock_test

import (
	"context"
	"fmt"
	"slices"
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
		simulateCase(t, name, 5, func(t *testing.T, w *sim.World) {
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
	}
}

// TestANodeInTroubleIsInNobodysWay though it is the one that is to be asked first. One that is known to be of no use is
// replaced, and the next gives the hints.
func TestANodeInTroubleIsInNobodysWay(t *testing.T) {
	for name, test := range map[string]struct {
		trouble  func(*sim.Server)
		replaced bool
		nodes    func([]protocol.Node)
	}{
		"crashed":             {(*sim.Server).Crash, true, nil},
		"vanished":            {(*sim.Server).Vanish, true, nil},
		"hung":                {(*sim.Server).Hang, true, nil},
		"hung, without order": {(*sim.Server).Hang, true, withoutQueues},
		"forgetful":           {func(s *sim.Server) { s.Del("x") }, true, nil},
		"stale":               {func(s *sim.Server) { s.Set("x", "stale", time.Hour) }, false, nil},
	} {
		simulateCase(t, name, 5, func(t *testing.T, w *sim.World) {
			holder, _ := open(t, w, redlock.TTL(time.Hour), redlock.NodeTimeout(5*rtt))
			waiter, _ := on(t, w, test.nodes, longest, redlock.NodeTimeout(5*rtt))
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
			if test.nodes != nil {
				limit += 4 * rtt // to learn from one after the other that there is no queue
			}
			assert.LessOrEqual(t, time.Since(start), limit)
		})
	}
}

// TestContendersInEachOthersWayDoNotSpin: where no client can get a quorum, each try takes
// nodes, and giving them back is a hint for the others.
func TestContendersInEachOthersWayDoNotSpin(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		onEach(w.Servers()[:3], func(s *sim.Server) { s.Set("x", "stale", protocol.NoTTL) })
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

// TestHintsInVainAreFollowedLater: a key that changes all the time keeps no node busy. The pauses stay below the time
// after which the next of the order takes a free lock: 4 ms.
func TestHintsInVainAreFollowedLater(t *testing.T) {
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
		assert.LessOrEqual(t, tries, 80) // in 200 ms
		cancel()
		synctest.Wait()
	})
}

// TestAWaiterLeavesNothing, be it that its context or its Locker ends: no place in the line, no key, and changes are
// not told any more.
func TestAWaiterLeavesNothing(t *testing.T) {
	for name, fair := range map[string][]redlock.LockerOption{"": nil, "fair": {redlock.Fair()}} {
		for _, closes := range []bool{false, true} {
			simulateCase(t, name, 5, func(t *testing.T, w *sim.World) {
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
				}
				if cancel(); !closes {
					isOnly(t, <-got, context.Canceled)
				}
				time.Sleep(2 * time.Second) // and the connection for hints is closed
				assert.Zero(t, l.Leftovers())
				r.forget()
				require.NoError(t, lock.Release(t.Context()))
				onAll(w, (*sim.Server).Flush)
				time.Sleep(time.Second)
				waiters := func(s sim.Step) bool { return s.Client == 1 } // the holder watches its lock
				assert.False(t, slices.ContainsFunc(r.of(sim.Hinted, protocol.OpWatch), waiters))
				assert.False(t, slices.ContainsFunc(r.of(sim.Run, protocol.OpWatch), waiters))
			})
		}
	}
}

// TestWhatIsFreeIsNotWaitedFor: one request to each node, and one more at the end.
func TestWhatIsFreeIsNotWaitedFor(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		r := recorded(w)
		lock := waited(t, l, "x")
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

// TestTheNodesThatAreAskedFirstHaveTheirShares of common names of locks. Which is the first does not depend on the
// order in which the nodes are listed, nor on the process.
func TestTheNodesThatAreAskedFirstHaveTheirShares(t *testing.T) {
	t.Parallel()
	of := func(format string, n int) (nodes []protocol.Node) {
		for i := range n {
			nodes = append(nodes, named{name: fmt.Sprintf(format, i+1)})
		}
		return nodes
	}
	nodes := of("redis-%d.redis.svc.cluster.local:6379", 5)
	other := slices.Clone(nodes)
	slices.Reverse(other)
	for _, pattern := range []string{"tenant/%04d", "job-%d", "user:%d:lock"} {
		shares := map[string]int{}
		for i := range 1000 {
			key := fmt.Sprintf(pattern, i)
			first := nodes[redlock.FirstOf(nodes, key)].String()
			shares[first]++
			assert.Equal(t, first, other[redlock.FirstOf(other, key)].String())
		}
		for _, n := range nodes {
			assert.InDelta(t, 200, shares[n.String()], 4*14, "%s of %s", n, pattern) // four standard deviations
		}
	}
	var first []int
	for i := range 10 {
		first = append(first, redlock.FirstOf(of("10.0.0.%d:6379", 3), fmt.Sprint("invoice:", i)))
	}
	assert.Equal(t, []int{1, 2, 2, 1, 1, 2, 2, 2, 0, 2}, first, "other versions of this library must choose the same")
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
