package redlock_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// A stuck observer does not return until it is let go.
type stuck struct {
	recorder
	gate chan struct{}
	in   atomic.Int64 // calls under way
	most atomic.Int64
}

func newStuck() *stuck { return &stuck{gate: make(chan struct{})} }

func (s *stuck) Observe(e redlock.Event) {
	s.most.Store(max(s.most.Load(), s.in.Add(1)))
	<-s.gate
	s.recorder.Observe(e)
	s.in.Add(-1)
}

// TestAnObserverThatHangsKeepsNoLockAlive: contexts end at their deadlines, renewals
// go on, other observers are told, and callers wait for one node timeout, once.
func TestAnObserverThatHangsKeepsNoLockAlive(t *testing.T) {
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
		assert.NotEmpty(t, hangs.take(redlock.EventAcquired), "it is waited for again, now that it has caught up")
	})
}

// TestCloseDoesNotHangOnAnObserver, and what it was not told of is given up.
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

// TestCloseTellsObserversOfTheEndsOfLocks, however slow they are within the node
// timeout.
func TestCloseTellsObserversOfTheEndsOfLocks(t *testing.T) {
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

// A slowly observer takes a while for each event.
type slowly struct {
	redlock.Observer
	pause time.Duration
}

func (s slowly) Observe(e redlock.Event) {
	time.Sleep(s.pause)
	s.Observer.Observe(e)
}

// TestDroppedEventsAreCounted, votes before the ends of locks, and a log says so.
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

// A gated handler hangs at every record, or at the question for its level, until it
// is let go.
type gated struct {
	slog.Handler
	gate chan struct{}
}

func (g gated) Enabled(ctx context.Context, level slog.Level) bool {
	<-g.gate
	return g.Handler.Enabled(ctx, level)
}
