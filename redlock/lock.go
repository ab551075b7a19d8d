package redlock

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/engine"
)

// A Lock is held from the moment Acquire returns it until it is released or
// lost, whichever is first. It is safe for concurrent use.
//
// What it holds on the nodes is one hold of package engine, or a bond of several: of several names, of a
// name in two groups, or of permits.
type Lock struct {
	*call
	at    *place       // the first
	has   holding      // one, or the bond, or permits
	one   engine.Lock  // of one hold
	bond  *engine.Bond // of several
	parts []part       // of the bond
	slots []int        // of permits
	token int64

	mu         sync.Mutex
	isComplete bool // the caller has it
	isReleased bool // the caller has released it, perhaps too late
	isEnded    bool
	cause      error           // of the end
	ctx        context.Context // nil: no caller has asked for it yet
	cancel     context.CancelCauseFunc
	until      []clock.Instant // of each part, as it was last extended
	told       clock.Instant   // of a bond: the deadline that observers know of
}

// A holding is what a Lock has on the nodes.
type holding interface {
	Own(engine.Owner) bool
	Extend(context.Context) (votes int, f *core.Failure)
	Release(context.Context) (votes int, f *core.Failure)
	Drop() // is a Release that is not waited for
	Deadline() clock.Instant
	Votes() int
}

// A part is one hold of a bond.
type part struct {
	name  string
	at    *place
	slot  int // of a permit
	lock  engine.Lock
	token int64
}

// complete says that the caller has the Lock from now on. It returns false if that has ended.
func (k *Lock) complete() bool {
	k.until = make([]clock.Instant, len(k.parts))
	if !k.has.Own((*owner)(k)) {
		return false
	}
	until := make([]clock.Instant, len(k.parts))
	for i, p := range k.parts {
		until[i] = p.lock.Deadline()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range until {
		k.until[i] = max(k.until[i], until[i]) // an extension may have come meanwhile
	}
	k.told, k.isComplete = k.earliest(), !k.isEnded
	return k.isComplete
}

// ctxOfCaller bounds the waiting for the Lock.
func (k *Lock) ctxOfCaller() context.Context { return k.call.ctx }

func (k *Lock) now() clock.Instant { return k.locker.settings.clock.Now() }

// An owner is a Lock as the engine sees it.
type owner Lock

// Ended implements engine.Owner.
func (o *owner) Ended(l engine.Lock) {
	k := (*Lock)(o)
	k.end(k.causeOf(l), l.Reason)
}

// end ends the Lock for that reason, if it has not ended.
func (k *Lock) end(cause error, why core.Reason) {
	k.mu.Lock()
	if k.isEnded {
		k.mu.Unlock()
		return
	}
	k.isEnded, k.cause = true, cause
	cancel, isComplete := k.cancel, k.isComplete
	k.mu.Unlock()
	k.leave()
	if cancel != nil {
		cancel(cause)
	}
	if !isComplete || !k.locker.isObserved() || why == core.Released { // then Release tells
		return
	}
	e := k.event(EventLost)
	if e.Err = cause; why == core.Closed {
		e.Kind, e.Err = EventReleased, ErrClosed
	}
	e.Elapsed = k.heldFor()
	k.locker.publish(e)
}

// heldFor is the time since the last of its holds was asked for, or handed over.
func (k *Lock) heldFor() time.Duration {
	since := k.first().Since
	for _, p := range k.parts {
		since = max(since, p.lock.Since)
	}
	return k.now().Sub(since)
}

// causeOf is why the Lock has ended with a hold, or with a presence.
func (k *Lock) causeOf(l engine.Lock) error {
	switch l.Reason {
	case core.Released:
		return ErrReleased
	case core.Closed:
		return ErrClosed
	}
	of := &loss{name: k.name}
	p := k.at
	isPresence := k.parts != nil
	for _, part := range k.parts {
		if part.at.engine == l.Target().Engine {
			p = part.at
			if part.lock.Hold == l.Hold {
				isPresence, of.name = false, part.name
			}
		}
	}
	switch lost := l.Lost; {
	case isPresence:
		of.absent = true
	case l.Reason == core.HeldLong:
		of.maxHold = l.Terms.MaxHold
	case lost != nil:
		of.explain = func() *QuorumError {
			e := p.errorOf(protocol.OpExtend, of.name, lost, nil)
			if e.Err = errNotExtended; l.Reason != core.Overdue {
				e.Err, e.isTaken = ErrLost, true
			}
			return e
		}
	}
	return of
}

// Extended implements engine.Owner.
func (o *owner) Extended(l engine.Lock) {
	k := (*Lock)(o)
	if !k.locker.isObserved() {
		return
	}
	until, votes := l.Hold.Deadline(), l.Claim.Votes()
	k.mu.Lock()
	defer k.mu.Unlock()
	ends := until
	if k.parts != nil {
		for i := range k.parts {
			if k.parts[i].lock.Hold == l.Hold {
				k.until[i] = until
			}
		}
		if ends = k.earliest(); ends <= k.told { // another part ends first
			return
		}
	}
	if !k.isComplete || k.isEnded {
		return
	}
	k.told = ends
	e := k.event(EventExtended)
	now := k.now()
	e.Votes, e.Remaining = votes, ends.Sub(now)
	e.Elapsed = now.Sub(until) + k.settings.ttl - Drift(k.settings.ttl)
	k.locker.publish(e)
}

// earliest is when the first part ends. The Lock must be locked.
func (k *Lock) earliest() (at clock.Instant) {
	for i, until := range k.until {
		if i == 0 || until < at {
			at = until
		}
	}
	return at
}

// event makes one of the Lock.
func (k *Lock) event(kind EventKind) Event {
	e := Event{Kind: kind, Context: k.call.ctx, Name: k.name, Group: k.at.name}
	if n := k.settings.holders(); n > 1 {
		e.Permits, e.Permit = n, k.Permit()
	}
	return e
}

// Name returns the name that the lock was acquired by; of a lock of several names (AcquireAll)
// a text for people, with the first of them.
func (k *Lock) Name() string { return k.name }

// Names returns the names that the lock was acquired by, sorted and without doubles: one, or
// those of AcquireAll. The slice is the caller's.
func (k *Lock) Names() []string { return slices.Clone(k.each()) }

// Value returns what the lock's key holds on the nodes: 40 hexadecimal digits that are drawn by
// lot, and with the option Owner a time and a label behind them (see HolderOf). It is no secret,
// but a client that knows it can release the lock. No two processes ever have the same;
// callers of one process that hand a lock over to each other share it. Of a lock of several
// names it is the value of the first; the keys of the others may hold other values.
//
// Name and value are the lock's handle for other processes: see Locker.Adopt and
// Locker.ReleaseValue.
func (k *Lock) Value() string { return k.first().Claim.Value }

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
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ctx == nil {
		k.ctx, k.cancel = context.WithCancelCause(context.WithoutCancel(k.call.ctx))
		if k.isEnded {
			k.cancel(k.cause)
		}
	}
	return k.ctx
}

// first returns the first hold.
func (k *Lock) first() engine.Lock {
	if k.parts == nil {
		return k.one
	}
	return k.parts[0].lock
}

// Remaining returns for how long the lock is certainly held, if nothing
// renews it; zero once it is lost or released.
func (k *Lock) Remaining() time.Duration {
	at := k.has.Deadline()
	if at == 0 || k.hasEnded() != nil {
		return 0
	}
	if k.locker.groups != nil {
		for _, p := range k.places() {
			at = min(at, p.member.Until())
		}
	}
	return max(0, at.Sub(k.now()))
}

// hasEnded returns why the Lock has ended, or nil.
func (k *Lock) hasEnded() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.cause
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
	if k.Remaining() == 0 {
		return 0
	}
	return k.has.Votes()
}

// Fence returns the lock's fencing token: of all the locks of this name that
// were granted with one (option Fenced), a later one has a greater token, also where callers
// of one Locker hand the lock over to each other. It is above zero and below 2^53. Zero without
// Fenced.
//
// Give it to the resource with every write, and let the resource reject a
// token lower than one it has seen: see package fence. A lock of several names has one for each, see
// FenceOf, and Fence returns zero.
func (k *Lock) Fence() int64 {
	if k.names != nil {
		return 0
	}
	return k.token
}

// FenceOf returns the fencing token of one of the lock's names, as Fence does for a lock of one name.
// It is zero for a name that the lock does not have.
func (k *Lock) FenceOf(name string) int64 {
	if k.names == nil && name == k.name {
		return k.token
	}
	for _, p := range k.parts {
		if p.name == name {
			return p.token
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
		return nilContext(protocol.OpExtend, k.name)
	}
	defer k.locker.awaitObservers()
	_, f := k.has.Extend(ctx)
	return k.failed(ctx, protocol.OpExtend, f)
}

// failed is the error of what was asked about the Lock.
func (k *Lock) failed(ctx context.Context, op protocol.Op, f *core.Failure) error {
	if f == nil {
		return nil
	}
	if f.Kind == core.NotHeld {
		switch cause := k.hasEnded(); {
		case cause != nil && cause != ErrReleased && cause != ErrClosed:
			return cause // lost
		case f.Answers == nil: // no node was asked: it has ended, or another caller is releasing it
			return fmt.Errorf("redlock: %q: %w", k.name, cmp.Or(cause, ErrReleased))
		}
	}
	return k.at.errorOf(op, k.name, f, ctx.Err())
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
		return nilContext(protocol.OpRelease, k.name)
	}
	return k.release(ctx)
}

func (k *Lock) release(ctx context.Context) error {
	defer k.locker.awaitObservers()
	k.mu.Lock()
	isFirst := !k.isReleased && !k.isEnded
	k.isReleased = true
	k.mu.Unlock()
	votes, f := k.has.Release(ctx)
	err := k.failed(ctx, protocol.OpRelease, f)
	if isFirst && k.hasEnded() == ErrReleased && k.locker.isObserved() {
		e := k.event(EventReleased)
		e.Votes, e.Err, e.Elapsed = votes, err, k.heldFor()
		k.locker.publish(e)
	}
	return err
}

// Downgrade makes a writer's lock that of a reader, without a moment between in which another
// writer could have it: readers come in, and the lock goes on under the same Context. It
// extends the lock as Extend does, and has the same errors. After an error other than ErrLost,
// ErrReleased and ErrClosed the lock is still held, as a reader's by some nodes and as a writer's
// by others, and the next renewal or Downgrade goes on with it. For a reader it is Extend. The
// fencing token stays what it was, and orders no write that comes after. Locks of several names and
// those with Permits stay what they are: Downgrade is an error for them, and changes nothing.
func (k *Lock) Downgrade(ctx context.Context) error {
	if ctx == nil {
		return nilContext(protocol.OpExtend, k.name)
	}
	switch { // readers lock one name, and have one set for it
	case k.names != nil:
		return fmt.Errorf("redlock: downgrade %q: readers lock one name at a time, and this is a lock of several names: keep it, or release it", k.Name())
	case k.settings.holders() > 1:
		return fmt.Errorf("redlock: downgrade %q: a permit is no writer's lock: keep it, or release it", k.name)
	}
	defer k.locker.awaitObservers()
	locks := []engine.Lock{k.one}
	if k.parts != nil {
		locks = nil
		for _, p := range k.parts {
			locks = append(locks, p.lock)
		}
	}
	for _, l := range locks {
		_, f := l.Downgrade(ctx)
		if err := k.failed(ctx, protocol.OpExtend, f); err != nil {
			return err
		}
	}
	return nil
}

// Permit returns which permit the lock is, from zero to k-1 with the option Permits(k). No two
// holders have the same at one time. Zero without Permits. With Weight it is one of them.
func (k *Lock) Permit() int {
	if len(k.slots) == 0 {
		return 0
	}
	return k.slots[0]
}

// Permits returns which permits the lock is, in rising order: as many as its Weight, one without it. See
// Permit.
func (k *Lock) Permits() (permits []int) {
	if len(k.slots) == 0 {
		return []int{0}
	}
	return slices.Sorted(slices.Values(k.slots))
}
