package engine_test

import (
	"cmp"
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/engine"
)

// An end is the report of a Bond about its end.
type end struct {
	key    string
	reason core.Reason
}

// bondThat returns a Bond that reports its end.
func bondThat(ends chan end) *engine.Bond {
	b := &engine.Bond{}
	b.Own(told(func(l engine.Lock) { ends <- end{l.Key(), l.Reason} }))
	return b
}

// bonded returns a Bond of locks with the names, and a channel that reports its end.
func (h *house) bonded(t *testing.T, names ...string) (*engine.Bond, []engine.Lock, chan end) {
	ends := make(chan end, 2)
	b := bondThat(ends)
	var locks []engine.Lock
	for _, name := range names {
		l, f, err := h.get(t.Context(), name, false)
		require.NoError(t, err)
		require.Nil(t, f)
		require.True(t, b.Add(l))
		locks = append(locks, l)
	}
	return b, locks, ends
}

// isFree waits until another engine can have the names, and takes them for a moment.
func (h *house) isFree(t *testing.T, names ...string) {
	for _, name := range names {
		l, f, err := h.get(t.Context(), name, false)
		require.NoError(t, err)
		require.Nil(t, f)
		l.Release(t.Context())
	}
}

// TestEndedBondTakesNoLock: a Bond that takes an ended Lock ends, too.
func TestEndedBondTakesNoLock(t *testing.T) {
	t.Parallel()
	urls := servers(t, 3)
	h, other := newHouse(t, urls), newHouse(t, urls)
	over, _, _ := h.bonded(t, "a")
	over.Release(t.Context())
	late, _, err := h.get(t.Context(), "late", false)
	require.NoError(t, err)
	assert.False(t, over.Add(late))
	assert.Zero(t, late.Deadline())

	b, _, ends := h.bonded(t, "a", "b")
	assert.False(t, b.Add(late))
	assert.Equal(t, end{"late", core.Released}, <-ends)
	other.isFree(t, "a", "b", "late")
}

// A lateClock has timers that fire an hour late.
type lateClock struct{ clock.Clock }

func (c lateClock) AfterFunc(d time.Duration, f func()) clock.Timer {
	return lateTimer{c.Clock.AfterFunc(d+time.Hour, f)}
}

type lateTimer struct{ clock.Timer }

func (t lateTimer) Reset(d time.Duration) bool { return t.Timer.Reset(d + time.Hour) }

// TestBondEndsBeforeItsLocksAreReleased: this holds for each reason for the end. When Close
// returns, no goroutine is left.
func TestBondEndsBeforeItsLocksAreReleased(t *testing.T) {
	t.Parallel()
	const locks = 20
	terms := core.Terms{TTL: time.Second, Timeout: time.Second}
	short, long := terms, terms
	short.MaxHold, long.TTL = time.Second/2, time.Hour
	for name, c := range map[string]struct {
		last   core.Terms
		do     func(*engine.Engine, *engine.Bond)
		reason core.Reason
	}{
		"release":      {long, func(_ *engine.Engine, b *engine.Bond) { b.Release(context.Background()) }, core.Released},
		"late release": {terms, func(_ *engine.Engine, b *engine.Bond) { time.Sleep(time.Second); b.Release(context.Background()) }, core.Overdue},
		"close":        {long, func(e *engine.Engine, _ *engine.Bond) { _ = e.Close(context.Background()) }, core.Closed},
		"max hold":     {short, func(*engine.Engine, *engine.Bond) {}, core.HeldLong},
		"deadline":     {terms, func(*engine.Engine, *engine.Bond) {}, core.Overdue},
	} {
		synctest.Test(t, func(t *testing.T) {
			ends := make(chan end, locks)
			w := &witness{"a", func() int { return len(ends) }, make(chan int, locks)}
			clocks := map[string]clock.Clock{"late release": lateClock{clock.NewFake(1)}}
			e := engine.New(engine.Config{Nodes: []protocol.Node{w}, Clock: cmp.Or(clocks[name], clock.Clock(clock.NewFake(1)))})
			b := bondThat(ends)
			for i := range locks {
				terms := &long
				if i == locks-1 {
					terms = &c.last
				}
				l, f, err := e.Acquire(t.Context(), fmt.Sprint("job", i), terms)
				require.NoError(t, err)
				require.Nil(t, f)
				require.True(t, b.Add(l))
			}
			c.do(e, b)
			for range locks {
				assert.Equal(t, 1, <-w.seen, name)
			}
			assert.Equal(t, c.reason, (<-ends).reason, name)
			require.NoError(t, e.Close(t.Context()))
			assert.Zero(t, e.Entries())
		})
	}
}
