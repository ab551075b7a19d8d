package redquorum_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redquorum/redquorum/redlock"
)

// A tickets numbers the places that one process takes in queues. Their IDs are
// drawn anew in each run, but queues and the fate of messages go by them, so with the
// IDs themselves no seed would replay.
type tickets struct {
	client  int
	closed  atomic.Bool
	mu      sync.Mutex
	numbers map[string]string
}

func (t *tickets) number(id string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, ok := t.numbers[id]
	if !ok {
		n = fmt.Sprint(t.client, "-", len(t.numbers)+1)
		t.numbers[id] = n
	}
	return n
}

// key returns the key of an OpWatch or Watch with the ticket's number, if it is
// one's.
func (t *tickets) key(key string) string {
	i := strings.LastIndexByte(key, ':')
	if i < 0 || !isQueue(key) {
		return key
	}
	return key[:i+1] + t.number(key[i+1:])
}

func isQueue(key string) bool { return strings.Contains(key, "redlock:queue:") }

// A numbering is a node that is told the numbers. It takes no questions once the
// Locker is being closed: waiters may ask another while nodes close one by one.
type numbering struct {
	redlock.Watchable
	tickets *tickets
}

// numbered makes the nodes of a client such.
func (t *tickets) numbered(nodes []redlock.Node) []redlock.Node {
	for i, n := range nodes {
		nodes[i] = numbering{n.(redlock.Watchable), t}
	}
	return nodes
}

// Submit implements redlock.Node.
func (n numbering) Submit(req *redlock.Request, slot int, to redlock.Receiver) error {
	if n.tickets.closed.Load() && (req.Op == redlock.OpWatch || req.Op == redlock.OpQueue) {
		return redlock.ErrClosed
	}
	switch req.Op {
	case redlock.OpWatch:
		again := *req
		again.Key = n.tickets.key(req.Key)
		req = &again
	case redlock.OpQueue:
		again, ticket := *req, *req.Ticket
		ticket.ID = n.tickets.number(ticket.ID)
		again.Ticket = &ticket
		req = &again
	}
	return n.Watchable.Submit(req, slot, to)
}

// Watch implements redlock.Watchable.
func (n numbering) Watch(key string, hint func()) (stop func()) {
	return n.Watchable.Watch(n.tickets.key(key), hint)
}
