package sim_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
)

// stand asks for a ticket's place, and says whether it is the first.
func (a *asker) stand(t *testing.T, ticket protocol.Ticket) bool {
	t.Helper()
	require.NoError(t, a.node.Submit(&protocol.Request{Op: protocol.OpQueue, Key: "q", Ticket: &ticket}, 0, a))
	reply := <-a.got
	require.NoError(t, reply.Err)
	if reply.Outcome != protocol.Granted {
		assert.Equal(t, protocol.Refused, reply.Outcome)
		assert.Zero(t, reply.TTL)
	}
	return reply.Outcome == protocol.Granted
}

func waiter(id string, waited time.Duration) protocol.Ticket {
	return protocol.Ticket{ID: id, Waited: waited, Life: time.Second}
}

func leaver(id string) protocol.Ticket { return protocol.Ticket{ID: id, Leave: true} }

// TestAQueueIsInOrderOfArrival, by how long each had waited when it was first
// seen, and then by name.
func TestAQueueIsInOrderOfArrival(t *testing.T) {
	ask(t, func(t *testing.T, a *asker) {
		assert.True(t, a.stand(t, waiter("b", 500*time.Millisecond)))
		assert.False(t, a.stand(t, waiter("c", 0)))
		assert.True(t, a.stand(t, waiter("a", 500*time.Millisecond+4*leg)), "it had waited as long")
		assert.False(t, a.stand(t, waiter("b", time.Hour)), "what it says later does not count")
		assert.False(t, a.stand(t, waiter("d", 10*leg)))
		assert.True(t, a.stand(t, leaver("a")))
		assert.True(t, a.stand(t, waiter("b", 0)))
		assert.True(t, a.stand(t, leaver("b")))
		assert.True(t, a.stand(t, leaver("d")))
		assert.True(t, a.stand(t, waiter("c", 0)))
		assert.True(t, a.stand(t, leaver("c")))
		for key := range a.server.Keys() {
			assert.True(t, strings.HasPrefix(key, "q:"), "calls are left, and not %q", key)
		}
	})
}

// TestATicketIsDroppedWhenItIsInTheWay and was not seen for its life, which is
// reckoned by the server's clock, in milliseconds.
func TestATicketIsDroppedWhenItIsInTheWay(t *testing.T) {
	for name, row := range map[string]struct {
		after   time.Duration // of the server's clock
		dropped bool
	}{
		"not yet": {999 * time.Millisecond, false},
		"over":    {time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			ask(t, func(t *testing.T, a *asker) {
				a.server.SetRate(0.5)
				assert.True(t, a.stand(t, waiter("a", 0))) // seen a leg ago
				time.Sleep(2*row.after - 2*leg)
				assert.Equal(t, row.dropped, a.stand(t, waiter("b", 0)))
				assert.Equal(t, !row.dropped, a.stand(t, waiter("a", 0)))
			})
		})
	}
}

// TestATicketInNobodysWayKeepsItsPlace, however long it was not seen.
func TestATicketInNobodysWayKeepsItsPlace(t *testing.T) {
	ask(t, func(t *testing.T, a *asker) {
		assert.True(t, a.stand(t, waiter("a", 0)))
		assert.False(t, a.stand(t, waiter("c", 0)))
		for range 5 {
			time.Sleep(time.Second / 2)
			assert.True(t, a.stand(t, waiter("a", 0)))
			assert.False(t, a.stand(t, waiter("b", 0)))
		}
		assert.False(t, a.stand(t, waiter("c", 0)), "the first is alive")
		assert.True(t, a.stand(t, leaver("a")))
		assert.False(t, a.stand(t, waiter("b", 0)))
		assert.True(t, a.stand(t, waiter("c", 0)))
	})
}

// TestAQueueIsMemory like keys: it ends with them, or comes back as it was.
func TestAQueueIsMemory(t *testing.T) {
	ask(t, func(t *testing.T, a *asker) {
		queue := func() {
			require.True(t, a.stand(t, waiter("a", 0)))
			require.False(t, a.stand(t, waiter("b", 0)))
		}
		queue()
		a.server.Save()
		a.server.Crash()
		a.server.Restart()
		assert.False(t, a.stand(t, waiter("b", 0)), "kept")
		a.stand(t, leaver("a"))
		a.server.Load()
		assert.False(t, a.stand(t, waiter("b", 0)), "as it was saved")
		a.server.Flush()
		assert.True(t, a.stand(t, waiter("b", 0)), "forgotten")
		a.stand(t, leaver("b"))

		queue()
		assert.False(t, a.stand(t, protocol.Ticket{ID: "c", Life: leg}))
		time.Sleep(3*time.Second - 3*leg - 1)
		assert.Len(t, a.server.Keys(), 1)
		time.Sleep(time.Nanosecond)
		assert.Empty(t, a.server.Keys(), "it stays for three of its tickets' longest life")
	})
}

// TestAQueueIsNotAString, nor the other way round.
func TestAQueueIsNotAString(t *testing.T) {
	ask(t, func(t *testing.T, a *asker) {
		for _, ticket := range []protocol.Ticket{waiter("a", 0), leaver("a")} {
			a.server.Set("q", "a", protocol.NoTTL)
			require.NoError(t, a.node.Submit(&protocol.Request{Op: protocol.OpQueue, Key: "q", Ticket: &ticket}, 0, a))
			assert.ErrorIs(t, (<-a.got).Err, protocol.ErrWrongType)
		}
		a.server.Del("q")
		require.True(t, a.stand(t, waiter("a", 0)))
		require.NoError(t, a.node.Submit(&protocol.Request{Op: protocol.OpInspect, Key: "q"}, 0, a))
		assert.ErrorIs(t, (<-a.got).Err, protocol.ErrWrongType)
	})
}

// TestATicketIsReadWhenItIsSubmitted: its owner may change it once it has a
// reply, even if the server comes to it later.
func TestATicketIsReadWhenItIsSubmitted(t *testing.T) {
	ask(t, func(t *testing.T, a *asker) {
		a.server.Hang()
		ticket := waiter("a", 0)
		require.NoError(t, a.node.Submit(&protocol.Request{Op: protocol.OpQueue, Key: "q", Ticket: &ticket}, 0, a))
		assert.Equal(t, protocol.Unknown, (<-a.got).Outcome)
		ticket.ID = "b"
		a.server.Resume()
		assert.False(t, a.stand(t, waiter("c", 0)))
		a.stand(t, leaver("a"))
		assert.True(t, a.stand(t, waiter("c", 0)))
	})
}
