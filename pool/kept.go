package pool

import (
	"time"

	"github.com/redquorum/redquorum/redlock"
)

const (
	// maxKept bounds the releases that a node owes. Beyond it keys are left to
	// expire.
	maxKept = 1 << 14
	// retryKept is how soon a release that the server refused is tried again on
	// the same connection.
	retryKept = 250 * time.Millisecond
)

// kept are releases that did not reach their node, were not answered, or were
// answered with an error. Their callers have had a reply; the node still owes
// the deletion, until the key must have expired by itself. They are sent first
// on the next connection, and again on a connection that lives.
type kept struct {
	owed []owed // the oldest first
}

type owed struct {
	call
	until time.Time
}

// keep keeps a release that may matter, and ignores all else.
func (k *kept) keep(c call) {
	if !c.request.Releases() || !c.request.MayHold {
		return
	}
	now := time.Now()
	until := now.Add(c.request.TTL)
	if before, again := c.to.(nobody); again {
		until = before.until
	}
	if len(k.owed) == maxKept && now.After(k.owed[0].until) {
		k.expire(now)
	}
	if len(k.owed) < maxKept {
		k.owed = append(k.owed, owed{call{request: c.request, encoded: c.encoded, to: nobody{until}}, until})
	}
}

// expire drops the releases whose keys have gone by themselves.
func (k *kept) expire(now time.Time) {
	alive := k.owed[:0]
	for _, o := range k.owed {
		if now.Before(o.until) {
			alive = append(alive, o)
		}
	}
	clear(k.owed[len(alive):])
	k.owed = alive
}

// take empties k and returns the calls that are to be made.
func (k *kept) take() []call {
	calls := make([]call, len(k.owed))
	for i, o := range k.owed {
		calls[i] = o.call
	}
	k.owed = nil
	return calls
}

// nobody is the receiver of a reply that nobody waits for: that to a kept
// release, which is of use until then.
type nobody struct{ until time.Time }

func (nobody) Receive(int, redlock.Reply) {}

// keep remembers a call that is a release and may not have been run, and sees
// to it that it is tried again.
func (n *node) keep(c call) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.kept.keep(c)
	if len(n.kept.owed) > 0 && n.retry == nil {
		n.retry = time.AfterFunc(retryKept, n.retryNow)
	}
}

// retryNow makes the kept releases on the connection that there is. Without
// one, the next begins with them anyway.
func (n *node) retryNow() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.retry = nil
	if n.why == nil && n.ctx.Err() == nil {
		n.kept.expire(time.Now())
		n.makeUp()
	}
}

// makeUp queues the kept releases, before all else. mu is held.
func (n *node) makeUp() {
	owed := n.kept.take()
	if len(owed) == 0 {
		return
	}
	n.out.Add(int64(len(owed)))
	n.queue = append(owed, n.queue...)
	n.rouse()
}
