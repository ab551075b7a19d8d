package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/ballot"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A lock can be adopted and released by its name and value from another process than the one that
// took it: a daemon that is restarted, a job that is handed on through a queue, or what a holder left
// that died. Only the value counts, so this does no harm to a lock that is another's by now.
//
// An adoption is an acquisition whose votes are an extension of the value that is there. So it makes no
// key, takes nothing back if it is lost, and counts from the start of its own round: what the holder
// knew of its deadline is of no use to it.

// ReleaseValue releases the lock name wherever it holds value, which is the Lock.Value of its
// holder or what Inspect returned: as Lock.Release does, from any process. If the holder lives, its
// Lock.Context ends as for a DEL: within milliseconds, or at its next renewal where servers give
// no hints. Until then two may work, so have the holder stop first.
//
// The locks of readers (Shared) are kept in another way: the answer is ErrLost. Adopt them to release
// them.
//
// Errors: ErrLost if a majority of nodes holds the value no more; ErrNoQuorum or ctx's error if too
// few nodes confirmed: the release goes on in the background, for no longer than the Locker's TTL.
// ErrClosed after Close. ctx bounds the waiting only. ReleaseValue returns within the node timeout
// and is safe for concurrent use.
func (l *Locker) ReleaseValue(ctx context.Context, name, value string) error {
	var failure error
	for _, g := range l.places(name) { // a lock whose group changes has another value in each
		err := g.releaseValue(ctx, name, value)
		if err == nil {
			return nil
		}
		if failure == nil || errors.Is(failure, ErrLost) { // it may be where it could not be looked for
			failure = err
		}
	}
	return failure
}

func (g *group) releaseValue(ctx context.Context, name, value string) error {
	if ctx == nil {
		return nilContext(protocol.OpRelease, name)
	}
	s := &g.settings
	key, err := s.key(name)
	if err == nil {
		err = checkValue(value)
	}
	if err != nil {
		return err
	}
	if !g.inflight.begin() {
		return closedError(protocol.OpRelease, name)
	}
	defer g.inflight.done()
	defer g.awaitObservers()
	c := claim{ops: plainOps, name: name, key: key, value: value} // that it may have a token matters to its own client only
	r := g.release(releaseOf{ctx, s, c, quorum.All(len(g.nodes)), false}, s.clock.Now())
	g.queue.changed(key)
	if s := g.heldWith(key, value); s != nil { // the nodes give this Locker no hint
		for i := range g.nodes {
			s.hinted(i)
		}
	}
	r.Wait(ctx, s.timeout(), ballot.Settled)
	if failure := r.unconfirmed(ctx, ErrLost); failure != nil {
		return failure
	}
	return nil
}

// checkValue returns why a value is that of no lock, or nil.
func checkValue(value string) error {
	switch value {
	case "":
		return errors.New("redlock: the value is empty; give that of Lock.Value")
	case protocol.ReadersValue: // without it a writer would come in beside them
		return fmt.Errorf("redlock: %q stands for all readers, and is the value of no lock; give that of Lock.Value", value)
	}
	return nil
}

// Adopt takes over the lock name that another process has taken, or an earlier life of this one, and
// that the nodes still hold with value: its Lock.Value. It asks all nodes once to extend it. If a quorum
// has done so it is a Lock like those of Acquire: it is renewed, its Context tells of a loss, and Release
// and Close release it. It is certainly held for the TTL less Drift(TTL), counted from before the call. A
// lock that is gone is not made anew.
//
// The holder must have gone for good, and without having released the lock: its process has died, or has
// exited without Close. A holder that lives goes on believing in the lock, so two work. It releases the
// lock when it is done or its own time is over, and so does one that was only paused; then the adopter's
// Context ends as for a DEL. What was released must not be adopted, because the release may still be on its
// way.
//
// The kind of the lock is told by the options, as for Acquire:
//
//   - An exclusive lock, also one that was taken with Fenced. Its token is not known here, so Lock.Fence is
//     zero, and the caller goes on with the old one. Later locks with Fenced get greater ones.
//   - Shared: a reader's. Callers that shared one have one value for all their Locks. It can be adopted for
//     each of them, and these Locks share it again, if they would by Acquire. A writer's lock that is adopted
//     so is a reader's from then on (see Lock.Downgrade).
//   - Permits(k): a permit, which one being found by the value.
//
// A lock of several names, or with a Weight above 1, has a value for each, of which Lock.Value tells one
// only: it cannot be adopted as a whole. Nor can one that this Locker itself holds, but by readers. Of the
// other options Fenced and Owner have no effect: the value tells the owner. The holder's TTL, if it was
// longer, stays on the nodes until the lock is released.
//
// Errors: ErrLost if a majority of nodes holds the value no more; ErrNoQuorum or ctx's error if too few
// nodes answered: some may have extended it all the same, and asking again makes sense. ErrClosed after
// Close. Adopt takes one round trip, one more where a node's record has changed since this Locker read it
// and for a permit, and two more where the TTL must be entered into the records first. Each waits for the
// node timeout at most. Observers hear of it as of an acquisition. It is safe for concurrent use.
func (l *Locker) Adopt(ctx context.Context, name, value string, opts ...Option) (*Lock, error) {
	if err := checkValue(value); err != nil {
		return nil, err
	}
	places := l.places(name)
	if len(places) > 1 { // nothing would extend what the holder has in the other group
		return nil, fmt.Errorf("redlock: adopt %q: the map of the groups is being changed, and until all clients have the new one "+
			"only the lock's holder can extend it", name)
	}
	a, err := places[0].begin(ctx, name, slices.Concat(opts, []Option{adopted(value)}))
	if err != nil {
		return nil, err
	}
	a.adopts = value
	return a.conclude(a.adopt())
}

// adopted has the settings be those of the lock with that value, whose token is not known.
func adopted(value string) Option {
	return Option{apply: func(s *settings) error {
		if s.weight > 1 {
			return fmt.Errorf("Weight(%d): a lock of several permits has a value for each and cannot be adopted as a whole; give Weight(1) to adopt one of them", s.weight)
		}
		s.fenced, s.owner = false, HolderOf(value).Owner
		return nil
	}}
}

// adopt is Adopt.
func (a *acquisition) adopt() (*Lock, error) {
	done, err := a.adoptAlone()
	if err != nil {
		return nil, err
	}
	defer done()
	if err := a.interrupted(); err != nil {
		return nil, err
	}
	if s := a.group.heldWith(a.lineKey(), a.adopts); s != nil {
		return a.adoptFrom(s)
	}
	if a.settings.holders() > 1 {
		if err := a.findSlot(); err != nil {
			return nil, err
		}
	}
	k, err := a.attempt(wholeVote)
	if err == nil {
		a.group.queue.hold(k.session)
	}
	return k, err
}

// adoptAlone returns when no other call adopts the value: two sessions with one would release it for each
// other. The caller says when it is done, and the session is in the queue by then.
func (a *acquisition) adoptAlone() (done func(), err error) {
	adopting, mine := &a.group.adopting, make(chan struct{})
	for {
		other, underWay := adopting.LoadOrStore(a.adopts, mine)
		if !underWay {
			return func() { adopting.Delete(a.adopts); close(mine) }, nil
		}
		select {
		case <-other.(chan struct{}):
		case <-a.ctx.Done():
			return nil, a.interrupted()
		}
	}
}

// adoptFrom makes another Lock of a session with the value that this process has.
func (a *acquisition) adoptFrom(s *session) (*Lock, error) {
	if !s.settings.sharesWith(a.settings) {
		return nil, fmt.Errorf("redlock: adopt %q: this Locker holds the lock with that value already, and only readers with the same options share one; "+
			"use the Lock that it has returned", a.name)
	}
	k := s.join(a)
	if k == nil {
		return nil, a.group.failure(a.name, ErrLost)
	}
	a.group.tell(Event{Kind: EventAttempt, Context: a.eventCtx, Name: a.name}, k.tenure.Since, &k.hold)
	return k, nil
}

// findSlot asks the nodes which permit has the value. A majority that has it is among any quorum.
func (a *acquisition) findSlot() error {
	rounds := make([]*round, a.settings.holders())
	for slot := range rounds { // all at once
		rounds[slot] = a.group.askForState(a.ctx, a.name, keys.Slot(a.key, slot))
	}
	var failure error
	for slot, r := range rounds {
		r.Wait(a.ctx, a.settings.timeout(), ballot.Answered)
		state := r.State()
		for i := range state.Len() {
			if state.Reply(i).Value == a.adopts {
				a.slot = slot
				return nil
			}
		}
		if failure == nil && !ballot.IsWon(&state) {
			failure = r.fail(&state, failureOf(a.ctx, &state, state.Tally))
		}
	}
	return cmp.Or(failure, error(a.group.failure(a.name, ErrLost)))
}

// notAdopted returns why the vote has not adopted its lock. Nothing is taken back: the lock may still be
// its holder's, or another adopter's.
func (v vote) notAdopted() *QuorumError {
	r := v.round
	r.Wait(v.ctx, v.settings.timeout(), ballot.Settled)
	state := r.State()
	kind := failureOf(v.ctx, &state, state.Tally)
	switch {
	case state.Tally.Gone():
		kind = ErrLost
	case kind == ErrHeld: // by some, and others do not say
		kind = ErrNoQuorum
	}
	return r.fail(&state, kind)
}
