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
	hinted  = leg + 2*rtt            // after a change of the key: a hint, one node, the others
	unaided = 200 * time.Millisecond // time between two tries without hints
)

// A record collects all steps in a World.
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

// tries returns the number of nodes in each try of a client, in order.
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

// firstOf returns the node that a client asks first after a try. The client waits for hints of this
// node.
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

// listens waits until a question of the client has been answered and the next question is not due
// soon. A negative client stands for any client.
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

// TestHintWakesAWaiterOfAnotherProcess: any client may release the lock, even a client that does
// not use this library.
func TestHintWakesAWaiterOfAnotherProcess(t *testing.T) {
	for name, test := range map[string]struct {
		free func(t *testing.T, w *sim.World, lock *redlock.Lock)
		want time.Duration
	}{
		"release":              {func(t *testing.T, _ *sim.World, lock *redlock.Lock) { go lock.Release(t.Context()) }, leg + called},
		"DEL by somebody else": {func(_ *testing.T, w *sim.World, _ *redlock.Lock) { onAll(w, func(s *sim.Server) { s.Del("x") }) }, called},
		"FLUSHALL":             {func(_ *testing.T, w *sim.World, _ *redlock.Lock) { onAll(w, (*sim.Server).Flush) }, called + rtt}, // a hint about all keys
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

// TestFailingNodeDelaysNoCaller: the failing node would be asked first. A node that is known to
// fail is replaced, and the next node sends the hints.
func TestFailingNodeDelaysNoCaller(t *testing.T) {
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
				limit += 4 * rtt // time to learn from each node that there is no queue
			}
			assert.LessOrEqual(t, time.Since(start), limit)
		})
	}
}

// TestCompetingContendersDoNotSpin: if no client can get a quorum, each try wins some nodes, and
// the release of these votes causes hints for the other clients.
func TestCompetingContendersDoNotSpin(t *testing.T) {
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

// TestUselessHintsAreFollowedLater: a key that changes constantly keeps no node busy. The pauses
// stay below 4 ms. After such a pause, the next waiter in the queue takes a free lock.
func TestUselessHintsAreFollowedLater(t *testing.T) {
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

// TestWaiterLeavesNothing: after its context ends or its Locker is closed, the waiter leaves no
// place in the line, no key, and no watch for changes.
func TestWaiterLeavesNothing(t *testing.T) {
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
				time.Sleep(2 * time.Second) // the connection for hints is closed, too
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

// TestFreeLockTakesNoWait: the lock takes one request to each node, and one more to each at the
// end.
func TestFreeLockTakesNoWait(t *testing.T) {
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

// A named node has only a name.
type named struct {
	protocol.Node
	name string
}

func (n named) String() string { return n.name }

// TestEachNodeIsFirstForItsShare: the test uses typical names of locks. The first node depends
// neither on the order in which the nodes are listed, nor on the process.
func TestEachNodeIsFirstForItsShare(t *testing.T) {
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

// TestNodeThatFallsSilentAfterItsRefusalDelaysNoCaller: a caller does not wait for the node to
// report the holder's TTL, because the other nodes report it as well.
func TestNodeThatFallsSilentAfterItsRefusalDelaysNoCaller(t *testing.T) {
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
		}), 60*time.Millisecond) // a tenth of the timeout
		assert.Equal(t, time.Second, failure.Remaining)
	})
}

// TestTryEndsWithinThreeTimeouts: the caller tries again after split votes, and then finds the vote
// of a caller that has more time.
func TestTryEndsWithinThreeTimeouts(t *testing.T) {
	const timeout = 500 * time.Millisecond
	for after := rtt; after < 4*rtt; after += leg / 4 {
		simulateCase(t, after.String(), 5, func(t *testing.T, w *sim.World) {
			l, _ := open(t, w, redlock.NodeTimeout(timeout))
			onEach(w.Servers()[:3], func(s *sim.Server) { s.Set("x", "another", time.Hour) })
			start, ended := time.Now(), make(chan time.Duration, 1)
			go func() {
				_, err := l.TryAcquire(t.Context(), "x")
				assert.Error(t, err)
				ended <- time.Since(start)
			}()
			time.Sleep(after)
			onAll(w, (*sim.Server).Hang)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go l.Acquire(ctx, "x", redlock.NodeTimeout(8*timeout), redlock.Patience(time.Hour))
			assert.LessOrEqual(t, <-ended, 3*timeout)
			cancel()
			onAll(w, (*sim.Server).Resume)
		})
	}
}
