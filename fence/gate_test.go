package fence_test

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/fence"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStaleTokenDoesNotWrite(t *testing.T) {
	t.Parallel()
	var g fence.Gate
	require.NoError(t, g.Do("k", 34, nil))
	err := g.Do("k", 33, func() error { t.Error("written"); return nil })
	require.ErrorIs(t, err, fence.ErrStale)
	var stale *fence.StaleError
	require.ErrorAs(t, err, &stale)
	assert.Equal(t, fence.StaleError{Key: "k", Token: 33, Highest: 34}, *stale)
	assert.Contains(t, err.Error(), "33")
	assert.Contains(t, err.Error(), "34")
}

// TestAnnouncementRejectsLateWriters: it does so from the grant on. Without an announcement late
// writers pass until the holder's first write.
func TestAnnouncementRejectsLateWriters(t *testing.T) {
	t.Parallel()
	var g fence.Gate
	const late, granted = 33, 34
	write := func() error { return nil }
	require.NoError(t, g.Do("k", late, write), "before it")
	for range 2 {
		require.NoError(t, g.Announce("k", granted))
	}
	require.ErrorIs(t, g.Do("k", late, write), fence.ErrStale)
	require.ErrorIs(t, g.Announce("k", late), fence.ErrStale)
	require.ErrorIs(t, g.Announce("k", 0), fence.ErrToken)
	for range 2 {
		require.NoError(t, g.Do("k", granted, write), "the holder may write again")
	}
}

func TestKeysAreIndependent(t *testing.T) {
	t.Parallel()
	var g fence.Gate
	require.NoError(t, g.Do("a", 2, nil))
	require.NoError(t, g.Do("b", 1, nil))
	require.NoError(t, g.Do("a", 2, func() error {
		return g.Do("b", 1, nil) // does not wait for the write to a
	}))
}

func TestInvalidTokenDoesNotWrite(t *testing.T) {
	t.Parallel()
	var g fence.Gate
	for _, token := range []int64{0, -1, fence.MaxToken + 1} {
		err := g.Do("k", token, func() error { t.Error("written"); return nil })
		require.ErrorIs(t, err, fence.ErrToken, "%d", token)
		require.NotErrorIs(t, err, fence.ErrStale)
	}
	require.NoError(t, g.Do("k", 1, nil), "a number that is no token was seen as one")
	require.NoError(t, g.Do("k", fence.MaxToken, nil))
}

// A failed write may have changed something, and the holder of a lower token is late in either
// case.
func TestTokenIsSeenEvenIfTheWriteFails(t *testing.T) {
	t.Parallel()
	var g fence.Gate
	disk := errors.New("disk full")
	require.ErrorIs(t, g.Do("k", 2, func() error { return disk }), disk)
	require.ErrorIs(t, g.Do("k", 1, nil), fence.ErrStale)
	require.Panics(t, func() { _ = g.Do("k", 3, func() error { panic("write") }) })
	require.ErrorIs(t, g.Do("k", 2, nil), fence.ErrStale)
	require.NoError(t, g.Do("k", 3, nil), "the panic has left the key locked")
}

// If check and write were two steps, a later writer could write in between.
func TestCheckAndWriteAreOneStep(t *testing.T) {
	t.Parallel()
	var (
		g       fence.Gate
		next    atomic.Int64
		wg      sync.WaitGroup
		history []int64
	)
	for range 8 {
		wg.Go(func() {
			for range 500 {
				token := next.Add(1)
				runtime.Gosched() // let other writers overtake
				err := g.Do("k", token, func() error {
					runtime.Gosched()
					history = append(history, token)
					return nil
				})
				if err != nil {
					assert.ErrorIs(t, err, fence.ErrStale)
				}
			}
		})
	}
	wg.Wait()
	assert.True(t, slices.IsSorted(history), "the history goes back: %v", history)
}
