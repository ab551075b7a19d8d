package wait

import (
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/ballot"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// SecondAfter is how long one node is watched alone. Where a lock is passed on more often than that,
// another is not worth its cost; and by then the new holder has the lock at all nodes.
const SecondAfter = 10 * time.Millisecond

// Lookouts watch the key at two nodes: the one that keeps the place and, if the wait is not a short one,
// another, because a node that falls silent gives no hints, and leaves no question unanswered either. A
// hint of either is followed.
type lookouts struct {
	waiter   *Waiter
	first    lookout
	second   lookout
	passedBy quorum.Set // nodes that the holder does without, or that have not answered
	moves    int        // to other nodes, in this Await
}

// A lookout asks one node whether the key is there, which has that hint at the key's next change.
type lookout struct {
	node   int
	stop   func()      // of the Watch; nil: there is none
	asked  *question   // nil: nothing since forget
	hinted atomic.Bool // the key may have changed
	unsure atomic.Bool // any key may have, as when the node has just begun to give hints
}

// A question keeps what a node answers.
type question struct {
	req      protocol.Request
	waiter   *Waiter
	node     int
	at       clock.Instant
	answer   ballot.Limit
	measured bool          // how long the answer took
	outcome  atomic.Uint32 // zero: none yet
	left     atomic.Int64  // of the holder's TTL in nanoseconds; zero: not known
}

// Receive implements protocol.Receiver.
func (q *question) Receive(_ int, reply protocol.Reply) {
	if reply.Outcome == protocol.Granted || reply.Outcome == protocol.Refused {
		q.waiter.Voters.Answered(q.node)
	}
	if reply.Outcome == protocol.Refused {
		q.left.Store(int64(max(reply.TTL, 0)))
	}
	q.outcome.Store(uint32(reply.Outcome))
	q.waiter.process.Wake()
}

// saw returns what the node has answered, zero if it has not.
func (l *lookout) saw() protocol.Outcome {
	if l.asked == nil {
		return 0
	}
	return protocol.Outcome(l.asked.outcome.Load())
}

func (l *lookout) isFree() bool { return l.hinted.Load() || l.saw() == protocol.Granted }

// isFree reports whether the key seems free. That the second node has answered so, and not hinted, proves
// nothing: see check.
func (ls *lookouts) isFree() bool { return ls.first.isFree() || ls.second.hasHinted() }

// hasHinted reports whether the key has changed since the node was asked.
func (l *lookout) hasHinted() bool { return l.asked != nil && l.hinted.Load() }

// free returns the node that calls the key free, or -1.
func (ls *lookouts) free() int {
	switch {
	case ls.first.isFree() && ls.first.asked != nil:
		return ls.first.node
	case ls.second.hasHinted():
		return ls.second.node
	}
	return -1
}

// isHeld reports whether the first node has said so.
func (ls *lookouts) isHeld() bool { return ls.first.saw() == protocol.Refused }

// takeLeft returns, once, what the first node has answered of the holder's TTL.
func (ls *lookouts) takeLeft() time.Duration {
	if ls.first.asked == nil {
		return 0
	}
	return time.Duration(ls.first.asked.left.Swap(0))
}

// hear notes that the key has changed.
func (ls *lookouts) hear() { ls.first.hinted.Store(true) }

// forget drops what was learnt. The nodes may hint again.
func (ls *lookouts) forget() {
	ls.first.forget()
	ls.second.forget()
}

func (l *lookout) forget() {
	l.asked = nil
	l.hinted.Store(false)
	l.unsure.Store(false)
}

// close has no node hint any more.
func (ls *lookouts) close() {
	ls.first.unwatch()
	ls.second.unwatch()
}

// look has a node watch the key. Its answer tells whether that has gone meanwhile.
func (ls *lookouts) look(now clock.Instant) {
	w := ls.waiter
	ls.second.forget()
	i := ls.choose()
	ls.first.ask(w, i, now)
	ls.first.asked.answer.Due = now.Add(max(w.answerLimit(), w.Voters.AnswerLimit(i, w.Timeout)))
}

// choose returns the node that is watched. If the one that keeps the place lacks the
// key, another is watched, and the place stays.
func (ls *lookouts) choose() int {
	w := ls.waiter
	if w.isOrdered() && !(ls.passedBy | w.Voters.Overdue()).Has(w.order.node) {
		return w.order.node
	}
	return w.Voters.First(w.Desk.Key, &ls.passedBy, w.Voters.Overdue())
}

// lookTwice has another node watch the key as well, if there is one that is of use.
func (ls *lookouts) lookTwice(now clock.Instant) {
	w := ls.waiter
	avoid := ls.passedBy | w.Voters.Overdue()
	avoid.Add(ls.first.node)
	if i := ballot.First(w.Nodes, w.Desk.Key, avoid); i >= 0 {
		ls.second.ask(w, i, now)
		return
	}
	ls.second.unwatch()
	ls.second.asked = &question{} // it never answers
}

func (l *lookout) ask(w *Waiter, i int, now clock.Instant) {
	l.forget()
	if i != l.node {
		l.unwatch()
		l.node = i
	}
	if wn, ok := w.Nodes[i].(protocol.Watchable); ok && l.stop == nil {
		l.stop = wn.Watch(w.Desk.Key, func(key string) {
			if key == "" {
				l.unsure.Store(true)
			} else {
				l.hinted.Store(true)
			}
			w.process.Wake()
		})
	}
	q := &question{waiter: w, node: i, at: now}
	q.req = protocol.Request{Op: protocol.OpWatch, Key: w.Desk.Key, Timeout: w.Timeout}
	l.asked = q
	if w.Nodes[i].Submit(&q.req, 0, q) != nil {
		q.Receive(0, protocol.Reply{Outcome: protocol.Failed})
	}
}

func (l *lookout) unwatch() {
	if l.stop != nil {
		l.stop()
		l.stop = nil
	}
}

// check does what is due, and returns when to do so again, or that the node that keeps the place has
// failed. Another that does is replaced.
func (ls *lookouts) check(now clock.Instant) (next clock.Instant, lost bool) {
	w, q := ls.waiter, ls.first.asked
	if q == nil {
		return Never, false
	}
	saw := ls.first.saw()
	switch {
	case saw == 0 && !q.answer.IsOver(now):
		return q.answer.Due, false
	case saw == 0:
		w.passOver(q.node)
		return ls.replace(now)
	case saw != protocol.Granted && saw != protocol.Refused:
		return ls.replace(now)
	case !q.measured:
		q.measured = true
		w.Voters.Measured(q.node, now.Sub(q.at))
	}
	switch {
	case ls.isFree():
	case ls.first.unsure.Load() || ls.second.unsure.Load():
		if next = q.at.Add(HintGap); now < next {
			return next, false
		}
		ls.look(now)
		return ls.first.asked.answer.Due, false
	case ls.second.asked == nil:
		if next = q.at.Add(SecondAfter); now < next {
			return next, false
		}
		ls.lookTwice(now)
	case ls.second.saw() == protocol.Granted: // the holder does without that node, or the first has fallen silent
		ls.passedBy.Add(ls.second.node)
		ls.look(now)
		return ls.first.asked.answer.Due, false
	}
	return Never, false
}

// replace has another node watch, unless all have been tried in this Await.
func (ls *lookouts) replace(now clock.Instant) (next clock.Instant, lost bool) {
	if w := ls.waiter; w.isOrdered() && ls.first.node == w.order.node {
		return 0, true
	}
	if ls.moves == len(ls.waiter.Nodes) {
		return Never, false
	}
	ls.moves++
	ls.passedBy.Add(ls.first.node)
	ls.look(now)
	return ls.first.asked.answer.Due, false
}
