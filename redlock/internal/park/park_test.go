package park

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/clock"
)

// TestAWakeAfterTheLookIsNotLost, however often one wakes before the other sleeps.
func TestAWakeAfterTheLookIsNotLost(t *testing.T) {
	t.Parallel()
	p := (&Lot{Clock: clock.System}).Get()
	var mu sync.Mutex
	facts, seen := 0, 0
	const changes = 10_000
	go func() {
		for range changes {
			mu.Lock()
			facts++
			mu.Unlock()
			p.Wake()
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for seen < changes && ctx.Err() == nil {
		p.Sleep(ctx, nil)
		mu.Lock()
		seen = facts
		mu.Unlock()
	}
	assert.Equal(t, changes, seen)
}

// TestWhatEndsASleep: each of four things, and a later WakeAfter takes the place of the one before.
func TestWhatEndsASleep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lot := Lot{Clock: clock.System}
		p, began := lot.Get(), time.Now()
		p.WakeAfter(time.Hour)
		p.WakeAfter(time.Second)
		p.Sleep(t.Context(), nil)
		assert.Equal(t, time.Second, time.Since(began))
		p.WakeAfter(time.Second)
		p.Wake()
		p.Sleep(t.Context(), nil)
		assert.Equal(t, time.Second, time.Since(began), "the signal was there")
		done := make(chan struct{})
		close(done)
		p.Sleep(t.Context(), done)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		p.Sleep(ctx, nil)
		assert.Equal(t, time.Second, time.Since(began))
	})
}

// TestAParkerThatWasUsedIsAsNew: neither the signal nor the timer of the one before wakes the next.
func TestAParkerThatWasUsedIsAsNew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lot := Lot{Clock: clock.System}
		for range 10 { // a pool may lose some
			p := lot.Get()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			began := time.Now()
			p.Sleep(ctx, nil)
			cancel()
			assert.Equal(t, time.Minute, time.Since(began))
			p.Wake()
			p.WakeAfter(time.Second)
			lot.Put(p)
		}
	})
}
