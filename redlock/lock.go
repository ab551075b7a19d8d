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
// On the nodes it is one hold of package engine, or a bond of several holds: of several names, or
// of permits.
type Lock struct {
	*call
	parts []part  // at least one; constant once the caller has the Lock
	has   holding // all parts together
	room  [1]part // room for a single part

	mu         sync.Mutex
	isComplete bool            // the caller has the Lock
	isReleased bool            // the caller has released the Lock, perhaps too late
	downgraded bool            // the lock is now the lock of a reader
	cause      error           // cause of the end; nil while the lock has not ended
	ctx        context.Context // created on demand; nil before
	cancel     context.CancelCauseFunc
	until      []clock.Instant // deadline of each part after its last extension; nil without observers
	alarm      clock.Timer     // timer of WarnBefore; nil without it
}

// A holding is the state of a Lock on the nodes: a hold, a bond or permits.
type holding interface {
	Own(engine.Owner) bool
	Extend(ctx context.Context, ttl time.Duration) (votes int, f *core.Failure)
	Release(context.Context) (votes int, f *core.Failure)
	Drop() // like Release, without waiting
	Deadline() clock.Instant
	Votes() int
}

// A part is one hold of a Lock.
type part struct {
	name string
	at   *place
	slot int // slot of a permit
	lock engine.Lock
}

// target returns the target of the part, or for a permit the target whose slot it holds.
func (p *part) target() engine.Target {
	return engine.Target{Engine: p.at.engine, Key: p.at.locker.settings.prefix + p.name}
}

// complete gives the Lock to the caller. It returns false if the Lock has ended, or if the deadline
// of a part passed during the wait for another part, and no timer has reported that yet.
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
		k.until[i] = max(k.until[i], until[i]) // the part may have been extended in the meantime
	}
	k.isComplete = k.cause == nil
	return k.isComplete
}

func (k *Lock) now() clock.Instant { return k.locker.settings.clock.Now() }

// An owner is a Lock in its role for the engine.
type owner Lock

// Ended implements engine.Owner.
func (o *owner) Ended(l engine.Lock) {
	k := (*Lock)(o)
	k.end(k.causeOf(l), l.Reason)
}

// end ends the Lock, unless it has already ended.
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
	if !isComplete || !k.locker.isObserved() || why == core.Released { // for a release, Release publishes the event
		return
	}
	e := k.event(EventLost)
	if e.Err = cause; why == core.Closed {
		e.Kind, e.Err = EventReleased, ErrClosed
	}
	e.Elapsed = k.heldFor()
	k.locker.publish(e)
}

// heldFor returns the time since the start of the last successful try of its holds, or since the
// handover.
func (k *Lock) heldFor() time.Duration {
	var since clock.Instant
	for _, p := range k.parts {
		since = max(since, p.lock.Since)
	}
	return k.now().Sub(since)
}

// causeOf returns the cause of the end of the Lock after one of its holds has ended.
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

// earliest returns the end of the first part to end. The caller must hold k.mu.
func (k *Lock) earliest() clock.Instant {
	if len(k.until) == 0 {
		return 0
	}
	return slices.Min(k.until)
}

// event returns an event of the Lock.
func (k *Lock) event(kind EventKind) Event {
	e := Event{Kind: kind, Context: k.call.ctx, Name: k.name, Group: k.parts[0].at.name}
	if n := k.settings.holders(); n > 1 {
		e.Permits, e.Permit = n, k.Permit()
	}
	return e
}

// Name returns the name with which the lock was acquired. For a lock of several names (AcquireAll)
// it is a text for people that begins with the first name.
func (k *Lock) Name() string { return k.name }

// Names returns the names with which the lock was acquired, sorted and without duplicates. The
// caller may change the slice.
func (k *Lock) Names() []string { return slices.Clone(k.each()) }

// Value returns the value of the lock's key on the nodes: 40 random hexadecimal digits, and with
// the option Owner a time and a label (see HolderOf). For a lock of several names it is the value
// of the first; the others may differ.
//
// Another process can adopt or release the lock by its name and value: see Locker.Adopt and
// Locker.ReleaseValue. Therefore Release does not hand a lock over after a call of Value: the next
// caller gets its own value, at the cost of an attempt. Value is empty if the lock was handed over
// before. Readers of one process share a value. Value is safe for concurrent use.
func (k *Lock) Value() string { return k.parts[0].lock.Value() }

// Context ends when the lock does. Work that needs the lock must run under this context and stop
// when it ends. context.Cause returns the reason with details: ErrLost, ErrReleased or ErrClosed.
// The context has the values of the context passed to Acquire, but does not end with it; see Bind.
//
// A lost lock ends at its deadline at the latest. If a majority of nodes reports earlier that the
// lock is gone, it ends at the next renewal, or within milliseconds if nodes send hints (see
// package pool). Hints are sent for locks with a TTL of a second or more that have been held for 50
// ms, and for at most 100,000 keys of a Locker. After a sleep of the machine past the deadline, the
// context ends within a quarter of a second of waking; Valid returns false at once.
func (k *Lock) Context() context.Context {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ctx == nil {
		k.ctx, k.cancel = context.WithCancelCause(context.WithValue(context.WithoutCancel(k.call.ctx), heldKey{}, k))
		if k.cause != nil {
			k.cancel(k.cause)
		}
	}
	return k.ctx
}

// Remaining returns the time for which the lock is certainly held without a renewal, and zero once
// it is lost or released.
func (k *Lock) Remaining() time.Duration {
	at := k.has.Deadline()
	if at == 0 || k.hasEnded() != nil {
		return 0
	}
	return max(0, at.Sub(k.now()))
}

// hasEnded returns the reason the Lock has ended, or nil.
func (k *Lock) hasEnded() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.cause
}

// Valid reports whether the lock is held at this moment.
func (k *Lock) Valid() bool { return k.Remaining() > 0 }

// Until returns the end of the lock without a renewal, by this machine's wall clock, or the zero
// time once it is lost or released. It is for people and logs. In programs use Valid, Remaining or
// Context, because the wall clock can be set.
func (k *Lock) Until() time.Time {
	left := k.Remaining()
	if left == 0 {
		return time.Time{}
	}
	return time.Now().Add(left)
}

// Votes returns the number of nodes that are known to hold the lock, and zero once it is lost or
// released. It counts nodes that granted the lock or its last extension, and nodes on which it was
// repaired since. The votes above the quorum are the lock's margin: that number of nodes can forget
// it before another client can get it.
func (k *Lock) Votes() int {
	if k.Remaining() == 0 {
		return 0
	}
	return k.has.Votes()
}

// Fence returns the lock's fencing token (option Fenced), above zero and below 2^53. A later lock
// of this name has a greater token, even after a handover within a process. Fence is zero without
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

// FenceOf returns the fencing token of one of the lock's names, and zero for any other name.
func (k *Lock) FenceOf(name string) int64 {
	for _, p := range k.parts {
		if p.name == name {
			return p.lock.Token
		}
	}
	return 0
}

// Extend renews the lock now, for its full TTL from the start of the call. It never shortens the
// remaining time, and does not affect the renewals. It returns within the node timeout, or twice
// that if the nodes' records have changed and must be read.
//
// The error is ErrLost if the deadline has passed or a majority no longer holds the lock, which has
// then ended. It is ErrReleased or ErrClosed after Release or Close. It is ErrNoQuorum or ctx's
// error if too few nodes answered: the lock is then held until its old deadline, and the call can
// be repeated.
func (k *Lock) Extend(ctx context.Context) error { return k.extend(ctx, 0) }

// ExtendFor extends the lock like Extend, for the TTL ttl, which replaces the lock's TTL. If ttl is
// below the lock's TTL, the lock is extended for its own TTL instead. ExtendFor returns an error,
// and extends nothing, if the Locker does not allow that TTL.
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
		if f == nil || !f.IsEarly { // otherwise the nodes have the longer TTL on record now, and will grant it
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
		case f.Answers == nil: // no node was asked: the lock has ended, or another caller is releasing it
			return fmt.Errorf("redlock: %q: %w", k.name, cmp.Or(cause, ErrReleased))
		}
	}
	return k.parts[0].at.errorOf(about{op: op, name: k.name}, f, ctx.Err())
}

// Bind returns a context that ends with ctx, and when the lock ends, with the cause of Context.
// Call cancel when the work is done: it ends the context and frees its resources. Bind is safe for
// concurrent use.
func (k *Lock) Bind(ctx context.Context) (bound context.Context, cancel context.CancelFunc) {
	bound, end := context.WithCancelCause(context.WithValue(ctx, heldKey{}, k))
	ended := k.Context()
	unlink := context.AfterFunc(ended, func() { end(context.Cause(ended)) })
	return bound, func() {
		unlink()
		end(nil)
	}
}

// heldKey is the context key of a lock.
type heldKey struct{}

// FromContext returns the lock under which ctx runs: the Lock whose Do, Context or Bind created
// ctx, or a context from which ctx is derived. If there are several, it returns the innermost one;
// it returns nil if there are none. The lock may have ended since: see Valid.
//
// Acquire and Do return an error if ctx runs under a lock of the same Locker and name, because they
// would wait for it without end. If a goroutine may wait until the lock is released, pass it a
// context that is not derived from the lock's context.
func FromContext(ctx context.Context) *Lock {
	k, _ := ctx.Value(heldKey{}).(*Lock)
	return k
}

// checkNested returns an error if the call would wait for a lock under which its context runs.
func (c *call) checkNested() error {
	for k := FromContext(c.ctx); k != nil; k = FromContext(k.call.ctx) {
		if k.locker != c.locker || !k.blocks(c.settings) || !k.Valid() {
			continue
		}
		for _, name := range c.each() {
			if slices.Contains(k.each(), name) {
				return fmt.Errorf("redlock: acquire %q: the context runs under this lock already, and locks are not re-entrant: "+
					"pass the Lock down (see FromContext), or release it first", name)
			}
		}
	}
	return nil
}

// blocks reports whether another lock of the name with these settings would have to wait for the
// end of this one.
func (k *Lock) blocks(other *settings) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	readers := other.Shared && (k.settings.Shared || k.downgraded)
	permits := other.holders() > 1 && k.settings.holders() > 1
	return !readers && !permits
}

// Release ends the lock. Its context ends at once, with cause ErrReleased. If another caller of the
// Locker waits for such a lock, the lock is handed over to that caller, and Release returns at
// once. Otherwise all nodes are asked to delete the key if it holds the lock's value, and Release
// returns when a quorum has confirmed, or after the node timeout.
//
// ctx limits only the wait. The requests are sent even if ctx has ended, so defer lock.Release(ctx)
// is correct.
//
// The error is ErrLost if the lock was no longer held, so that work may have run unprotected. It is
// ErrReleased or ErrClosed if the lock was released before. It is ErrNoQuorum or ctx's error if too
// few nodes confirmed; then the release continues in the background, and the key expires within the
// TTL. Release is safe for concurrent use.
func (k *Lock) Release(ctx context.Context) error {
	if ctx == nil { // the lock must be released nevertheless
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

// Downgrade converts the lock of a writer to the lock of a reader. No other writer can get it in
// between, and its Context stays the same. Downgrade extends the lock as Extend does, with the same
// errors. After ErrNoQuorum or ctx's error the lock is still held, on some nodes as a writer's
// lock, and the next renewal or Downgrade completes the change. For a reader Downgrade is the same
// as Extend.
//
// The fencing token stays, but orders no later write. For locks of several names, and with Permits,
// Downgrade is an error and changes nothing.
func (k *Lock) Downgrade(ctx context.Context) error {
	if ctx == nil {
		return nilContext(protocol.OpExtend, k.name)
	}
	switch { // readers hold a single name
	case k.names != nil:
		return fmt.Errorf("redlock: downgrade %q: readers lock one name at a time, and this lock has several names: keep it, or release it", k.Name())
	case k.settings.holders() > 1:
		return fmt.Errorf("redlock: downgrade %q: a permit cannot become the lock of a reader: keep it, or release it", k.name)
	}
	defer k.locker.awaitObservers()
	_, f := k.parts[0].lock.Downgrade(ctx)
	if f == nil {
		k.mu.Lock()
		k.downgraded = true
		k.mu.Unlock()
	}
	return k.failed(ctx, protocol.OpExtend, f)
}

// Permit returns the number of the lock's permit, from zero to k-1 with the option Permits(k). No
// two holders have the same permit at the same time. With Weight it is one of the permits; without
// Permits it is zero.
func (k *Lock) Permit() int { return k.parts[0].slot }

// Permits returns the numbers of the lock's permits, in rising order: as many as its Weight. See
// Permit.
func (k *Lock) Permits() (permits []int) {
	for _, p := range k.parts {
		permits = append(permits, p.slot)
	}
	slices.Sort(permits)
	return permits
}
