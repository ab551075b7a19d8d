package integration_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/redlock"
)

func TestCancelledCallersLeaveNoKey(t *testing.T) {
	t.Parallel()
	const callers, each = 8, 125
	r := take(t, fleet.Process)
	draw := chance(t)
	holder, locker := r.locker(t), r.locker(t)
	held := acquire(t, holder, "held")
	votes(t, held, nodes)

	// Moments are drawn from a span in which about every second cycle ends by
	// itself, whatever this machine's speed.
	warm := cycles(t, locker, "warm")
	slices.Sort(warm)
	c := canceller{locker: locker, span: 2 * warm[len(warm)/2]}

	var wg sync.WaitGroup
	for who := range callers {
		wg.Go(func() {
			rng := draw(who)
			for n := range each {
				var err error
				switch name := fmt.Sprintf("caller %d, try %d", who, n); n % 5 {
				case 0, 1:
					err = c.anywhere(rng, name)
				case 2:
					err = c.anywhere(rng, fmt.Sprint("shared ", rng.IntN(2)))
				case 3:
					err = c.waiting(rng)
				case 4:
					err = c.releasing(rng, name)
				}
				if !assert.NoError(t, err) {
					return
				}
			}
		})
	}
	wg.Wait()
	require.False(t, t.Failed())
	require.NoError(t, held.Release(context.Background()))
	// A second is promised; the rest is for a busy machine.
	took := r.settle(t, 2)
	assert.Less(t, took, time.Second+slack)
	t.Logf("no key %v after the last; cancelled in acquiring %d times, in releasing %d times, too late %d times",
		took.Round(time.Millisecond), c.acquiring, c.released, c.late)
}

// A canceller ends contexts at random moments.
type canceller struct {
	locker *redlock.Locker
	span   time.Duration

	mu                        sync.Mutex
	acquiring, released, late int
}

// context returns one that ends within the span, and a function that ends it at once.
func (c *canceller) context(rng *rand.Rand, span time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	t := time.AfterFunc(time.Duration(rng.Int64N(int64(span))), cancel)
	return ctx, func() { t.Stop(); cancel() }
}

// count counts how a call ended, which must be well or by its context.
func (c *canceller) count(err error, in *int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.late++
	case errors.Is(err, context.Canceled) && !errors.Is(err, redlock.ErrHeld) && !errors.Is(err, redlock.ErrNoQuorum):
		*in++
	default:
		return err
	}
	return nil
}

// anywhere ends the context while a lock is acquired or released, or neither.
func (c *canceller) anywhere(rng *rand.Rand, name string) error {
	ctx, stop := c.context(rng, c.span)
	defer stop()
	lock, err := c.locker.Acquire(ctx, name)
	if err != nil {
		return c.count(err, &c.acquiring)
	}
	return c.count(lock.Release(ctx), &c.released)
}

// waiting ends the context while the lock is waited for, which is never free.
func (c *canceller) waiting(rng *rand.Rand) error {
	ctx, stop := c.context(rng, 20*time.Millisecond)
	defer stop()
	lock, err := c.locker.Acquire(ctx, "held")
	if err == nil {
		return fmt.Errorf("acquired a lock that another holds: %s", lock.Value())
	}
	return c.count(err, &c.acquiring)
}

// releasing ends the context of the release alone.
func (c *canceller) releasing(rng *rand.Rand, name string) error {
	lock, err := c.locker.Acquire(context.Background(), name)
	if err != nil {
		return err
	}
	ctx, stop := c.context(rng, c.span/2)
	defer stop()
	return c.count(lock.Release(ctx), &c.released)
}
