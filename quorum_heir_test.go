package redquorum_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// endsWith is a context that ends at the very moment at which a lock does.
type endsWith struct {
	context.Context
	lock *redlock.Lock
}

// Err implements context.Context.
func (c endsWith) Err() error {
	if !c.lock.Valid() {
		return context.Canceled
	}
	return nil
}

// TestQuorumP6HeirThatGivesUpLeavesNothing: it is given the lock, and its context
// has ended by then.
func TestQuorumP6HeirThatGivesUpLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, 1)
		lock, err := l.TryAcquire(t.Context(), "x")
		require.NoError(t, err)
		gaveUp := make(chan error)
		go func() {
			_, err := l.Acquire(endsWith{context.Background(), lock}, "x")
			gaveUp <- err
		}()
		synctest.Wait()
		require.NoError(t, lock.Release(t.Context()))
		require.ErrorIs(t, <-gaveUp, context.Canceled)
		time.Sleep(leg + time.Millisecond)
		assert.Zero(t, left(w))
	})
}
