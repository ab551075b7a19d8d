package redlock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// A stopping clock has its timers tell when they are stopped, before it is done.
type stopping struct {
	clock.Clock
	told atomic.Pointer[func()]
}

// AfterFunc implements clock.Clock.
func (c *stopping) AfterFunc(d time.Duration, f func()) clock.Timer {
	return stoppingTimer{c.Clock.AfterFunc(d, f), c}
}

type stoppingTimer struct {
	clock.Timer
	clock *stopping
}

// Stop implements clock.Timer.
func (t stoppingTimer) Stop() bool {
	if f := t.clock.told.Swap(nil); f != nil {
		(*f)()
	}
	return t.Timer.Stop()
}

// A woken context tells when somebody who waits under it runs after the end of a
// lock.
type woken struct {
	context.Context
	lock *redlock.Lock
	runs chan error // of the context of the lock, at that moment
}

// Err implements context.Context.
func (c woken) Err() error {
	if !c.lock.Valid() {
		select {
		case c.runs <- c.lock.Context().Err():
		default:
		}
	}
	return nil
}

// TestTheHeirRunsWhenTheHoldersContextHasEnded: two callers of one process must not
// both work. The holder is kept where it takes its lock off the agenda, the last
// of which stops the timer.
func TestTheHeirRunsWhenTheHoldersContextHasEnded(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		c := w.NewClient(1)
		slow := &stopping{Clock: c.Clock()}
		l, err := redlock.New(c.Nodes(), redlock.Clock(slow), redlock.MemoryGuard(false), redlock.TTL(time.Hour))
		require.NoError(t, err)
		defer l.Close()
		lock := take(t, l, "x")
		time.Sleep(leg) // the last votes
		heir := woken{context.Background(), lock, make(chan error, 1)}
		got := waits(heir, t, l)
		kept := func() { assert.ErrorIs(t, <-heir.runs, context.Canceled) }
		slow.told.Store(&kept)
		require.NoError(t, lock.Release(t.Context()))
		next := <-got
		assert.Equal(t, lock.Value(), next.Value(), "it was handed over")
		assert.Nil(t, slow.told.Load())
		synctest.Wait()
	})
}
