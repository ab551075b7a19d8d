package wait

import (
	"math"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/redlock/internal/ticket"
)

// Never is a moment that does not come.
const Never = clock.Instant(math.MaxInt64)

// A view is all that a decision depends on.
type view struct {
	questions
	now       clock.Instant
	standing  ticket.Standing
	called    bool          // by the node that keeps the place
	free      bool          // the key seems free
	own       bool          // a caller of this process holds the lock
	shared    bool          // the caller need not wait for others of its kind
	notBefore clock.Instant // a hint is followed
}

// A step is what follows from a view.
type step int

const (
	sleep     step = iota // until something happens, or it is due
	askAgain              // for the place, and perhaps about the key
	move                  // to another node: this one keeps no place
	late                  // the same, because it does not answer
	tryAll                // nodes: nothing is known to be in the way, or a while has passed
	tryFree               // the first of the order, because the key seems free
	tryBeside             // the order, as one who need not wait for others of its kind
	takeOver              // what those before have left lie
)

// next returns the step that follows and, if it is to sleep, when to look again at the latest.
func (v *view) next() (step, clock.Instant) {
	first, behind := v.standing.IsFirst(), v.standing.IsBehind()
	mayFollow := v.now >= v.notBefore
	switch {
	case v.standing.HasFailed():
		return move, 0
	case first && !v.key && !v.call && v.standing.Others == 0:
		return tryAll, 0
	case first && !v.key:
		return askAgain, 0
	case first && v.free && mayFollow:
		return tryFree, 0
	case behind && v.shared && (v.free || v.called):
		if mayFollow {
			return tryBeside, 0
		}
	case behind && (!v.call || v.called):
		return askAgain, 0
	}
	due := v.answer.Due
	if v.standing.IsKnown() {
		due = v.again
	}
	if v.takeover > 0 {
		due = min(due, v.takeover)
	}
	if !mayFollow && (v.free && first || v.shared && (v.free || v.called)) {
		due = min(due, v.notBefore)
	}
	switch {
	case v.now < due:
		return sleep, due
	case first && !v.own: // the node may hold what no quorum holds
		return tryAll, 0
	case v.takeover > 0 && v.now >= v.takeover:
		return takeOver, 0
	case !v.standing.IsKnown():
		return late, 0
	}
	return askAgain, 0
}
