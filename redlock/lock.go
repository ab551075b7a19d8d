package redlock

import (
	"context"
	"slices"
	"time"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A Lock is held from the moment Acquire returns it until it is released or
// lost, whichever is first. It is safe for concurrent use.
//
// It is a hold on a session, which has the lock's state on the nodes. Of several names, or of a name in
// two groups, it is the first of several holds that are bound together.
type Lock struct {
	hold
	bond *bond // nil for one hold
}

// holds returns all that the Lock consists of.
func (k *Lock) holds() []*hold {
	if k.bond == nil {
		return []*hold{&k.hold}
	}
	return k.bond.holds
}

// Name returns the name that the lock was acquired by; of a lock of several names (AcquireAll)
// a text for people, with the first of them.
func (k *Lock) Name() string {
	if k.bond != nil {
		return textOf(k.bond.names)
	}
	return k.session.name
}

// Names returns the names that the lock was acquired by, sorted and without doubles: one, or
// those of AcquireAll. The slice is the caller's.
func (k *Lock) Names() []string {
	if k.bond != nil {
		return slices.Clone(k.bond.names)
	}
	return []string{k.session.name}
}

// Value returns what the lock's key holds on the nodes: 40 hexadecimal digits that are drawn by
// lot, and with the option Owner a time and a label behind them (see HolderOf). It is no secret,
// but a client that knows it can release the lock. No two processes ever have the same;
// callers of one process that hand a lock over to each other share it. Of a lock of several
// names it is the value of the first; the keys of the others may hold other values.
//
// Name and value are the lock's handle for other processes: see Locker.Adopt and
// Locker.ReleaseValue.
func (k *Lock) Value() string { return k.session.value }

// Context ends when the lock does: with cause ErrLost at its deadline at the
// latest, or as soon as a majority of nodes says that the lock is gone: at the next renewal,
// or within milliseconds where the nodes give hints (see package pool) and the lock has
// been held for 50 ms with a TTL of a second or more, unless its Locker holds 100,000 such
// locks already; with ErrReleased when it is released;
// with ErrClosed when the Locker is closed. On a machine that slept past the deadline it
// ends within a quarter of a second after the machine woke; Valid knows at once.
// context.Cause tells which, with details. It carries the values of the context given to
// Acquire, but does not end with it.
//
// Work that needs the lock must run under this context and stop when it ends.
func (k *Lock) Context() context.Context {
	if k.bond != nil {
		return k.bond.ctx
	}
	return k.context()
}

// Remaining returns for how long the lock is certainly held, if nothing
// renews it; zero once it is lost or released.
func (k *Lock) Remaining() time.Duration { return remaining(k.holds()) }

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
func (k *Lock) Votes() int { return votes(k.holds()) }

// Fence returns the lock's fencing token: of all the locks of this name that
// were granted with one (option Fenced), a later one has a greater token, also where callers
// of one Locker hand the lock over to each other. It is above zero and below 2^53. Zero without
// Fenced.
//
// Give it to the resource with every write, and let the resource reject a
// token lower than one it has seen: see package fence. A lock of several names has one for each, see
// FenceOf, and Fence returns zero.
func (k *Lock) Fence() int64 {
	if k.bond != nil && len(k.bond.names) > 1 {
		return 0
	}
	return k.token
}

// FenceOf returns the fencing token of one of the lock's names, as Fence does for a lock of one name.
// It is zero for a name that the lock does not have.
func (k *Lock) FenceOf(name string) int64 {
	for _, part := range k.holds() {
		if part.session.name == name {
			return part.token
		}
	}
	return 0
}

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
	defer k.session.group.awaitObservers()
	return extendAll(ctx, k.holds())
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
	return k.release(ctx)
}

func (k *Lock) release(ctx context.Context) error {
	defer k.session.group.awaitObservers()
	if k.bond != nil {
		return k.bond.release(ctx)
	}
	f := k.leave()
	votes, err := f.await(ctx, k.settings.timeout())
	if f.err == nil {
		k.tellEnd(Event{Votes: votes, Err: err})
	}
	return err
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
