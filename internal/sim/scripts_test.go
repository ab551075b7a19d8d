package sim_test

import (
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
		a.server.FailOver()
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
