package redlock

import (
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/protocol"
)

// A waiter has two nodes hint when the key changes. The hints of the node that is asked
// first are followed. Another, the backup, is asked for them as well if the wait is not
// a short one, because a node that falls silent gives no hints, and leaves no question
// unanswered either. If the backup hints and the first does not, the first is asked
// again; if it does not answer within its limit (answerLimit), another takes its place.

// A look is one question about the key, and its answer.
type look struct {
	req       protocol.Request
	contender *contender
	node      int
	at        clock.Instant
	due       clock.Instant // the answer
	measured  bool          // how long the answer took
	extended  bool          // it was waited for longer, since this process had overslept
	outcome   atomic.Uint32 // zero: none yet
	left      atomic.Int64  // of the holder's TTL in nanoseconds; zero: not known
}

// Receive implements Receiver.
func (k *look) Receive(_ int, reply protocol.Reply) {
	l := k.contender.locker
	if reply.Outcome == protocol.Granted || reply.Outcome == protocol.Refused {
		l.roundTrips[k.node].answered()
	}
	if reply.Outcome == protocol.Refused {
		k.left.Store(int64(max(reply.TTL, 0)))
	}
	k.outcome.Store(uint32(reply.Outcome))
	k.contender.parker.wake()
}

// takeLeft returns, once, what the node has answered of the holder's TTL.
func (k *look) takeLeft() time.Duration {
	if k == nil {
		return 0
	}
	return time.Duration(k.left.Swap(0))
}

// saw returns what the node has answered, zero if it has not.
func (k *look) saw() protocol.Outcome {
	if k == nil {
		return 0
	}
	return protocol.Outcome(k.outcome.Load())
}

func (k *look) hasFailed() bool { return k.saw() == protocol.Failed || k.saw() == protocol.Unknown }

// askAbout submits a look to node i.
func (c *contender) askAbout(i int, now clock.Instant) *look {
	k := &look{contender: c, node: i, at: now}
	k.req = protocol.Request{Op: protocol.OpWatch, Key: c.key, Timeout: c.settings.timeout()}
	if c.locker.nodes[i].Submit(&k.req, 0, k) != nil {
		k.outcome.Store(uint32(protocol.Failed))
	}
	return k
}

// lookOut asks the node to hint when the key changes. That it has not changed
// since the refusal is part of the question.
func (c *contender) lookOut(now clock.Instant) {
	if c.look.hasFailed() {
		c.leave()
	} else if node := c.choose(); node != c.node {
		c.unwatch()
		c.node = node
	}
	if w, ok := c.locker.nodes[c.node].(protocol.Watchable); ok && c.stop == nil {
		c.stop = w.Watch(c.key, c.hint)
	}
	c.second, c.askAgain = nil, 0
	c.backupHinted.Store(false)
	c.look = c.askAbout(c.node, now)
	c.look.due = now.Add(c.answerLimit())
}

// backupAfter is how long the hint of one node is relied on alone. Where a lock is
// passed on more often than that, another is not worth its cost; and by then the
// new holder has the lock at all nodes.
const backupAfter = 10 * time.Millisecond

// lookAtBackup asks another node to hint as well.
func (c *contender) lookAtBackup(now clock.Instant) {
	avoid := c.bad | c.locker.overdue() | c.unheld
	avoid.Add(c.node)
	i := firstOf(c.locker.nodes, c.key, avoid)
	if i < 0 {
		c.unwatchBackup()
		c.second = &look{} // it never answers
		return
	}
	if i != c.backup {
		c.unwatchBackup()
		c.backup = i
	}
	if w, ok := c.locker.nodes[i].(protocol.Watchable); ok && c.stopBackup == nil {
		c.stopBackup = w.Watch(c.key, c.hintOfBackup)
	}
	c.second = c.askAbout(i, now)
}

const farOff = clock.Instant(1<<63 - 1)

// checkHints does what is due for the hints, and returns when to do so again. A node that
// does not answer, or fails, is replaced.
func (c *contender) checkHints(now clock.Instant) (next clock.Instant) {
	saw := c.look.saw()
	switch {
	case c.look == nil:
		return farOff
	case saw == 0:
		if !c.look.extended && hasOverslept(now.Sub(c.look.due), 0) {
			c.look.due, c.look.extended = now.Add(minAnswerLimit), true
		}
		if now < c.look.due {
			return c.look.due
		}
		if c.place != nil {
			c.fail()
			return farOff
		}
		c.locker.roundTrips[c.node].overdue.Store(true)
		return c.lookElsewhere(now)
	case c.look.hasFailed():
		return c.lookElsewhere(now)
	}
	if !c.look.measured {
		c.look.measured = true
		c.locker.roundTrips[c.node].measured(now.Sub(c.look.at))
	}
	switch {
	case saw == protocol.Granted:
	case c.second == nil:
		if next = c.look.at.Add(backupAfter); now < next {
			return next
		}
		c.lookAtBackup(now)
	case c.second.saw() == protocol.Granted: // the holder does without that node, or has released the lock
		c.unheld.Add(c.backup)
		c.lookOut(now)
		return c.checkHints(now)
	case !c.backupHinted.Load():
	case c.askAgain == 0:
		c.askAgain = now.Add(hintGap)
		return c.askAgain
	case now < c.askAgain:
		return c.askAgain
	default:
		c.lookOut(now)
		return c.checkHints(now)
	}
	return farOff
}

// lookElsewhere is lookOut at another node, unless all have been tried in this rest.
func (c *contender) lookElsewhere(now clock.Instant) (next clock.Instant) {
	if c.place != nil || c.moves == len(c.locker.nodes) {
		return farOff
	}
	c.moves++
	c.lookOut(now)
	return c.checkHints(now)
}

// fail notes that the node is of no use, until the next is asked.
func (c *contender) fail() {
	c.look = &look{}
	c.look.outcome.Store(uint32(protocol.Failed))
}
