package ticket

import (
	"time"

	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
)

// A Count asks how many wait for a key, again and again, without a place of its own. It is safe for
// concurrent use.
type Count struct {
	req  protocol.Request
	told func(others int)
}

// NewCount returns a Count that tells each answer.
func NewCount(key string, timeout time.Duration, told func(others int)) *Count {
	return &Count{protocol.Request{
		Op: protocol.OpQueue, Key: keys.Queue.Of(key), Timeout: timeout,
		Ticket: &protocol.Ticket{Leave: true, Life: Life},
	}, told}
}

// Timeout is that of each question.
func (c *Count) Timeout() time.Duration { return c.req.Timeout }

// Ask asks node n. If that does not answer, nothing is told.
func (c *Count) Ask(n protocol.Node) { _ = n.Submit(&c.req, 0, c) }

// Receive implements protocol.Receiver.
func (c *Count) Receive(_ int, reply protocol.Reply) {
	if reply.Outcome == protocol.Granted {
		c.told(reply.Others)
	}
}
