package redlock_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// A recorder records events.
type recorder struct {
	mu     sync.Mutex
	events []redlock.Event
}

func (r *recorder) Observe(e redlock.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// take returns and discards the collected events of the given kinds, or of all kinds.
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

// TestEventsOfALockInOrder: the events have durations, votes and validity.
func TestEventsOfALockInOrder(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		w.SetNet(sim.Net{Patience: time.Hour, Travel: slowNode(2, 4*leg)})
		seen := &recorder{}
		l, _ := open(t, w, redlock.TTL(ttl), redlock.Observe(seen))
		vote := func(e redlock.Event, op protocol.Op, node string, after time.Duration) {
			t.Helper()
			assert.Equal(t, after, e.Elapsed)
			e.Elapsed, e.Context, e.Time = 0, nil, time.Time{}
			assert.Equal(t, redlock.Event{Kind: redlock.EventVote, Name: "x", Op: op, Node: node, Outcome: protocol.Granted}, e)
		}
		lock := waited(t, l, "x")
		time.Sleep(time.Second)
		events := seen.take()
		require.Len(t, events, 5)
		vote(events[0], protocol.OpAcquire, "node1", rtt)
		vote(events[1], protocol.OpAcquire, "node2", rtt)
		for i, kind := range []redlock.EventKind{redlock.EventAttempt, redlock.EventAcquired} {
			e := events[2+i]
			assert.Equal(t, kind, e.Kind)
			assert.Equal(t, "x", e.Name)
			assert.Equal(t, 2, e.Votes)
			assert.Equal(t, rtt, e.Elapsed)
			assert.Equal(t, validity, e.Remaining)
		}
		vote(events[4], protocol.OpAcquire, "node3", 8*leg)

		require.NoError(t, lock.Extend(t.Context()))
		synctest.Wait()
		events = seen.take(redlock.EventExtended)
		require.Len(t, events, 1)
		assert.Equal(t, 2, events[0].Votes)
		assert.Equal(t, rtt, events[0].Elapsed)
		assert.Equal(t, validity, events[0].Remaining)

		time.Sleep(time.Second)
		seen.take()
		require.NoError(t, lock.Release(t.Context()))
		synctest.Wait()
		events = seen.take()
		require.Len(t, events, 3)
		vote(events[0], protocol.OpRelease, "node1", rtt)
		vote(events[1], protocol.OpRelease, "node2", rtt)
		assert.Equal(t, redlock.EventReleased, events[2].Kind)
		assert.Equal(t, 2, events[2].Votes)
		assert.NoError(t, events[2].Err)
		assert.Equal(t, 2*time.Second+3*rtt, events[2].Elapsed)
	})
}

// TestExtensionReportsTheEndOfTheLock: with several names, each name is extended at its own time,
// and the first name that expires ends the lock.
func TestExtensionReportsTheEndOfTheLock(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		seen := &recorder{}
		l, _ := open(t, w, redlock.TTL(ttl), redlock.Observe(seen))
		lock, err := l.AcquireAll(t.Context(), []string{"a", "b", "c"})
		require.NoError(t, err)
		until, changes := time.Now().Add(lock.Remaining()), 0
		for range 1000 {
			time.Sleep(ttl / 100)
			synctest.Wait()
			for _, e := range seen.take(redlock.EventExtended) {
				ends := e.Time.Add(e.Remaining)
				assert.True(t, ends.After(until), "the lock does not end later")
				until, changes = ends, changes+1
			}
			require.Equal(t, until, time.Now().Add(lock.Remaining()))
		}
		assert.Greater(t, changes, 20)
	})
}

// TestExtensionReportsItsDuration: a MaxHold that ends the lock earlier does not change the
// duration.
func TestExtensionReportsItsDuration(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		seen := &recorder{}
		l, _ := open(t, w, redlock.TTL(ttl), redlock.Observe(seen))
		for name, kind := range map[string]redlock.Option{"x": redlock.Exclusive(), "y": redlock.Shared()} {
			lock := take(t, l, name, redlock.MaxHold(time.Minute), redlock.Renew(false), kind)
			require.NoError(t, lock.Extend(t.Context()))
			require.NoError(t, lock.ExtendFor(t.Context(), time.Hour))
			synctest.Wait()
			events := seen.take(redlock.EventExtended)
			require.Len(t, events, 2)
			for _, e := range events {
				assert.Equal(t, rtt, e.Elapsed, name)
			}
			assert.Equal(t, time.Minute-2*rtt, events[1].Remaining, name)
		}
	})
}

// TestEventsOfFailures: the events contain the errors that the callers get.
func TestEventsOfFailures(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		seen := &recorder{}
		l, _ := open(t, w, redlock.TTL(ttl), redlock.Observe(seen), redlock.Renew(false))
		lock := take(t, l, "x")
		other, _ := open(t, w, redlock.TTL(ttl))
		take(t, other, "y")
		synctest.Wait()
		seen.take()

		_, err := l.Acquire(t.Context(), "y", redlock.Retries(1), redlock.RetryInterval(time.Second))
		events := seen.take(redlock.EventAttempt, redlock.EventNotAcquired)
		require.Len(t, events, 3)
		assert.Equal(t, redlock.EventAttempt, events[0].Kind)
		isOnly(t, events[0].Err, redlock.ErrHeld)
		assert.Equal(t, 2*rtt, events[0].Elapsed)
		assert.Equal(t, redlock.EventAttempt, events[1].Kind)
		assert.Equal(t, redlock.EventNotAcquired, events[2].Kind)
		assert.Same(t, err, events[2].Err)
		assert.Equal(t, time.Second+2*rtt, events[2].Elapsed)

		err = isHeld(t, l, "x")
		events = seen.take()
		require.Len(t, events, 1, "no node is asked for what this process holds itself")
		assert.Equal(t, redlock.EventNotAcquired, events[0].Kind)
		assert.Same(t, err, events[0].Err)

		<-lock.Context().Done()
		time.Sleep(rtt)
		lock.Release(t.Context())
		events = seen.take(redlock.EventLost, redlock.EventReleased)
		require.Len(t, events, 1, "it is lost once")
		assert.Equal(t, redlock.EventLost, events[0].Kind)
		assert.Same(t, context.Cause(lock.Context()), events[0].Err)
		assert.Equal(t, validity+rtt, events[0].Elapsed)

		lock = take(t, l, "x")
		onEach(w.Servers()[:2], (*sim.Server).Crash)
		err = lock.Release(t.Context())
		events = seen.take(redlock.EventReleased, redlock.EventVote)
		last := events[len(events)-1]
		assert.Equal(t, redlock.EventReleased, last.Kind)
		assert.Equal(t, 1, last.Votes)
		assert.Same(t, err, last.Err)
		faulty := 0
		for _, e := range events {
			if e.Kind == redlock.EventVote && e.Op == protocol.OpRelease && e.Err != nil {
				faulty++
			}
		}
		assert.Equal(t, 2, faulty)
	})
}

// TestObservedErrorDoesNotChange: an observer may read the error later and in another goroutine.
func TestObservedErrorDoesNotChange(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		seen := &recorder{}
		l, _ := open(t, w, redlock.Observe(seen), longest)
		onAll(w, func(s *sim.Server) { s.Set("x", "another", protocol.NoTTL) })
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(2*rtt+4*time.Millisecond, cancel) // between two tries
		_, err := l.Acquire(ctx, "x")
		isOnly(t, err, context.Canceled)
		events := seen.take(redlock.EventAttempt)
		require.NotEmpty(t, events)
		isOnly(t, events[len(events)-1].Err, redlock.ErrHeld)
		var quorum *redlock.QuorumError
		require.ErrorAs(t, err, &quorum)
		assert.ErrorContains(t, err, "node1, node2, node3: holds another value", "the caller still learns who was in the way")
	})
}

func TestNamesOfKinds(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for k := redlock.EventVote; k <= redlock.EventReleased; k++ {
		names[k.String()] = true
	}
	for o := protocol.Granted; o <= protocol.Unknown; o++ {
		names[o.String()] = true
	}
	for op := protocol.OpAcquire; op <= protocol.OpInspect; op++ {
		names[op.String()] = true
	}
	assert.Len(t, names, 7+4+4, "no two share a name")
	assert.Equal(t, "EventKind(0)", redlock.EventKind(0).String())
	assert.Equal(t, "EventKind(255)", redlock.EventKind(255).String())
	assert.NotContains(t, names, "")
}

// A tracer numbers acquisitions, from 1.
type tracer struct {
	recorder
	started atomic.Int64
}

func (r *tracer) Start(ctx context.Context, _ string) context.Context {
	return context.WithValue(ctx, r, r.started.Add(1))
}

// of returns the number of the event's acquisition, or zero.
func (r *tracer) of(e redlock.Event) int64 {
	n, _ := e.Context.Value(r).(int64)
	return n
}

// endings lists the kinds of events that end an acquisition.
var endings = []redlock.EventKind{redlock.EventAcquired, redlock.EventNotAcquired}

type callerKey struct{}

// TestEventsBelongToTheirAcquisition: many acquisitions of one name run concurrently, with retries,
// handovers and releases of lost attempts.
func TestEventsBelongToTheirAcquisition(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		seen := &tracer{}
		l, _ := open(t, w, redlock.TTL(ttl), redlock.Observe(seen))
		other, _ := open(t, w, redlock.TTL(ttl))
		before := take(t, other, "x")
		time.AfterFunc(4*rtt, func() { before.Release(t.Context()) })
		var all sync.WaitGroup
		for i := range 24 {
			ctx := context.WithValue(t.Context(), callerKey{}, i)
			all.Go(func() {
				lock, err := (*redlock.Lock)(nil), error(nil)
				switch i % 3 {
				case 0:
					lock, err = l.Acquire(ctx, "x")
				case 1:
					lock, err = l.Acquire(ctx, "x", redlock.Retries(1))
				case 2:
					lock, err = l.TryAcquire(ctx, "x")
				}
				if err == nil {
					time.Sleep(leg / 2)
					assert.NoError(t, lock.Release(ctx))
				}
			})
		}
		all.Wait()
		time.Sleep(rtt)
		assert.EqualValues(t, 24, seen.started.Load())
		callers := map[int64]any{} // callers by acquisition
		ended := map[int64]int{}
		votes, undone := 0, 0
		for _, e := range seen.take() {
			n := seen.of(e)
			ofLock := e.Kind == redlock.EventReleased || e.Kind == redlock.EventVote && e.Op == protocol.OpRelease && n == 0
			assert.Equal(t, ofLock, n == 0, "%v %v", e.Kind, e.Op)
			if ofLock {
				assert.NotNil(t, e.Context.Value(callerKey{}), "of the caller who had the lock")
				continue
			}
			caller := e.Context.Value(callerKey{})
			require.NotNil(t, caller)
			if callers[n] == nil {
				callers[n] = caller
			}
			assert.Equal(t, callers[n], caller, "one acquisition, one caller")
			switch {
			case slices.Contains(endings, e.Kind):
				ended[n]++
			case e.Kind == redlock.EventVote && e.Op == protocol.OpAcquire:
				votes++
			case e.Kind == redlock.EventVote && e.Op == protocol.OpRelease:
				undone++
			}
		}
		require.Len(t, ended, 24)
		for n, times := range ended {
			assert.Equal(t, 1, times, "acquisition %d", n)
		}
		assert.NotZero(t, votes)
		assert.NotZero(t, undone)
	})
}

// TestEachStartHasOneEnd: each acquisition reports one end, however it ends.
func TestEachStartHasOneEnd(t *testing.T) {
	try := func(ctx context.Context, l *redlock.Locker) error {
		_, err := l.TryAcquire(ctx, "x")
		return err
	}
	wait := func(ctx context.Context, l *redlock.Locker) error {
		ctx, cancel := context.WithTimeout(ctx, 2*defaultPatience)
		defer cancel()
		return l.Do(ctx, "x", func(context.Context) error { return nil })
	}
	held := func(w *sim.World, _ *redlock.Locker) {
		w.Servers()[0].Set("x", "y", ttl)
		w.Servers()[1].Set("x", "y", ttl)
	}
	down := func(w *sim.World, _ *redlock.Locker) { w.Servers()[0].Crash(); w.Servers()[1].Crash() }
	closed := func(_ *sim.World, l *redlock.Locker) { l.Close() }
	fine := func(*sim.World, *redlock.Locker) {}
	for name, c := range map[string]struct {
		world   func(*sim.World, *redlock.Locker)
		call    func(context.Context, *redlock.Locker) error
		ended   bool // the caller's context has ended
		matches error
	}{
		"acquired at once":        {fine, try, false, nil},
		"acquired":                {fine, wait, false, nil},
		"held":                    {held, try, false, redlock.ErrHeld},
		"waited in vain":          {held, wait, false, context.DeadlineExceeded},
		"an outage":               {down, try, false, redlock.ErrNoQuorum},
		"an outage while waiting": {down, wait, false, redlock.ErrNoQuorum},
		"closed":                  {closed, try, false, redlock.ErrClosed},
		"closed, to wait":         {closed, wait, false, redlock.ErrClosed},
		"no more context":         {fine, try, true, context.Canceled},
		"no context to wait with": {fine, wait, true, context.Canceled},
	} {
		simulateCase(t, name, 3, func(t *testing.T, w *sim.World) {
			seen := &tracer{}
			l, _ := open(t, w, redlock.TTL(ttl), redlock.Observe(seen))
			c.world(w, l)
			seen.take()
			ctx := t.Context()
			if c.ended {
				ctx = canceled(t)
			}
			err := c.call(ctx, l)
			events := seen.take(endings...)
			require.Len(t, events, 1)
			assert.EqualValues(t, 1, seen.of(events[0]))
			if c.matches == nil {
				assert.Equal(t, redlock.EventAcquired, events[0].Kind)
				assert.NoError(t, events[0].Err)
				return
			}
			assert.Equal(t, redlock.EventNotAcquired, events[0].Kind)
			assert.Same(t, err, events[0].Err)
			isOnly(t, err, c.matches)
		})
	}
}

// TestInvalidCallIsNotStarted: a mistake of the program is not an acquisition.
func TestInvalidCallIsNotStarted(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		seen := &tracer{}
		l, _ := open(t, w, redlock.Observe(seen))
		assert.Error(t, errOf(l.TryAcquire(t.Context(), "")))
		assert.Error(t, errOf(l.Acquire(t.Context(), "x", redlock.NodeTimeout(-1))))
		assert.Zero(t, seen.started.Load())
		assert.Empty(t, seen.take())
	})
}

// TestLockHasTheContextOfTheCaller: a trace of the work under the lock belongs to the caller and
// not to the acquisition.
func TestLockHasTheContextOfTheCaller(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		seen := &tracer{}
		l, _ := open(t, w, redlock.TTL(ttl), redlock.Observe(seen))
		ctx := context.WithValue(t.Context(), callerKey{}, "caller")
		for _, end := range []func(*redlock.Lock){
			func(k *redlock.Lock) { _ = k.Release(context.Background()) },
			func(k *redlock.Lock) { w.Servers()[0].Del("x"); w.Servers()[1].Del("x"); _ = k.Extend(t.Context()) },
			func(*redlock.Lock) { l.Close() },
		} {
			lock, err := l.Acquire(ctx, "x")
			require.NoError(t, err)
			time.Sleep(rtt)
			assert.Nil(t, lock.Context().Value(seen))
			assert.Equal(t, "caller", lock.Context().Value(callerKey{}))
			seen.take()
			require.NoError(t, lock.Extend(t.Context()))
			end(lock)
			time.Sleep(rtt)
			kinds := map[redlock.EventKind]bool{}
			for _, e := range seen.take() {
				kinds[e.Kind] = true
				assert.Equal(t, ctx, e.Context, "%v %v", e.Kind, e.Op)
			}
			assert.Len(t, kinds, 3, "votes, an extension, and the end: %v", kinds)
		}
	})
}

// TestAllObserversGetTheEvents: each tracer's context is derived from the previous tracer's
// context.
func TestAllObserversGetTheEvents(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		first, plain, second := &tracer{}, &recorder{}, &tracer{}
		l, _ := open(t, w, redlock.Observe(first), redlock.Observe(plain), redlock.Observe(second))
		second.started.Store(10)
		lock := take(t, l, "x")
		require.NoError(t, lock.Release(t.Context()))
		time.Sleep(rtt)
		events := plain.take()
		require.NotEmpty(t, events)
		assert.Equal(t, events, first.take())
		assert.Equal(t, events, second.take())
		assert.EqualValues(t, 1, first.of(events[0]))
		assert.EqualValues(t, 11, second.of(events[0]))
	})
}

// A stuck is an observer that does not return until it is freed.
type stuck struct {
	recorder
	gate chan struct{}
	in   atomic.Int64 // calls in progress
	most atomic.Int64
}

func newStuck() *stuck { return &stuck{gate: make(chan struct{})} }

func (s *stuck) Observe(e redlock.Event) {
	s.most.Store(max(s.most.Load(), s.in.Add(1)))
	<-s.gate
	s.recorder.Observe(e)
	s.in.Add(-1)
}

// TestHangingObserverKeepsNoLockAlive: contexts end at their deadlines, renewals continue, other
// observers get their events, and each caller waits for one node timeout, once.
func TestHangingObserverKeepsNoLockAlive(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		hangs, other := newStuck(), &recorder{}
		l, _ := open(t, w, redlock.TTL(ttl), redlock.Observe(hangs), redlock.Observe(other))
		const timeout = nodeTimeout
		start := time.Now()
		lock := take(t, l, "x", redlock.Renew(false))
		assert.Equal(t, rtt+timeout, time.Since(start), "the caller has waited for the observer")
		deadline := start.Add(ttl - redlock.Drift(ttl))
		assert.Equal(t, rtt, took(func() { take(t, l, "renewed") }), "nobody waits for it again")
		assert.Equal(t, rtt, took(func() { assert.NoError(t, take(t, l, "y").Extend(t.Context())) })-rtt)
		assert.Equal(t, deadline, <-endOf(lock))
		time.Sleep(rtt)
		assert.Len(t, other.take(redlock.EventLost), 1)
		time.Sleep(time.Hour)
		renewed, err := l.Inspect(t.Context(), "renewed")
		require.NoError(t, err)
		_, _, held := renewed.Holder()
		assert.True(t, held)
		assert.EqualValues(t, 1, hangs.most.Load())

		close(hangs.gate)
		synctest.Wait()
		told := hangs.take()
		require.Greater(t, len(told), 5)
		assert.Equal(t, redlock.EventVote, told[0].Kind)
		assert.Equal(t, start.Add(rtt), told[0].Time, "when it happened, not when it was told")
		for i := 1; i < len(told); i++ {
			assert.False(t, told[i].Time.Before(told[i-1].Time), "in order")
		}
		assert.Equal(t, rtt, took(func() { take(t, l, "z") }))
		assert.NotEmpty(t, hangs.take(redlock.EventAcquired), "calls wait for the observer again, now that it has caught up")
	})
}

// TestCloseDoesNotHangOnAnObserver: Close discards the observer's pending events.
func TestCloseDoesNotHangOnAnObserver(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		hangs := newStuck()
		l, _ := open(t, w, redlock.TTL(ttl), redlock.Observe(hangs))
		take(t, l, "x")
		assert.LessOrEqual(t, took(func() { assert.NoError(t, l.Close()) }), 2*nodeTimeout)
		close(hangs.gate)
		synctest.Wait()
		assert.Len(t, hangs.take(), 1, "the one that it hung on")
	})
}

// TestCloseReportsTheEndsOfLocksToObservers: even slow observers get the ends within the node
// timeout.
func TestCloseReportsTheEndsOfLocksToObservers(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		seen := &recorder{}
		l, _ := open(t, w, redlock.TTL(ttl), redlock.Observe(slowly{seen, ttl / 10000}))
		for i := range 3 {
			take(t, l, fmt.Sprint("x", i))
		}
		require.NoError(t, l.Close())
		assert.Len(t, seen.take(redlock.EventReleased), 3)
	})
}

// A slowly is an observer that takes a while for each event.
type slowly struct {
	redlock.Observer
	pause time.Duration
}

func (s slowly) Observe(e redlock.Event) {
	time.Sleep(s.pause)
	s.Observer.Observe(e)
}

// TestDroppedEventsAreCounted: votes are dropped before the ends of locks, and a log record reports
// the number.
func TestDroppedEventsAreCounted(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		const locks = 3000
		hangs := newStuck()
		book, log := newLogbook(slog.LevelWarn)
		gate := make(chan struct{})
		l, _ := open(t, w, redlock.TTL(ttl), redlock.Observe(hangs), redlock.Log(slog.New(gated{log.Handler(), gate})))
		for i := range locks {
			require.NoError(t, take(t, l, fmt.Sprint("x", i)).Release(context.Background()))
		}
		time.Sleep(rtt)
		close(hangs.gate)
		synctest.Wait()
		told := hangs.take()
		count, dropped := map[redlock.EventKind]int{}, 0
		for _, e := range told {
			count[e.Kind]++
			dropped += e.Dropped
		}
		assert.Equal(t, locks, count[redlock.EventAcquired])
		assert.Equal(t, locks, count[redlock.EventReleased])
		assert.Equal(t, locks*(3+1+1+3+1), len(told)+dropped, "votes, a try, the lock, votes, its release")
		assert.NotZero(t, dropped)

		close(gate)
		synctest.Wait()
		records := book.take(t)
		require.Equal(t, []string{"WARN the log is too slow, and events were dropped"}, titles(records))
		assert.EqualValues(t, dropped, records[0]["dropped"])
	})
}

// A gated is a log handler that hangs at every record, or in Enabled, until it is freed.
type gated struct {
	slog.Handler
	gate chan struct{}
}

func (g gated) Enabled(ctx context.Context, level slog.Level) bool {
	<-g.gate
	return g.Handler.Enabled(ctx, level)
}
