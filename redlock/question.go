package redlock

import (
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/protocol"
	"github.com/redquorum/redquorum/redlock/internal/ballot"
)

// A waiter has two nodes hint when the key changes. The hints of the node that is asked
// first are followed. Another, the backup, is asked for them as well if the wait is not
// a short one, because a node that falls silent gives no hints, and leaves no question
// unanswered either. If the backup hints and the first does not, the first is asked
// again; if it does not answer within its limit (answerLimit), another takes its place.

// A question asks a node whether the key is there, and keeps the answer.
type question struct {
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
func (q *question) Receive(_ int, reply protocol.Reply) {
	g := q.contender.group
	if reply.Outcome == protocol.Granted || reply.Outcome == protocol.Refused {
		g.voters.Answered(q.node)
	}
	if reply.Outcome == protocol.Refused {
		q.left.Store(int64(max(reply.TTL, 0)))
	}
	q.outcome.Store(uint32(reply.Outcome))
	q.contender.parker.Wake()
}

// takeLeft returns, once, what the node has answered of the holder's TTL.
func (q *question) takeLeft() time.Duration {
	if q == nil {
		return 0
	}
	return time.Duration(q.left.Swap(0))
}

// saw returns what the node has answered, zero if it has not.
func (q *question) saw() protocol.Outcome {
	if q == nil {
		return 0
	}
	return protocol.Outcome(q.outcome.Load())
}

func (q *question) hasFailed() bool { return q.saw() == protocol.Failed || q.saw() == protocol.Unknown }

// askAbout submits a question to node i.
func (c *contender) askAbout(i int, now clock.Instant) *question {
	q := &question{contender: c, node: i, at: now}
	q.req = protocol.Request{Op: protocol.OpWatch, Key: c.key, Timeout: c.settings.timeout()}
	if c.group.nodes[i].Submit(&q.req, 0, q) != nil {
		q.outcome.Store(uint32(protocol.Failed))
	}
	return q
}

// askForHints asks the node to hint when the key changes. Its answer tells whether the key has gone
// since the refusal.
func (c *contender) askForHints(now clock.Instant) {
	if c.place == nil { // a place is kept at its node
		if c.question.hasFailed() {
			c.leave()
		} else if node := c.chooseFirst(&c.avoid); node != c.node {
			c.unwatch()
			c.node = node
		}
	}
	if i := c.chooseLookout(); i != c.lookout || c.stop == nil {
		c.unwatchLock()
		c.lookout = i
		if w, ok := c.group.nodes[i].(protocol.Watchable); ok {
			c.stop = w.Watch(c.key, c.hint)
		}
	}
	c.second, c.askAgain = nil, 0
	c.backupHinted.Store(false)
	c.question = c.askAbout(c.lookout, now)
	c.question.due = now.Add(c.answerLimit())
}

// chooseLookout returns the node that is to hint. The node that keeps the caller's place may
// lack the key: it is not left for that, because the order would be lost.
func (c *contender) chooseLookout() int {
	if c.place == nil {
		return c.node
	}
	if avoid := c.notHolding | c.group.voters.Overdue(); avoid.Has(c.node) {
		if i := firstOf(c.group.nodes, c.key, avoid); i >= 0 {
			return i
		}
		c.notHolding = 0
	}
	return c.node
}

// backupAfter is how long the hint of one node is relied on alone. Where a lock is
// passed on more often than that, another is not worth its cost; and by then the
// new holder has the lock at all nodes.
const backupAfter = 10 * time.Millisecond

// askBackup asks another node to hint as well.
func (c *contender) askBackup(now clock.Instant) {
	avoid := c.avoid | c.group.voters.Overdue() | c.notHolding
	avoid.Add(c.lookout)
	i := firstOf(c.group.nodes, c.key, avoid)
	if i < 0 {
		c.unwatchBackup()
		c.second = &question{} // it never answers
		return
	}
	if i != c.backup {
		c.unwatchBackup()
		c.backup = i
	}
	if w, ok := c.group.nodes[i].(protocol.Watchable); ok && c.stopBackup == nil {
		c.stopBackup = w.Watch(c.key, c.hintOfBackup)
	}
	c.second = c.askAbout(i, now)
}

const farOff = clock.Instant(1<<63 - 1)

// checkHints does what is due for the hints, and returns when to do so again. A node that
// does not answer, or fails, is replaced.
func (c *contender) checkHints(now clock.Instant) (next clock.Instant) {
	saw := c.question.saw()
	switch {
	case c.question == nil:
		return farOff
	case saw == 0:
		if !c.question.extended && ballot.HasOverslept(now.Sub(c.question.due), 0) {
			c.question.due, c.question.extended = now.Add(ballot.MinAnswerLimit), true
		}
		if now < c.question.due {
			return c.question.due
		}
		c.isLate(c.lookout)
		if c.place != nil && c.lookout == c.node {
			c.fail()
			return farOff
		}
		return c.askElsewhere(now)
	case c.question.hasFailed():
		return c.askElsewhere(now)
	}
	if !c.question.measured {
		c.question.measured = true
		c.group.voters.Measured(c.lookout, now.Sub(c.question.at))
	}
	switch {
	case saw == protocol.Granted:
	case c.second == nil:
		if next = c.question.at.Add(backupAfter); now < next {
			return next
		}
		c.askBackup(now)
	case c.second.saw() == protocol.Granted: // the holder does without that node, or has released the lock
		c.notHolding.Add(c.backup)
		c.askForHints(now)
		return c.checkHints(now)
	case !c.backupHinted.Load():
	case c.askAgain == 0:
		c.askAgain = now.Add(hintGap)
		return c.askAgain
	case now < c.askAgain:
		return c.askAgain
	default:
		c.askForHints(now)
		return c.checkHints(now)
	}
	return farOff
}

// askElsewhere is askForHints at another node, unless all have been tried in this rest.
func (c *contender) askElsewhere(now clock.Instant) (next clock.Instant) {
	if c.place != nil && c.lookout == c.node || c.moves == len(c.group.nodes) {
		return farOff
	}
	c.moves++
	c.notHolding.Add(c.lookout)
	c.askForHints(now)
	return c.checkHints(now)
}

// fail notes that the node is of no use, until the next is asked.
func (c *contender) fail() {
	c.question = &question{}
	c.question.outcome.Store(uint32(protocol.Failed))
}
