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

// A Lock is held from the moment Acquire returns it until it is released or lost. It is safe for
// concurrent use.
//
// On the nodes it is one hold of package engine, or a bond of several: of several names, or of
// permits.
type Lock struct {
	*call
	parts []part  // one at least; they do not change once the caller has the Lock
	has   holding // all of them
	room  [1]part // for the only one

	mu         sync.Mutex
	isComplete bool            // the caller has it
	isReleased bool            // the caller has released it, perhaps too late
	cause      error           // of the end; nil: it has not ended
	ctx        context.Context // nil: no caller has asked for it yet
	cancel     context.CancelCauseFunc
	until      []clock.Instant // of each part, as it was last extended; none without observers
	alarm      clock.Timer     // for WarnBefore; nil without
}

// A holding is what a Lock has on the nodes: a hold, a bond or permits.
type holding interface {
	Own(engine.Owner) bool
	Extend(ctx context.Context, ttl time.Duration) (votes int, f *core.Failure)
	Release(context.Context) (votes int, f *core.Failure)
	Drop() // is a Release that is not waited for
	Deadline() clock.Instant
	Votes() int
}

// A part is one hold of a Lock.
type part struct {
	name string
	at   *place
	slot int // of a permit
	lock engine.Lock
}

// target is what the part locks, or the slots of which are its permits.
func (p *part) target() engine.Target {
	return engine.Target{Engine: p.at.engine, Key: p.at.locker.settings.prefix + p.name}
}

// complete says that the caller has the Lock from now on. It returns false if that has ended, or if a part's deadline
// passed while another was waited for, and no timer has told yet.
func (k *Lock) complete() bool {
	if k.locker.isObserved() {
		k.until = make([]clock.Instant, len(k.parts))
	}
	if !k.has.Own((*owner)(k)) || len(k.parts) > 1 && k.has.Deadline() <= k.now() {
		return false
	}
	until := make([]clock.Instant, len(k.until))
	for i := range until {
		until[i] = k.parts[i].lock.Deadline()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range until {
		k.until[i] = max(k.until[i], until[i]) // an extension may have come meanwhile
	}
	k.isComplete = k.cause == nil
	return k.isComplete
}

func (k *Lock) now() clock.Instant { return k.locker.settings.clock.Now() }

// An owner is a Lock as the engine sees it.
type owner Lock

// Ended implements engine.Owner.
func (o *owner) Ended(l engine.Lock) {
	k := (*Lock)(o)
	k.end(k.causeOf(l), l.Reason)
}

// end ends the Lock, unless it has ended before.
func (k *Lock) end(cause error, why core.Reason) {
	k.mu.Lock()
	if k.cause != nil {
		k.mu.Unlock()
		return
	}
	k.cause = cause
	cancel, isComplete := k.cancel, k.isComplete
	if k.alarm != nil {
		k.alarm.Stop()
	}
	k.mu.Unlock()
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
	var since clock.Instant
	for _, p := range k.parts {
		since = max(since, p.lock.Since)
	}
	return k.now().Sub(since)
}

// causeOf is why the Lock has ended with a hold.
func (k *Lock) causeOf(l engine.Lock) error {
	switch l.Reason {
	case core.Released:
		return ErrReleased
	case core.Closed:
		return ErrClosed
	}
	of := k.parts[max(0, slices.IndexFunc(k.parts, func(p part) bool { return p.lock.Hold == l.Hold }))]
	name, p := of.name, of.at
	reason, lost, maxHold := l.Reason, l.Lost, l.Terms.MaxHold
	return &loss{compose: func() error {
		switch {
		case reason == core.HeldLong:
			return fmt.Errorf("redlock: %q: %w: held for its MaxHold of %v", name, ErrLost, maxHold)
		case lost == nil:
			return fmt.Errorf("redlock: %q: %w", name, errNotExtended)
		}
		a := about{op: protocol.OpExtend, name: name, kind: errNotExtended}
		if reason != core.Overdue {
			a.kind, a.isTaken = ErrLost, true
		}
		return p.errorOf(a, lost, nil)
	}}
}

// Extended implements engine.Owner.
func (o *owner) Extended(l engine.Lock) {
	k := (*Lock)(o)
	if !k.locker.isObserved() {
		return
	}
	until, votes, ttl := l.Hold.Deadline(), l.Claim.Votes(), l.Claim.Terms.TTL
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.earliest()
	for i := range k.parts {
		if k.parts[i].lock.Hold == l.Hold {
			k.until[i] = until
		}
	}
	ends := k.earliest()
	if !k.isComplete || k.cause != nil || len(k.parts) > 1 && ends <= before { // another part ends first
		return
	}
	e := k.event(EventExtended)
	now := k.now()
	e.Votes, e.Remaining = votes, ends.Sub(now)
	e.Elapsed = now.Sub(l.Claim.Until()) + ttl - Drift(ttl)
	k.locker.publish(e)
}

// earliest returns when the first part ends. Its caller holds k.mu.
func (k *Lock) earliest() clock.Instant {
	if len(k.until) == 0 {
		return 0
	}
	return slices.Min(k.until)
}

// event makes one of the Lock.
func (k *Lock) event(kind EventKind) Event {
	e := Event{Kind: kind, Context: k.call.ctx, Name: k.name, Group: k.parts[0].at.name}
	if n := k.settings.holders(); n > 1 {
		e.Permits, e.Permit = n, k.Permit()
	}
	return e
}

// Name returns the name that the lock was acquired by. For a lock of several names (AcquireAll) it
// is a text for people that begins with the first.
func (k *Lock) Name() string { return k.name }

// Names returns the names that the lock was acquired by, sorted and without duplicates. The slice
// is the caller's.
func (k *Lock) Names() []string { return slices.Clone(k.each()) }

// Value returns what the lock's key holds on the nodes: 40 random hexadecimal digits, and with the
// option Owner a time and a label (see HolderOf). A lock of several names has the value of the first
// here; the others' may differ.
//
// Name and value let another process take over or release the lock: see Locker.Adopt and
// Locker.ReleaseValue. So Release does not hand a lock over after a call of Value: the next caller
// gets a value of its own, at the cost of an acquisition. Value is empty if the lock was handed over
// before. Readers of one process share a value. Value is safe for concurrent use.
func (k *Lock) Value() string { return k.parts[0].lock.Value() }

// Context ends when the lock does. Work that needs the lock must run under this context and stop
// when it ends. context.Cause tells why, with details: ErrLost, ErrReleased or ErrClosed. The
// context has the values of the one given to Acquire, but does not end with it; see Bind.
//
// A lost lock ends at its deadline at the latest. If a majority of nodes says earlier that the lock
// is gone, it ends at the next renewal, or within milliseconds if nodes give hints (see package
// pool). Hints come for locks with a TTL of a second or more that have been held for 50 ms, and for
// at most 100,000 keys of a Locker. After a sleep of the machine past the deadline, the context
// ends within a quarter of a second of waking; Valid knows at once.
func (k *Lock) Context() context.Context {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ctx == nil {
		k.ctx, k.cancel = context.WithCancelCause(context.WithoutCancel(k.call.ctx))
		if k.cause != nil {
			k.cancel(k.cause)
		}
	}
	return k.ctx
}

// Remaining returns how long the lock is certainly held without a renewal, and zero once it is lost
// or released.
func (k *Lock) Remaining() time.Duration {
	at := k.has.Deadline()
	if at == 0 || k.hasEnded() != nil {
		return 0
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

// Until returns when the lock ends without a renewal, by this machine's wall clock, or the zero
// time once it is lost or released. It is for people and logs. Decide by Valid, Remaining or
// Context, because the wall clock can be set.
func (k *Lock) Until() time.Time {
	left := k.Remaining()
	if left == 0 {
		return time.Time{}
	}
	return time.Now().Add(left)
}

// Votes returns how many nodes are known to hold the lock, and zero once it is lost or released. It
// counts nodes that granted the lock or its last extension, and those that were given it again
// since. The votes above the quorum are the lock's margin: so many nodes can forget it before
// another client can get it.
func (k *Lock) Votes() int {
	if k.Remaining() == 0 {
		return 0
	}
	return k.has.Votes()
}

// Fence returns the lock's fencing token (option Fenced), above zero and below 2^53. A later lock
// of this name has a greater one, also after a handover within a process. It is zero without
// Fenced, and for a lock of several names: see FenceOf.
//
// Send it to the resource with every write, and let the resource reject a lower token than it has
// seen: see package fence.
func (k *Lock) Fence() int64 {
	if k.names != nil {
		return 0
	}
	return k.parts[0].lock.Token
}

// FenceOf returns the fencing token of one of the lock's names, and zero for a name that the lock
// does not have.
func (k *Lock) FenceOf(name string) int64 {
	for _, p := range k.parts {
		if p.name == name {
			return p.lock.Token
		}
	}
	return 0
}

// Extend renews the lock now, for its full TTL from the start of the call. It never shortens what
// is left, and does not disturb the renewals. It returns within the node timeout, or twice that if
// the nodes' records have changed and must be read.
//
// Errors: ErrLost if the deadline has passed or a majority no longer holds the lock, which has then
// ended; ErrReleased or ErrClosed after Release or Close; ErrNoQuorum or ctx's error if too few
// nodes answered. Then the lock is held until its old deadline, and it makes sense to ask again.
func (k *Lock) Extend(ctx context.Context) error { return k.extend(ctx, 0) }

// ExtendFor is Extend for a TTL of ttl, which the lock has from then on. A ttl below its TTL changes
// nothing: the lock is extended for the TTL that it has. ExtendFor returns an error, and extends
// nothing, if the Locker would take no lock with that TTL.
func (k *Lock) ExtendFor(ctx context.Context, ttl time.Duration) error {
	if ttl > k.settings.TTL {
		if _, err := k.settings.with([]Option{TTL(ttl)}); err != nil {
			return err
		}
	}
	return k.extend(ctx, ttl.Truncate(time.Millisecond))
}

func (k *Lock) extend(ctx context.Context, ttl time.Duration) error {
	if ctx == nil {
		return nilContext(protocol.OpExtend, k.name)
	}
	defer k.locker.awaitObservers()
	_, f := k.has.Extend(ctx, ttl)
	for range 2 {
		if f == nil || !f.IsEarly { // else the nodes have the longer TTL on record now, and will grant it
			break
		}
		_, f = k.has.Extend(ctx, ttl)
	}
	return k.failed(ctx, protocol.OpExtend, f)
}

// failed returns the error of a request about the Lock, or nil if f is nil.
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
	return k.parts[0].at.errorOf(about{op: op, name: k.name}, f, ctx.Err())
}

// Bind returns a context that ends with ctx, and when the lock ends, with the cause of Context.
// Call cancel when the work is done: it ends the context and frees its resources. Bind is safe for
// concurrent use.
func (k *Lock) Bind(ctx context.Context) (bound context.Context, cancel context.CancelFunc) {
	bound, end := context.WithCancelCause(ctx)
	ended := k.Context()
	unlink := context.AfterFunc(ended, func() { end(context.Cause(ended)) })
	return bound, func() {
		unlink()
		end(nil)
	}
}

// Release ends the lock. Its context ends at once, with cause ErrReleased. If another caller of the
// Locker waits for such a lock, that caller gets this one, and Release returns at once. Otherwise
// all nodes are asked to delete the key if it holds the lock's value, and Release returns when a
// quorum has confirmed, or after the node timeout.
//
// ctx bounds the waiting only. The requests are sent even if ctx has ended, so defer
// lock.Release(ctx) is right.
//
// Errors: ErrLost if the lock was no longer held, so work may have run unprotected; ErrReleased or
// ErrClosed if it was released before; ErrNoQuorum or ctx's error if too few nodes confirmed. Then
// the release goes on in the background, and the key expires within the TTL. Release is safe for
// concurrent use.
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
	isFirst := !k.isReleased && k.cause == nil
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

// Downgrade makes a writer's lock that of a reader. No other writer can get it in between, and it
// goes on under the same Context. Downgrade extends the lock as Extend does, with the same errors.
// After ErrNoQuorum or ctx's error the lock is still held, by some nodes as a writer's, and the
// next renewal or Downgrade completes the change. For a reader it is Extend.
//
// The fencing token stays, but orders no later write. For locks of several names, and with Permits,
// Downgrade is an error and changes nothing.
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
	_, f := k.parts[0].lock.Downgrade(ctx)
	return k.failed(ctx, protocol.OpExtend, f)
}

// Permit returns which permit the lock has, from zero to k-1 with the option Permits(k). No two
// holders have the same at one time. With Weight it is one of them; without Permits it is zero.
func (k *Lock) Permit() int { return k.parts[0].slot }

// Permits returns which permits the lock has, in rising order: as many as its Weight. See Permit.
func (k *Lock) Permits() (permits []int) {
	for _, p := range k.parts {
		permits = append(permits, p.slot)
	}
	slices.Sort(permits)
	return permits
}
