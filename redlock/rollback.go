package redlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/ballot"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A defeat is a vote that was not won, and is being taken back.
type defeat struct {
	vote
	unraised *round     // not nil if the vote was won but for the fencing token
	undo     *round     // that releases what the vote may have taken
	refused  quorum.Set // nodes that have refused
	isWon    bool       // a quorum has granted, though to no avail
}

// lose ends a vote that was not won, and returns why.
func (v vote) lose(unraised *round) *QuorumError {
	if v.adopts == "" {
		return v.undo(unraised).explain()
	}
	return v.notAdopted()
}

// undo gives back what a vote that was not won may have taken. It waits for nothing.
func (v vote) undo(unraised *round) defeat {
	r := v.round
	r.Close()
	state := r.State()
	maybe := state.With(protocol.Granted, protocol.Unknown, 0)
	release := v.group.release(releaseOf{v.eventCtx, v.settings, v.claim, maybe, false}, v.settings.clock.Now())
	return defeat{v, unraised, release, state.With(protocol.Refused), ballot.IsWon(&state)}
}

// explain returns why the vote was not won.
func (d defeat) explain() *QuorumError {
	r, a, ctx, undo, refused := d.round, d.acquisition, d.ctx, d.undo, d.refused
	// The nodes that refused have just shown that they answer: their replies
	// to the release tell how long the holder has left, and what to wait for.
	if ctx.Err() == nil {
		left := r.Start().Add(r.Late() + a.settings.timeout()).Sub(undo.Start())
		undo.Wait(ctx, min(left, a.group.voters.AnswerLimitOf(refused, left)), ballot.Replied(refused))
		undo.Wait(ctx, left, ballot.RepliedMost(refused)) // a minority that has fallen silent since is not waited for
		if undone := undo.State(); foundWrongType(&undone) {
			undo.Wait(ctx, left, ballot.Replied(refused)) // which then makes an outage of what looks like contention
		}
	}
	undone := undo.State()
	a.intend(&undone, refused)

	state := r.State()
	t := state.Tally
	for i := range undone.Len() {
		if !refused.Has(i) {
			continue
		}
		switch reply := undone.Reply(i); reply.Outcome {
		case protocol.Refused:
			now := *state.Reply(i)
			now.TTL = reply.TTL
			state.Replace(i, &now)
		case protocol.Failed:
			if errors.Is(reply.Err, protocol.ErrWrongType) { // which SET NX cannot tell from a lock
				state.Replace(i, reply)
				t.Refused--
				t.Faults++
			}
		}
	}
	kind := failureOf(ctx, &state, t)
	if d.unraised != nil {
		if ctx.Err() == nil {
			kind = errNoToken
		}
		return d.unraised.explain(kind)
	}
	err := r.fail(&state, kind)
	err.Remaining = freeIn(&state, &undone)
	if kind == ErrHeld {
		err.Holder = holderIn(&undone, refused)
	}
	return err
}

// failureOf is the kind of error of a ballot that came to nothing, with the tally t.
func failureOf(ctx context.Context, s *ballot.State, t quorum.Tally) error {
	if t.Verdict() == quorum.Pending {
		t.Faults += t.Pending() // time is up for the others
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case t.Verdict() == quorum.Won:
		return errStale
	case t.Outage() && t.Faults-forgetful(s) < t.Blocking():
		if isBehind(s) {
			return errBehind
		}
		return errForgetful
	case t.Outage():
		return ErrNoQuorum
	}
	return ErrHeld
}

// foundWrongType reports whether a node has said that the key holds no lock.
func foundWrongType(s *ballot.State) bool {
	for i := range s.Len() {
		if errors.Is(s.Reply(i).Err, protocol.ErrWrongType) {
			return true
		}
	}
	return false
}

// forgetful counts the nodes that have no vote because of what they may have
// forgotten, or that have given one which does not count yet, because their record is still being
// read or changed.
func forgetful(s *ballot.State) int {
	n := s.Unjudged().Size()
	for i := range s.Len() {
		if errors.Is(s.Reply(i).Err, ErrQuarantine) {
			n++
		}
	}
	return n
}

// isBehind reports whether it is this client's clock for which nodes have no vote.
func isBehind(s *ballot.State) bool {
	for i := range s.Len() {
		var q *protocol.QuarantineError
		if errors.As(s.Reply(i).Err, &q) && q.Behind {
			return true
		}
	}
	return false
}

// freeIn returns how long it takes until a quorum of nodes is free and has a
// vote, if no holder renews: NoTTL for never, zero for unknown. Nodes that did
// not refuse are taken for free, since what they may have granted is being
// released; of the others, and of those that failed, only the replies to the
// release tell.
func freeIn(s, undone *ballot.State) time.Duration {
	const never = time.Duration(1<<63 - 1)
	var left []time.Duration
	for i := range s.Len() {
		var q *protocol.QuarantineError
		switch reply, undone := s.Reply(i), undone.Reply(i); {
		case errors.As(reply.Err, &q):
			left = append(left, q.Left)
		case reply.Outcome == protocol.Granted || reply.Outcome == 0:
			left = append(left, 0)
		case undone.Outcome == protocol.Refused && undone.TTL == protocol.NoTTL:
			left = append(left, never)
		case undone.Outcome == protocol.Refused:
			left = append(left, undone.TTL)
		}
	}
	slices.Sort(left)
	switch q := s.Tally.Quorum(); {
	case len(left) < q:
		return 0
	case left[q-1] == never:
		return protocol.NoTTL
	default:
		return left[q-1]
	}
}
