package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/examples/internal/onservers"
	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/redlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestALateWriteIsRefused(t *testing.T) {
	onservers.Run(t, func(t *testing.T, urls []string) {
		var register Register
		e, err := play(t.Context(), urls, &register, register.Announce)
		require.NoError(t, err)
		assert.Positive(t, e.alice)
		assert.Greater(t, e.bob, e.alice)
		require.ErrorIs(t, e.lost, redlock.ErrLost)

		var stale *fence.StaleError
		require.ErrorAs(t, e.late, &stale)
		assert.Equal(t, fence.StaleError{Key: "register", Token: e.alice, Highest: e.bob}, *stale)
		assert.Equal(t, "from Bob", register.Read())

		require.NoError(t, register.Write(e.bob, "from Bob again"), "the holder may go on writing")
		assert.Equal(t, "from Bob again", register.Read())
	})
}

// TestAnUnannouncedTokenLetsALateWriteThrough, although the lock is Bob's by then.
func TestAnUnannouncedTokenLetsALateWriteThrough(t *testing.T) {
	onservers.Run(t, func(t *testing.T, urls []string) {
		var register Register
		e, err := play(t.Context(), urls, &register, func(int64) error { return nil })
		require.NoError(t, err)
		require.ErrorIs(t, e.lost, redlock.ErrLost)
		assert.NoError(t, e.late)
		assert.ErrorIs(t, register.Write(e.alice, "from Alice"), fence.ErrStale, "Bob has written since")
	})
}

func TestTheStoryIsTrue(t *testing.T) {
	onservers.Run(t, func(t *testing.T, urls []string) {
		var out strings.Builder
		require.NoError(t, story(t.Context(), &out, urls))
		assert.Contains(t, out.String(), "Alice wakes up, and writes: fence: token")
		assert.Contains(t, out.String(), `the register holds "from Bob"`)
	})
}
