package schedules

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock"
)

// ticketNumbers numbers the places that one process takes in queues. Their IDs are drawn anew
// in each run, but the order of queues and the fate of messages depend on them, so with the IDs
// themselves no seed would replay.
type ticketNumbers struct {
	client  int
	closed  atomic.Bool
	mu      sync.Mutex
	numbers map[string]string
}

func (t *ticketNumbers) number(id string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, ok := t.numbers[id]
	if !ok {
		n = fmt.Sprint(t.client, "-", len(t.numbers)+1)
		t.numbers[id] = n
	}
	return n
}

// key returns the key of an OpWatch or Watch, with the ticket's number if it is a ticket's.
func (t *ticketNumbers) key(key string) string {
	i := strings.LastIndexByte(key, ':')
	if i < 0 || !keys.Queue.Has(key) {
		return key
	}
	return key[:i+1] + t.number(key[i+1:])
}

// A numberedNode is a node to which tickets go by their numbers. It refuses OpWatch and OpQueue
// once the Locker is being closed: waiters may ask another node while nodes close one by one.
type numberedNode struct {
	protocol.Watchable
	tickets *ticketNumbers
}

// numbered returns the nodes of a client, to which tickets go by their numbers.
func (t *ticketNumbers) numbered(nodes []protocol.Node) []protocol.Node {
	for i, n := range nodes {
		nodes[i] = numberedNode{n.(protocol.Watchable), t}
	}
	return nodes
}

// Submit implements protocol.Node.
func (n numberedNode) Submit(req *protocol.Request, slot int, to protocol.Receiver) error {
	if n.tickets.closed.Load() && (req.Op == protocol.OpWatch || req.Op == protocol.OpQueue) {
		return redlock.ErrClosed
	}
	switch req.Op {
	case protocol.OpWatch:
		again := *req
		again.Key = n.tickets.key(req.Key)
		req = &again
	case protocol.OpQueue:
		again, ticket := *req, *req.Ticket
		ticket.ID = n.tickets.number(ticket.ID)
		again.Ticket = &ticket
		req = &again
	}
	return n.Watchable.Submit(req, slot, to)
}

// Watch implements protocol.Watchable.
func (n numberedNode) Watch(key string, hint func(key string)) (stop func()) {
	return n.Watchable.Watch(n.tickets.key(key), hint)
}
