package pool

import (
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// maxKept bounds the releases that a node owes. Beyond it keys are left to
// expire.
const maxKept = 1 << 14

// kept are releases that did not reach their node, or whose answer did not
// come back. Their callers have had a reply; the node still owes the deletion,
// until the key must have expired by itself. They are sent first on the next
// connection.
type kept struct {
	owed []owed
}

type owed struct {
	call
	until time.Time
}

// keep keeps a release that may matter, and ignores all else.
func (k *kept) keep(r *redlock.Request, e *encoded) {
	if r.Op != redlock.OpRelease || !r.MayHold {
		return
	}
	now := time.Now()
	if len(k.owed) == maxKept {
		k.expire(now)
	}
	if len(k.owed) < maxKept {
		k.owed = append(k.owed, owed{call{request: r, encoded: e, to: nobody{}}, now.Add(r.TTL)})
	}
}

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
//
// One whose time is over is made too: a SET that stood in a hung server's
// buffer begins its TTL only when it is run.
func (k *kept) take() []call {
	calls := make([]call, len(k.owed))
	for i, o := range k.owed {
		calls[i] = o.call
	}
	k.owed = nil
	return calls
}

// nobody is the receiver of a reply that nobody waits for.
type nobody struct{}

func (nobody) Receive(int, redlock.Reply) {}
