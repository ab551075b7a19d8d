package pool

import (
	"time"

	"github.com/redquorum/redquorum/internal/protocol"
)

const (
	// maxPending bounds the pending releases of a node. Beyond it keys are left to expire.
	maxPending = 1 << 14
	// retryInterval is how soon a release that the server refused is sent again on the same
	// connection.
	retryInterval = 250 * time.Millisecond
)

// Pending releases are retried until confirmed. They did not reach their node, were not answered,
// or were answered with an error, and their callers have had that reply. The node sends them first
// on the next connection, and every retryInterval on a connection that lasts, until the key must
// have expired.
type pendingReleases struct {
	list []pendingRelease // the oldest first
}

type pendingRelease struct {
	call
	until time.Time // the key has expired then
}

// add adds a call if it is a release that may matter.
func (p *pendingReleases) add(k call) {
	if !k.request.Op.Releases() || !k.request.MayHold {
		return
	}
	now := time.Now()
	until := now.Add(k.request.TTL)
	if r, again := k.to.(retry); again {
		until = r.until
	}
	if len(p.list) == maxPending && now.After(p.list[0].until) {
		p.dropExpired(now)
	}
	if len(p.list) < maxPending {
		again := call{request: k.request, encoded: k.encoded, to: retry{until}}
		p.list = append(p.list, pendingRelease{again, until})
	}
}

// dropExpired drops the releases whose keys have expired.
func (p *pendingReleases) dropExpired(now time.Time) {
	alive := p.list[:0]
	for _, r := range p.list {
		if now.Before(r.until) {
			alive = append(alive, r)
		}
	}
	clear(p.list[len(alive):])
	p.list = alive
}

// take empties p and returns its calls.
func (p *pendingReleases) take() []call {
	calls := make([]call, len(p.list))
	for i, r := range p.list {
		calls[i] = r.call
	}
	p.list = nil
	return calls
}

// A retry is the receiver of a release that is sent again. The reply is dropped, because the
// caller has had one.
type retry struct{ until time.Time }

func (retry) Receive(int, protocol.Reply) {}

// retryLater has a call sent again if it is a release that may matter and may not have been run.
func (n *node) retryLater(k call) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pending.add(k)
	if len(n.pending.list) > 0 && n.retryTimer == nil {
		n.retryTimer = time.AfterFunc(retryInterval, n.retryNow)
	}
}

// retryNow sends the pending releases on the connection that there is. If there is none, the next
// connection begins with them anyway.
func (n *node) retryNow() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.retryTimer = nil
	if n.offline == nil && n.ctx.Err() == nil {
		n.pending.dropExpired(time.Now())
		n.sendPending()
	}
}

// sendPending queues the pending releases before all else. The caller holds mu.
func (n *node) sendPending() {
	releases := n.pending.take()
	if len(releases) == 0 {
		return
	}
	n.outstanding.Add(int64(len(releases)))
	n.queue = append(releases, n.queue...)
	n.wakeWriter()
}
