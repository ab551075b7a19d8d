package serve

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

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

// TestARestartInAnOutage: the next server asks for each lock until its TTL is over. One that is ended
// meanwhile leaves to the one after it what it has not adopted.
func TestARestartInAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		servers, first := start(t, Config{})
		c := open(t, first, `{"ttl_ms":60000}`)
		id := c.take(`{"name":"a"}`).lease.Lease
		of := first.table.sessions[c.session] // as of a request that is under way
		left := first.Leave()
		assert.Equal(t, errEnding, of.end(), "it is another's now")

		end := servers.Outage(2)
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(2*time.Second, stop)
		next := New(servers.Locker(), Config{})
		kept, lost := next.Resume(ctx, left)
		assert.Equal(t, []int{0, 1}, []int{kept, lost})
		left = next.Leave()

		time.AfterFunc(2*time.Second, end)
		last := New(servers.Locker(), Config{})
		kept, lost = last.Resume(t.Context(), left)
		assert.Equal(t, []int{1, 0}, []int{kept, lost})
		c.server = last
		assert.True(t, c.ask("GET", "/v1/locks/"+id, "").lease.Held)

		left = last.Leave()
		servers.Outage(2)
		over := New(servers.Locker(), Config{})
		began := time.Now()
		kept, lost = over.Resume(t.Context(), left)
		assert.Equal(t, []int{0, 1}, []int{kept, lost})
		assert.InDelta(t, 10*time.Second, time.Since(began), float64(5*time.Second), "the TTL, and what a try takes")
	})
}

// TestALimitedLockOutlivesTwoRestarts, and is held for no longer than it was allowed to be.
func TestALimitedLockOutlivesTwoRestarts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		servers, s := start(t, Config{})
		c := open(t, s, `{"ttl_ms":3600000}`)
		c.take(`{"name":"a","max_hold_ms":60000}`)
		time.Sleep(50 * time.Second)
		left := s.Leave()
		s = New(servers.Locker(), Config{})
		kept, _ := s.Resume(t.Context(), left)
		require.Equal(t, 1, kept)
		time.Sleep(5 * time.Second)
		assert.InDelta(t, 5_000, s.Leave().Sessions[0].Leases[0].Hold, 100)
	})
}
