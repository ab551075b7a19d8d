package integration_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/internal/evidence/check"
	"github.com/redquorum/redquorum/redlock"
)

// A history records the caller and the times of each hold.
type history struct {
	began time.Time
	mu    sync.Mutex
	holds map[string][]check.Hold // holds by name of the lock
}

func newHistory() *history { return &history{began: time.Now(), holds: map[string][]check.Hold{}} }

// A caller repeatedly takes one of several locks.
type caller struct {
	*history
	locker *redlock.Locker
	names  []string
	holds  time.Duration // hold time; zero for a moment
	turns  atomic.Int64
}

// work acquires and releases locks until ctx ends.
func (c *caller) work(ctx context.Context) {
	for ctx.Err() == nil {
		name := c.names[rand.IntN(len(c.names))]
		lock, err := c.locker.Acquire(ctx, name)
		if err == nil {
			c.turns.Add(1)
			c.hold(ctx, lock)
			lock.Release(context.Background())
		}
		wait(ctx, tick) // an outage is reported at once
	}
}

// hold works under the lock, and records the time until its context ended.
func (c *caller) hold(ctx context.Context, lock *redlock.Lock) {
	from, until := time.Since(c.began), time.Duration(0)
	for work := c.holds; ; work -= tick {
		// If a busy machine delays the caller, it counts as stopped at its known deadline.
		now := time.Since(c.began)
		until = max(until, now+lock.Remaining())
		wait(lock.Context(), tick)
		if work <= 0 || ctx.Err() != nil || lock.Context().Err() != nil {
			break
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history.holds[lock.Name()] = append(c.history.holds[lock.Name()], check.Hold{From: int64(from), Until: int64(min(until, time.Since(c.began)))})
}

// wait waits for d, or until the context ends.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// total returns the number of locks so far.
func (h *history) total() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, holds := range h.holds {
		n += len(holds)
	}
	return n
}

// goesOn waits until the callers have had more than n further locks.
func (h *history) goesOn(t *testing.T, n int) {
	t.Helper()
	before := h.total()
	poll(t, 2*time.Minute, func() error { // the rate depends on the machine
		if more := h.total() - before; more <= n {
			return fmt.Errorf("%d locks", more)
		}
		return nil
	})
}

// judge fails if two callers had a lock at the same time. It returns the longest time without a
// lock.
func (h *history) judge(t *testing.T) (longest time.Duration) {
	t.Helper()
	assert.NotEmpty(t, h.holds)
	for name, holds := range h.holds {
		assert.Empty(t, check.Overlaps(holds, func(h check.Hold) check.Hold { return h }), name)
		slices.SortFunc(holds, func(a, b check.Hold) int { return cmp.Compare(a.From, b.From) })
		for i, next := range holds[1:] {
			longest = max(longest, time.Duration(next.From-holds[i].Until))
		}
	}
	t.Logf("%d locks of %d names, none for longer than %v without a holder", h.total(), len(h.holds), longest)
	return longest
}
