package redlock_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// A recorder notes events.
type recorder struct {
	mu     sync.Mutex
	events []redlock.Event
}

func (r *recorder) Observe(e redlock.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// take returns the events so far, of some kinds or of all, and forgets them.
func (r *recorder) take(kinds ...redlock.EventKind) (events []redlock.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		for _, k := range kinds {
			if e.Kind == k {
				events = append(events, e)
			}
		}
	}
	if len(kinds) == 0 {
		events = r.events
	}
	r.events = nil
	return events
}

// TestEventsOfALockInOrder, with durations, votes and validity.
func TestEventsOfALockInOrder(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		w.Space() // one event at a time, some nanoseconds apart
		w.SetNet(sim.Net{Patience: time.Hour, Travel: slowNode(2, 4*leg)})
		seen := &recorder{}
		l, _ := open(t, w, redlock.TTL(ttl), redlock.Observe(seen))
		about := func(want, got time.Duration) {
			t.Helper()
			assert.InDelta(t, want, got, 100, "%v, not %v", got, want)
		}
		vote := func(e redlock.Event, op redlock.Op, node string, after time.Duration) {
			t.Helper()
			about(after, e.Elapsed)
			e.Elapsed, e.Context = 0, nil
			assert.Equal(t, redlock.Event{Kind: redlock.EventVote, Name: "x", Op: op, Node: node, Outcome: redlock.Granted}, e)
		}
		lock, err := l.Acquire(t.Context(), "x")
		require.NoError(t, err)
		time.Sleep(time.Second)
		events := seen.take()
		require.Len(t, events, 5)
		vote(events[0], redlock.OpAcquire, "node1", rtt)
		vote(events[1], redlock.OpAcquire, "node2", rtt)
		for i, kind := range []redlock.EventKind{redlock.EventAttempt, redlock.EventAcquired} {
			e := events[2+i]
			assert.Equal(t, kind, e.Kind)
			assert.Equal(t, "x", e.Name)
			assert.Equal(t, 2, e.Votes)
			about(rtt, e.Elapsed)
			about(validity, e.Remaining)
		}
		vote(events[4], redlock.OpAcquire, "node3", 8*leg)

		require.NoError(t, lock.Extend(t.Context()))
		events = seen.take(redlock.EventExtended)
		require.Len(t, events, 1)
		assert.Equal(t, 2, events[0].Votes)
		about(rtt, events[0].Elapsed)
		about(validity, events[0].Remaining)

		time.Sleep(time.Second)
		seen.take()
		require.NoError(t, lock.Release(t.Context()))
		events = seen.take()
		require.Len(t, events, 3)
		vote(events[0], redlock.OpRelease, "node1", rtt)
		vote(events[1], redlock.OpRelease, "node2", rtt)
		assert.Equal(t, redlock.EventReleased, events[2].Kind)
		assert.Equal(t, 2, events[2].Votes)
		assert.NoError(t, events[2].Err)
		about(2*time.Second+3*rtt, events[2].Elapsed)
	})
}

// TestEventsOfFailures carry the errors that the callers get.
func TestEventsOfFailures(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		seen := &recorder{}
		l, _ := open(t, w, redlock.TTL(ttl), redlock.Observe(seen), redlock.Renew(false))
		lock := take(t, l, "x")
		synctest.Wait()
		seen.take()

		_, err := l.Acquire(t.Context(), "x", redlock.Retries(1), redlock.RetryInterval(time.Second))
		require.Error(t, err)
		events := seen.take(redlock.EventAttempt, redlock.EventNotAcquired)
		require.Len(t, events, 3)
		assert.Equal(t, redlock.EventAttempt, events[0].Kind)
		isOnly(t, events[0].Err, redlock.ErrHeld)
		assert.Equal(t, 2*rtt, events[0].Elapsed)
		assert.Equal(t, redlock.EventAttempt, events[1].Kind)
		assert.Equal(t, redlock.EventNotAcquired, events[2].Kind)
		assert.Same(t, err, events[2].Err)
		assert.Equal(t, time.Second+2*rtt, events[2].Elapsed)

		<-lock.Context().Done()
		time.Sleep(rtt)
		events = seen.take(redlock.EventLost)
		require.Len(t, events, 1)
		assert.Same(t, context.Cause(lock.Context()), events[0].Err)
		assert.Equal(t, validity+rtt, events[0].Elapsed)
		lock.Release(t.Context())
		assert.Empty(t, seen.take(redlock.EventLost, redlock.EventReleased), "it is lost once")

		lock = take(t, l, "x")
		w.Servers()[0].Crash()
		w.Servers()[1].Crash()
		err = lock.Release(t.Context())
		events = seen.take(redlock.EventReleased, redlock.EventVote)
		last := events[len(events)-1]
		assert.Equal(t, redlock.EventReleased, last.Kind)
		assert.Equal(t, 1, last.Votes)
		assert.Same(t, err, last.Err)
		faulty := 0
		for _, e := range events {
			if e.Kind == redlock.EventVote && e.Op == redlock.OpRelease && e.Err != nil {
				faulty++
			}
		}
		assert.Equal(t, 2, faulty)
	})
}

// TestCloseIsObserved as the release that it is.
func TestCloseIsObserved(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		seen := &recorder{}
		l, _ := open(t, w, redlock.Observe(seen))
		take(t, l, "x")
		l.Close()
		events := seen.take(redlock.EventReleased, redlock.EventLost)
		require.Len(t, events, 1)
		assert.Equal(t, "x", events[0].Name)
		assert.Equal(t, redlock.ErrClosed, events[0].Err)
	})
}

// TestAnObservedErrorDoesNotChange once the observer has it: it may be read in
// another goroutine, and later.
func TestAnObservedErrorDoesNotChange(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		seen := &recorder{}
		l, _ := open(t, w, redlock.Observe(seen), longest)
		for _, s := range w.Servers() {
			s.Set("x", "another", redlock.NoTTL)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(2*rtt+4*time.Millisecond, cancel) // between two tries
		_, err := l.Acquire(ctx, "x")
		isOnly(t, err, context.Canceled)
		events := seen.take(redlock.EventAttempt)
		require.NotEmpty(t, events)
		isOnly(t, events[len(events)-1].Err, redlock.ErrHeld)
		var quorum *redlock.QuorumError
		require.ErrorAs(t, err, &quorum)
		assert.ErrorContains(t, err, "node1: holds another's value", "the caller still learns who was in the way")
	})
}

func TestNamesOfKinds(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for k := redlock.EventVote; k <= redlock.EventReleased; k++ {
		names[k.String()] = true
	}
	for o := redlock.Granted; o <= redlock.Unknown; o++ {
		names[o.String()] = true
	}
	for op := redlock.OpAcquire; op <= redlock.OpInspect; op++ {
		names[op.String()] = true
	}
	assert.Len(t, names, 7+4+4, "no two share a name")
	assert.NotContains(t, names, "")
}
