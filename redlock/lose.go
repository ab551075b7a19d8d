package redlock

import (
	"context"
	"errors"
	"slices"
	"time"
)

// lose gives back what a round that was not won may have taken, and explains.
// The round untold is not nil if it was won but for the fencing token.
func (l *Locker) lose(ctx context.Context, s *settings, c claim, r, untold *round) *QuorumError {
	r.mu.Lock()
	maybe := r.nodes(Granted, Unknown, 0)
	refused := r.nodes(Refused)
	r.mu.Unlock()

	undo := l.release(r.told, s.clock.Now(), s, c, maybe)
	// The nodes that refused have just shown that they answer: their replies
	// to the release tell how long the holder has left, and what to wait for.
	undo.need = refused
	if ctx.Err() == nil {
		undo.wait(ctx, r.start.Add(s.timeout()).Sub(undo.start), repliedNeeded)
	}

	undo.mu.Lock()
	defer undo.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tally
	for i := range undo.slots {
		if !refused.has(i) {
			continue
		}
		switch reply := undo.slots[i].reply; reply.Outcome {
		case Refused:
			r.slots[i].reply.TTL = reply.TTL
		case Failed:
			if errors.Is(reply.Err, ErrWrongType) { // which SET NX cannot tell from a lock
				r.slots[i].reply = reply
				t.refused--
				t.faults++
			}
		}
	}
	if t.verdict() == votePending {
		t.faults += t.pending() // time is up for the others
	}
	kind := ErrHeld
	switch {
	case ctx.Err() != nil:
		kind = ctx.Err()
	case untold != nil:
		kind = errNoToken
	case t.verdict() == voteWon:
		kind = errStale
	case t.outage() && t.faults-r.forgetful() < t.blocking():
		kind = errForgetful
	case t.outage():
		kind = ErrNoQuorum
	}
	if untold != nil {
		return untold.explain(kind)
	}
	err := r.fail(kind)
	err.Remaining = freeIn(r, undo)
	return err
}

// forgetful counts the nodes that have no vote because of what they may have
// forgotten. The round must be locked.
func (r *round) forgetful() (n int) {
	for i := range r.slots {
		if errors.Is(r.slots[i].reply.Err, ErrQuarantine) {
			n++
		}
	}
	return n
}

// freeIn returns how long it takes until a quorum of nodes is free and has a
// vote, if no holder renews: NoTTL for never, zero for unknown. Nodes that did
// not refuse are taken for free, since what they may have granted is being
// released; of the others, and of those that failed, only the replies to the
// release tell. Both rounds must be locked.
func freeIn(r, undo *round) time.Duration {
	const never = time.Duration(1<<63 - 1)
	var left []time.Duration
	for i, slot := range r.slots {
		var q *QuarantineError
		switch undone := undo.slots[i].reply; {
		case errors.As(slot.reply.Err, &q):
			left = append(left, q.Left)
		case slot.reply.Outcome == Granted || slot.reply.Outcome == 0:
			left = append(left, 0)
		case undone.Outcome == Refused && undone.TTL == NoTTL:
			left = append(left, never)
		case undone.Outcome == Refused:
			left = append(left, undone.TTL)
		}
	}
	slices.Sort(left)
	switch q := r.tally.quorum(); {
	case len(left) < q:
		return 0
	case left[q-1] == never:
		return NoTTL
	default:
		return left[q-1]
	}
}
