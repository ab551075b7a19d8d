package wait

import (
	"time"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/ballot"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
	"github.com/redquorum/redquorum/redlock/internal/ticket"
)

// isOrdered reports whether a node is asked to keep the place.
func (w *Waiter) isOrdered() bool { return w.order.noneUntil == 0 }

// standing returns the place in the order. Where there is none each waiter is the first.
func (w *Waiter) standing() ticket.Standing {
	if !w.isOrdered() {
		return ticket.Standing{Outcome: protocol.Granted}
	}
	return w.order.place.Standing()
}

func (w *Waiter) isCalled() bool { return w.isOrdered() && w.order.place.IsCalled() }

// home returns the node that is to keep the place: where all others have theirs, unless it has failed. A
// waiter goes back there as soon as it can be asked again, because one that waits elsewhere is called by
// no one, and is passed over by all.
func (w *Waiter) home() int {
	now := w.Clock.Now()
	if now >= w.order.badUntil {
		w.order.bad = 0
	}
	if now >= w.order.noneUntil {
		w.order.noneUntil = 0
	}
	return w.Voters.First(w.Desk.Key, &w.order.bad, w.late())
}

// late returns the nodes that are not asked for a place: those that are overdue or, where the caller is
// served in order, silent.
func (w *Waiter) late() quorum.Set {
	if w.Fair {
		return w.Voters.Silent()
	}
	return w.Voters.Overdue()
}

// passOver notes that node i has not answered in time.
func (w *Waiter) passOver(i int) {
	if w.Fair {
		w.Voters.KeepNoQueue(i) // before it is overdue: an answer ends both
	}
	w.Voters.PassOver(i)
}

// noOrderFor is for how long nodes that keep no order, as where a user may run no scripts, are not asked again.
const noOrderFor = ticket.Life

// move notes that the node keeps no place. It is avoided until it answers something, and where it was not
// for lateness also for Longest: it may answer all but questions about places. When all have failed there
// is no order for noOrderFor, and then one is asked again.
func (w *Waiter) move() {
	o, now := &w.order, w.Clock.Now()
	if !w.late().Has(o.node) {
		o.bad.Add(o.node)
		o.badUntil = now.Add(Longest)
		w.passOver(o.node)
	}
	if o.failed++; o.failed >= len(w.Nodes) {
		o.noneUntil = now.Add(noOrderFor)
		w.NoOrder.Store(int64(o.noneUntil))
		w.leaveNode()
	}
}

// leaveNode gives the place at the node back.
func (w *Waiter) leaveNode() {
	w.order.place.Unlisten()
	w.order.place.Leave(w.order.node, false)
}

// answerLimit is how long the node is waited for. One that keeps a queue for fair callers is replaced less
// lightly: while some waiters have moved to another node and some have not, their order is lost.
func (w *Waiter) answerLimit() time.Duration {
	limit := w.Voters.AnswerLimit(w.order.node, w.Timeout)
	if cost := w.process.Cost(); limit == w.Timeout && cost > 0 { // no node has been measured
		limit = min(max(4*cost, ballot.MinAnswerLimit), w.Timeout)
	}
	if w.Fair {
		limit = min(max(limit, fairAnswerLimit), w.Timeout)
	}
	return limit
}
