package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlock/internal/core"
)

// readers returns the house with terms of readers.
func (h *house) readers() *house {
	r := *h
	r.terms.Shared = true
	return &r
}

func TestReadersHoldTogetherAndEndOneByOne(t *testing.T) {
	t.Parallel()
	for _, guarded := range []bool{false, true} {
		urls := servers(t, 3)
		h, other := newHouse(t, urls, guarded), newHouse(t, urls, guarded)
		r := h.readers()
		first, _, err := r.get(t.Context(), "job", false)
		require.NoError(t, err)
		second, _, err := r.get(t.Context(), "job", false)
		require.NoError(t, err)
		assert.Same(t, first.Claim, second.Claim, "readers of one process have one claim")
		third, _, err := other.readers().get(t.Context(), "job", false)
		require.NoError(t, err)
		for _, w := range []*house{h, other} {
			_, f, err := w.get(t.Context(), "job", true)
			require.NoError(t, err)
			require.NotNil(t, f, "a writer beside readers")
			assert.Equal(t, core.ByUs, f.Kind)
		}
		ends := contextOf(second)
		_, f := first.Release(t.Context())
		assert.Nil(t, f)
		assert.NoError(t, ends.Err(), "the end of one reader is not that of another")
		_, f = second.Extend(t.Context())
		assert.Nil(t, f)
		_, f = second.Release(t.Context())
		assert.Nil(t, f)
		assert.Error(t, ends.Err())
		_, f = third.Release(t.Context())
		assert.Nil(t, f)
		writer, _, err := h.get(t.Context(), "job", false)
		require.NoError(t, err)
		_, f = writer.Release(t.Context())
		assert.Nil(t, f)
	}
}

func TestAWriterBecomesAReader(t *testing.T) {
	t.Parallel()
	urls := servers(t, 3)
	h, other := newHouse(t, urls, false), newHouse(t, urls, false)
	lock, _, err := h.get(t.Context(), "job", false)
	require.NoError(t, err)
	ends := contextOf(lock)
	waits := make(chan error, 1)
	go func() { // of the same process
		r, _, err := h.readers().get(context.Background(), "job", false)
		if err == nil {
			r.Release(context.Background())
		}
		waits <- err
	}()
	votes, f := lock.Downgrade(t.Context())
	require.Nil(t, f)
	assert.GreaterOrEqual(t, votes, 2)
	assert.NoError(t, <-waits)
	reader, _, err := other.readers().get(t.Context(), "job", false)
	require.NoError(t, err)
	_, f, err = other.get(t.Context(), "job", true)
	require.NoError(t, err)
	assert.NotNil(t, f, "a writer beside readers")
	assert.NoError(t, ends.Err())
	_, f = lock.Release(t.Context())
	assert.Nil(t, f)
	_, f = reader.Release(t.Context())
	assert.Nil(t, f)
	_, f = lock.Downgrade(t.Context())
	require.NotNil(t, f)
	assert.Equal(t, core.NotHeld, f.Kind)
}

// TestAWriterGetsInBetweenReaders: readers of one process come all the time, and a writer of another waits.
func TestAWriterGetsInBetweenReaders(t *testing.T) {
	t.Parallel()
	urls := servers(t, 3)
	h, other := newHouse(t, urls, false), newHouse(t, urls, false)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	for range 3 {
		go func() {
			defer func() { done <- struct{}{} }()
			for ctx.Err() == nil {
				if lock, _, err := h.readers().get(ctx, "job", false); err == nil && lock.Hold != nil {
					time.Sleep(20 * time.Millisecond)
					lock.Release(context.Background())
				}
			}
		}()
	}
	lock, f, err := other.get(t.Context(), "job", false)
	stop()
	require.NoError(t, err)
	require.Nil(t, f)
	lock.Release(t.Context())
	for range 3 {
		<-done
	}
}
