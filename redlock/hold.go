package redlock

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/redlock/internal/ballot"
	"github.com/redquorum/redquorum/redlock/internal/lease"
)

// A hold is what one caller has of a session: its own MaxHold and end, its token, and a context that
// is made when it is asked for.
type hold struct {
	session  *session
	settings *settings
	tenure   lease.Tenure    // since the try that got it began, or it was handed over, and for MaxHold
	token    int64           // zero without Fenced
	caller   context.Context // of Acquire, for its values

	// Guarded by the session.
	life  *lifetime // nil while it is not needed
	place int32     // among the sharers of the session
	phase lease.Reason
	quiet bool // no observer hears of its end: it is one of several of a Lock, or of no caller
}

// A lifetime is what only some holds need.
type lifetime struct {
	ctx  context.Context // that ends with the hold; nil until it is asked for
	end  context.CancelCauseFunc
	why  *ending // nil unless the hold was lost
	bond *bond   // with others; nil for none
}

// An ending is why, and when, a lock was lost.
type ending struct {
	cause error
	at    clock.Instant
}

// compose has the cause take down what is known of the round that failed, before later replies change it.
func (e *ending) compose() {
	if l, ok := e.cause.(*loss); ok {
		l.composed()
	}
}

// open makes k a hold on s, granted at now to a caller with that context.
func (k *hold) open(ctx context.Context, s *session, of *settings, now clock.Instant) {
	k.session, k.settings, k.caller = s, of, ctx
	k.tenure.Since = now
	if of.maxHold > 0 {
		k.tenure.EndBy = now.Add(of.maxHold)
	}
}

// lived returns the hold's lifetime to be changed. The session must be locked.
func (k *hold) lived() *lifetime {
	if k.life == nil {
		k.life = &lifetime{}
	}
	return k.life
}

// leaveHeld notes why the hold has ended, and how a loss came about. The session must be locked.
func (k *hold) leaveHeld(why lease.Reason, of *ending) {
	if k.phase = why; why.IsLoss() {
		k.lived().why = of
	}
}

// cause returns why the hold has ended, or nil if it has not. The session must be locked.
func (k *hold) cause() error {
	switch k.phase {
	case lease.Held:
		return nil
	case lease.Released:
		return ErrReleased
	case lease.Closed:
		return ErrClosed
	}
	return k.life.why.cause
}

// ended returns the error of a hold that has ended, or nil. The session must be locked.
func (k *hold) ended() error {
	switch {
	case k.phase == lease.Held:
		return nil
	case k.phase.IsLoss():
		return k.cause()
	}
	return fmt.Errorf("redlock: %q: %w", k.session.name, k.cause())
}

// notHeld returns why the lock is not held at this moment, or nil if it is.
func (k *hold) notHeld() error {
	s := k.session
	s.expire()
	s.mu.Lock()
	defer s.mu.Unlock()
	return k.ended()
}

// context returns that which ends with the hold.
func (k *hold) context() context.Context {
	s := k.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if k.life == nil || k.life.ctx == nil { // it costs four allocations, and many locks are held without it
		// Without the end of the caller's: what bounded the waiting must not take the lock away.
		ctx, end := context.WithCancelCause(context.WithoutCancel(k.caller))
		if k.phase != lease.Held {
			end(k.cause())
		}
		life := k.lived()
		life.ctx, life.end = ctx, end
	}
	return k.life.ctx
}

// endContext ends the context of a hold that has ended, if there is one, and all that it is bound to.
// Neither the queue nor the session may be locked, because that takes as long as there are contexts made
// from it.
func (k *hold) endContext() {
	k.session.mu.Lock()
	var end context.CancelCauseFunc
	var bond *bond
	var of *ending
	if k.life != nil {
		end, bond, of = k.life.end, k.life.bond, k.life.why
	}
	why, cause := k.phase, k.cause()
	k.session.mu.Unlock()
	if end != nil {
		end(cause)
	}
	if bond != nil {
		bond.end(why, of)
	}
}

// deadline returns until when the hold is good, zero if it has ended.
func (k *hold) deadline() clock.Instant {
	k.session.mu.Lock()
	defer k.session.mu.Unlock()
	if k.phase != lease.Held {
		return 0
	}
	return k.session.lease.Deadline()
}

func (k *hold) votes() int {
	k.session.mu.Lock()
	defer k.session.mu.Unlock()
	if k.phase != lease.Held {
		return 0
	}
	return k.session.lease.Votes().Size()
}

// extension makes a round that is to extend the lock, if it is held.
func (k *hold) extension() (*round, error) {
	s := k.session
	s.expire()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := k.ended(); err != nil {
		return nil, err
	}
	return s.nextRound(), nil
}

// extendAll extends the holds at the same time, or returns why one was not.
func extendAll(ctx context.Context, holds []*hold) error {
	rounds := make([]*round, len(holds))
	for i, k := range holds {
		r, err := k.extension()
		if err != nil {
			return err
		}
		rounds[i] = r
	}
	for _, r := range rounds {
		r.ask()
	}
	var failure error
	for i, k := range holds {
		failure = cmp.Or(failure, k.awaitExtension(ctx, rounds[i]))
	}
	return failure
}

// awaitExtension returns when the round has extended the lock, or why it has not.
func (k *hold) awaitExtension(ctx context.Context, r *round) error {
	s := k.session
	r.Wait(ctx, k.settings.timeout(), ballot.Settled)
	r.WaitForRecords(ctx, 2*k.settings.timeout(), ballot.Settled)
	s.learn(r)
	s.expire()

	s.mu.Lock()
	defer s.mu.Unlock()
	state := r.State()
	switch {
	case k.phase != lease.Held:
		return k.ended()
	case s.lease.HasProved(r):
		return nil
	}
	s.lease.Failed(r)
	if ctx.Err() != nil {
		return r.fail(&state, ctx.Err())
	}
	return r.fail(&state, ErrNoQuorum)
}

// A farewell is the end of a hold by its caller.
type farewell struct {
	round *round // that releases the lock; nil: others have the session, or the hold had ended
	votes int    // of a session that was handed over
	err   error  // it had ended, and why
}

// leave ends the hold, and hands the session over or releases it. It waits for nothing.
func (k *hold) leave() farewell {
	now := k.session.expire()
	votes, handed, r := k.handOver(now)
	if handed {
		return farewell{votes: votes}
	}
	if r != nil {
		return farewell{round: r}
	}
	r, err := k.giveUp(now)
	return farewell{round: r, err: err}
}

// await returns how many nodes have confirmed the release, and why not a quorum.
func (f *farewell) await(ctx context.Context, limit time.Duration) (votes int, err error) {
	if f.round == nil {
		return f.votes, f.err
	}
	f.round.Wait(ctx, limit, ballot.Settled)
	failure := f.round.unconfirmed(ctx, ErrLost)
	state := f.round.State()
	if failure != nil {
		err = failure
	}
	return state.Tally.Granted, err
}

// giveUp ends the hold and releases the session on all nodes, unless others share it. If the hold had
// ended, the error says why; a session that was lost is released all the same if the
// Agenda has not got to it yet, because the caller may want it anew.
func (k *hold) giveUp(now clock.Instant) (*round, error) {
	s := k.session
	before, last, err := k.end(lease.Released, nil)
	switch {
	case before == lease.Held:
		k.endContext()
		if !last {
			return nil, nil
		}
		return s.giveBack(now), nil
	case before.IsLoss() && !s.isHeld(): // others may share what this one has lost with another hold
		s.giveBack(now)
	}
	return nil, err
}

// end ends the hold, and the session, too, if no other shares it; of is how a loss came about. If
// it had ended before, nothing is changed, and err says why. The caller ends the hold's context,
// and gives the session back.
func (k *hold) end(why lease.Reason, of *ending) (before lease.Reason, last bool, err error) {
	s := k.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if before, err = k.phase, k.ended(); before != lease.Held {
		return before, false, err
	}
	if last = s.leave(k); last {
		s.endLocked(why, of)
	} else {
		k.leaveHeld(why, of)
	}
	return lease.Held, last, nil
}

// tellEnd is tell for the end of a hold, of which no votes are left.
func (k *hold) tellEnd(e Event) {
	if k.quiet {
		return
	}
	e.Kind, e.Context, e.Name = EventReleased, k.caller, k.session.name
	k.session.group.tell(k.session.describe(e), k.tenure.Since, nil)
}

// tellLoss tells the observers if the lock was lost, by the time at which it was.
func (k *hold) tellLoss() {
	g := k.session.group
	if !k.phase.IsLoss() || k.quiet || !g.observed() {
		return
	}
	g.publish(k.session.describe(k.lossEvent(k.life.why)))
}

// lossEvent is the event of a loss.
func (k *hold) lossEvent(why *ending) Event {
	since := k.session.now().Sub(why.at)
	return Event{
		Kind: EventLost, Time: time.Now().Add(-since), Context: k.caller, Name: k.session.name, Elapsed: why.at.Sub(k.tenure.Since), Err: why.cause,
	}
}
