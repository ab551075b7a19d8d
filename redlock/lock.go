package redlock

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/protocol"
	"github.com/redquorum/redquorum/redlock/internal/ballot"
	"github.com/redquorum/redquorum/redlock/internal/lease"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A Lock is held from the moment Acquire returns it until it is released or
// lost, whichever is first. It is safe for concurrent use.
//
// It is a handle on a session, which has the lock's state on the nodes.
type Lock struct {
	session  *session
	settings *settings
	tenure   lease.Tenure    // since the try that got it began, or it was handed over, and for MaxHold
	token    int64           // zero without Fenced
	with     *company        // the parts in other groups, or nil
	caller   context.Context // of Acquire, for its values

	// Guarded by the session.
	life  *lifetime // nil while it is not needed
	place int32     // among the sharers of the session
	phase lease.Reason
}

// An ending is why, and when, a lock was lost.
type ending struct {
	cause error
	at    clock.Instant
}

// A lifetime is what only some locks need.
type lifetime struct {
	ctx context.Context // that ends with the lock; nil until it is asked for
	end context.CancelCauseFunc
	why *ending // nil unless the lock was lost
}

// lived returns the lock's lifetime to be changed. The session must be locked.
func (k *Lock) lived() *lifetime {
	if k.life == nil {
		k.life = &lifetime{}
	}
	return k.life
}

// compose has the cause take down what is known of the round that failed, before later replies change it.
func (e *ending) compose() {
	if l, ok := e.cause.(*loss); ok {
		l.composed()
	}
}

// leaveHeld notes why the lock is held no more, and how a loss came about. The session must be locked.
func (k *Lock) leaveHeld(why lease.Reason, of *ending) {
	if k.phase = why; why.IsLoss() {
		k.lived().why = of
	}
}

// cause returns why a lock is not held any more, or nil if it is. The session must be locked.
func (k *Lock) cause() error {
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

// open makes k a handle on s, granted at now to a caller with that context.
func (k *Lock) open(ctx context.Context, s *session, of *settings, now clock.Instant) {
	k.session, k.settings, k.caller = s, of, ctx
	k.tenure.Since = now
	if of.maxHold > 0 {
		k.tenure.EndBy = now.Add(of.maxHold)
	}
}

// Name returns the name that the lock was acquired by; of a lock of several names (AcquireAll)
// a text for people, with the first of them.
func (k *Lock) Name() string {
	if k.with != nil {
		return textOf(k.with.names)
	}
	return k.session.name
}

// Names returns the names that the lock was acquired by, sorted and without doubles: one, or
// those of AcquireAll. The slice is the caller's.
func (k *Lock) Names() []string {
	if k.with != nil {
		return slices.Clone(k.with.names)
	}
	return k.session.names()
}

// Value returns what the lock's key holds on the nodes: 40 hexadecimal digits that are drawn by
// lot, and with the option Owner a time and a label behind them (see HolderOf). It is no secret,
// but a client that knows it can release the lock. No two processes ever have the same;
// callers of one process that hand a lock over to each other share it. Of a lock of several
// names it is the value of the first; the keys of the others may hold other values.
//
// Name and value are the lock's handle for other processes: see Locker.ReleaseValue and
// Locker.ExtendValue.
func (k *Lock) Value() string { return k.session.value }

// Context ends when the lock does: with cause ErrLost at its deadline at the
// latest, or as soon as a majority of nodes says that the lock is gone: at the next renewal,
// or within milliseconds where the nodes give hints (protocol.Watchable) and the lock has
// been held for 50 ms with a TTL of a second or more, unless its Locker holds 100,000 such
// locks already; with ErrReleased when it is released;
// with ErrClosed when the Locker is closed. On a machine that slept past the deadline it
// ends within a quarter of a second after the machine woke; Valid knows at once.
// context.Cause tells which, with details. It carries the values of the context given to
// Acquire, but does not end with it.
//
// Work that needs the lock must run under this context and stop when it ends.
func (k *Lock) Context() context.Context {
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

// endContext ends the context of a lock that has ended, if there is one. Neither the queue nor the
// session may be locked, because that takes as long as there are contexts made from it.
func (k *Lock) endContext() {
	k.session.mu.Lock()
	var end context.CancelCauseFunc
	if k.life != nil {
		end = k.life.end
	}
	cause := k.cause()
	k.session.mu.Unlock()
	if end != nil {
		end(cause)
	}
}

// Remaining returns for how long the lock is certainly held, if nothing
// renews it; zero once it is lost or released.
func (k *Lock) Remaining() time.Duration { return k.with.least(k.remaining()) }

// remaining is Remaining without the lock's company.
func (k *Lock) remaining() time.Duration {
	s := k.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if k.phase != lease.Held {
		return 0
	}
	return max(0, s.lease.Deadline().Sub(s.now()))
}

// Valid reports whether the lock is held at this moment.
func (k *Lock) Valid() bool { return k.Remaining() > 0 }

// Until returns when the lock ends, if nothing renews it, by this machine's
// wall clock: for people and logs. Decide by Valid, Remaining or Context, which
// cannot be set back. The zero time is returned once the lock is lost or
// released.
func (k *Lock) Until() time.Time {
	left := k.Remaining()
	if left == 0 {
		return time.Time{}
	}
	return time.Now().Add(left)
}

// Votes returns how many nodes hold the lock: those that granted it or its last
// extension, and those that were given it again since. Votes that arrive after
// the quorum was reached are counted as they come. What is above the quorum is
// the lock's margin: so many nodes can forget it without anybody else getting
// it. Zero once the lock is lost or released.
func (k *Lock) Votes() int {
	votes := k.votes()
	for _, part := range k.with.parts() {
		votes = min(votes, part.Votes())
	}
	return votes
}

// votes is Votes without the lock's company.
func (k *Lock) votes() int {
	k.session.mu.Lock()
	defer k.session.mu.Unlock()
	if k.phase != lease.Held {
		return 0
	}
	return k.session.lease.Votes().Size()
}

// Fence returns the lock's fencing token: of all the locks of this name that
// were granted with one (option Fenced), a later one has a greater token, also where callers
// of one Locker hand the lock over to each other. It is above zero and below 2^53. Zero without
// Fenced.
//
// Give it to the resource with every write, and let the resource reject a
// token lower than one it has seen: see package fence.
func (k *Lock) Fence() int64 { return k.token }

// Extend asks all nodes to let the lock live for its full TTL from now on, and
// never shortens what it has left there. A node counts only if it still held the lock, and a quorum
// only before the lock's present deadline; the new deadline counts from the start of the call.
// Extend returns within the node timeout, or twice that where the nodes' records have changed and
// must be read, and does not disturb the renewals.
//
// Errors: ErrLost if the deadline has passed or a majority no longer holds the
// lock, which then has ended; ErrReleased or ErrClosed after Release or Close;
// ErrNoQuorum or ctx's error if too few nodes answered: the lock is still held
// until its old deadline, and asking again makes sense.
func (k *Lock) Extend(ctx context.Context) error {
	if ctx == nil {
		return nilContext(protocol.OpExtend, k.session.name)
	}
	if err := k.extend(ctx); err != nil {
		return err
	}
	return k.with.each(func(part *Lock) error { return part.extend(ctx) })
}

// extend is Extend without the lock's company.
func (k *Lock) extend(ctx context.Context) error {
	s := k.session
	r, err := k.extension()
	if err != nil {
		return err
	}
	r.ask()
	r.Wait(ctx, k.settings.timeout(), ballot.Settled)
	r.WaitForRecords(ctx, 2*k.settings.timeout(), ballot.Settled)
	s.learn(r)
	s.expire()
	s.locker.awaitObservers()

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

// extension makes a round that is to extend the lock, if it is held.
func (k *Lock) extension() (*round, error) {
	s := k.session
	s.expire()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := k.ended(); err != nil {
		return nil, err
	}
	return s.nextRound(), nil
}

// ended returns the error of a lock that is not held, or nil. The session must be locked.
func (k *Lock) ended() error {
	switch {
	case k.phase == lease.Held:
		return nil
	case k.phase.IsLoss():
		return k.cause()
	}
	return fmt.Errorf("redlock: %q: %w", k.session.name, k.cause())
}

// Bind returns a context that ends with ctx, and when the lock ends: then its cause is that of
// Context. It is for work under a lock that has a context of its own. cancel ends it as well, and
// gives back what it costs; call it when the work is done. Safe for concurrent use.
func (k *Lock) Bind(ctx context.Context) (bound context.Context, cancel context.CancelFunc) {
	bound, end := context.WithCancelCause(ctx)
	ended := k.Context()
	unlink := context.AfterFunc(ended, func() { end(context.Cause(ended)) })
	return bound, func() {
		unlink()
		end(nil)
	}
}

// Release gives the lock up. Its context ends at once, with cause ErrReleased;
// all nodes are asked to delete the key if it still holds the lock's value.
// Release returns when a quorum has confirmed that, and the rest goes on. If
// another caller of the Locker waits for such a lock, it gets this one instead,
// and Release returns at once.
//
// The requests do not depend on ctx, which bounds the waiting only, so it is
// right to pass a context that has ended. Release returns within the node
// timeout.
//
// Errors: ErrLost if the lock was no longer held (work may have run
// unprotected); ErrReleased if it was released before, ErrClosed if the Locker's
// Close did it; ErrNoQuorum or ctx's error if too few nodes confirmed: the
// release goes on in the background, and the key expires within the TTL. Safe
// for concurrent use.
func (k *Lock) Release(ctx context.Context) error {
	if ctx == nil { // the lock must not stay for that
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = k.release(ended)
		return nilContext(protocol.OpRelease, k.session.name)
	}
	return cmp.Or(k.release(ctx), k.with.release(ctx))
}

func (k *Lock) release(ctx context.Context) error {
	s := k.session
	defer s.locker.awaitObservers()
	now := s.expire()
	handed, r := k.handOver(now)
	if handed {
		return nil
	}
	if r == nil {
		var err error
		if r, err = k.giveUp(now); err != nil {
			return err
		}
	}
	if r == nil { // others share the session
		k.tellEnd(Event{})
		return nil
	}
	r.Wait(ctx, k.settings.timeout(), ballot.Settled)

	failure := r.unconfirmed(ctx, ErrLost)
	state := r.State()
	e := Event{Votes: state.Tally.Granted}
	if failure != nil {
		e.Err = failure
	}
	k.tellEnd(e)
	return e.Err
}

// unconfirmed returns why a quorum has not done what was asked, or nil if it has. gone is the kind
// where a majority cannot do it any more.
func (r *round) unconfirmed(ctx context.Context, gone error) *QuorumError {
	state := r.State()
	kind := ErrNoQuorum
	switch t := state.Tally; {
	case t.Verdict() == quorum.Won:
		return nil
	case t.Gone():
		kind = gone
	case ctx.Err() != nil:
		kind = ctx.Err()
	}
	return r.fail(&state, kind)
}

// giveUp ends the lock and releases it on all nodes, unless others share its session. If it was
// not held any more, the error says why; one that was lost is released all the same if the
// Agenda has not got to it yet, because the caller may want it anew.
func (k *Lock) giveUp(now clock.Instant) (*round, error) {
	s := k.session
	before, last, err := k.end(lease.Released, nil)
	switch {
	case before == lease.Held:
		k.endContext()
		if !last {
			return nil, nil
		}
		return s.giveBack(now), nil
	case before.IsLoss():
		s.giveBack(now)
	}
	return nil, err
}

// end ends the lock, and the session, too, if no other lock shares it; of is how a loss came about. If
// the lock had ended before, nothing is changed, and err says why. The caller ends the lock's context,
// and gives the session back.
func (k *Lock) end(why lease.Reason, of *ending) (before lease.Reason, last bool, err error) {
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

// tellEnd is tell for the release of a lock, of which no votes are left.
func (k *Lock) tellEnd(e Event) {
	e.Kind, e.Context, e.Name = EventReleased, k.caller, k.session.name
	k.session.locker.tell(k.session.describe(e), k.tenure.Since, nil)
}
