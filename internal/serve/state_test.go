package serve

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWhatAServerLeaves: the next one keeps what clients were told, also if it ends at once, and adopts
// no more than it has room for.
func TestWhatAServerLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		servers, first := start(t, Config{})
		c := &client{t: t, server: first}
		lone := c.take(`{"name":"a"}`)
		c.take(`{"name":"b"}`)
		left := first.Leave()
		require.NoError(t, left.Check())

		small := New(servers.Locker(), Config{Limits: Limits{Total: 1}})
		kept, lost := small.Resume(t.Context(), left)
		assert.Equal(t, []int{1, 1}, []int{kept, lost})
		over, cancel := context.WithCancel(t.Context())
		cancel()
		released, expiring := small.Close(over)
		assert.Equal(t, []int{0, 1}, []int{released, expiring}, "its client was told that it has it")

		next := New(servers.Locker(), Config{})
		kept, lost = next.Resume(t.Context(), left)
		assert.Equal(t, []int{2, 0}, []int{kept, lost})
		of := next.table.sessions[lone.lease.Session]
		require.NotNil(t, of)
		assert.True(t, of.isLone, "it ends with its lock")
		next.Close(over)
	})
}
