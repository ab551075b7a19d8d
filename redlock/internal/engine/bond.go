package engine

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/redlock/internal/core"
)

// A Bond ties several Locks, possibly of several engines, together: when one Lock ends, all end. It
// is safe for concurrent use.
//
//	         lost, Close            its Owner                the goroutine
//	one Lock ───────────► Bond ended ───────► context ended ──────────────► the others are released
//	         Release ───► each is released, the context before the first
//
// A Bond notices an end while the key of that Lock is locked, so it cannot lock another key. A
// goroutine releases the others. It only submits the releases, so it waits only for the mutexes of
// keys. It counts as a key of the engine, so Close waits for it.
type Bond struct {
	mu       sync.Mutex // taken after the mutex of an entry
	owner    Owner      // may be nil
	locks    []Lock
	ended    Lock // first Lock that ended; zero before
	released bool // Release is in progress, and ends the other Locks
}

// Add adds the Lock to the Bond. It returns false if the Bond, and so the Lock, has ended.
func (b *Bond) Add(l Lock) bool {
	b.mu.Lock()
	isOver := b.ended.Hold != nil || b.released
	if !isOver {
		b.locks = append(b.locks, l)
	}
	b.mu.Unlock()
	if isOver {
		l.Drop()
		return false
	}
	if !l.Own(b) {
		drop(b.ends(l))
	}
	_, isOver = b.First()
	return !isOver
}

// ends records the end of a Lock. It returns the Locks that the caller must release.
func (b *Bond) ends(l Lock) []Lock {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended.Hold != nil {
		return nil
	}
	if b.ended = l; b.owner != nil {
		b.owner.Ended(l) // called under the mutex, so that no other Lock is released first
	}
	if b.released {
		return nil
	}
	return b.locks
}

// Ended implements Owner.
func (b *Bond) Ended(l Lock) {
	if locks := b.ends(l); len(locks) > 1 {
		e := l.entry.engine
		e.count(1)
		go func() {
			defer e.count(-1)
			drop(locks)
		}()
	}
}

// Extended implements Owner.
func (b *Bond) Extended(l Lock) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.owner != nil {
		b.owner.Extended(l)
	}
}

// drop releases Locks without waiting.
func drop(locks []Lock) {
	for _, l := range locks {
		l.Drop()
	}
}

// Own makes o the Owner of the Bond, in place of another. The Owner observes the first end and each
// extension of a Lock. If the Bond has ended, Own returns false and never calls o.
func (b *Bond) Own(o Owner) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.owner = o
	return b.ended.Hold == nil
}

// Locks returns the Locks in the order of Add.
func (b *Bond) Locks() []Lock {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.locks
}

// First returns the index of the first Lock that ended, if any.
func (b *Bond) First() (l Lock, hasEnded bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ended, b.ended.Hold != nil
}

// Deadline returns the end of the first Lock if no extension follows; zero after the end.
func (b *Bond) Deadline() (at clock.Instant) {
	for _, l := range b.Locks() {
		switch d := l.Deadline(); {
		case d == 0:
			return 0
		case at == 0 || d < at:
			at = d
		}
	}
	return at
}

// Votes returns the smallest number of nodes that hold a Lock.
func (b *Bond) Votes() (least int) {
	for i, l := range b.Locks() {
		if n := l.Votes(); i == 0 || n < least {
			least = n
		}
	}
	return least
}

// Release releases all Locks at once. It returns the smallest number of votes, and the worst
// failure. It has no effect after the end of the Bond, or after another call.
func (b *Bond) Release(ctx context.Context) (votes int, f *core.Failure) {
	locks := b.Locks()
	for _, l := range locks { // an expired Lock was lost
		l.entry.mu.Lock()
		l.entry.apply((*core.Key).Tick)
	}
	if !b.leave() {
		return 0, &core.Failure{Kind: core.NotHeld}
	}
	return await(ctx, locks, (*core.Key).Release)
}

// Drop releases all Locks without waiting.
func (b *Bond) Drop() {
	if b.leave() {
		drop(b.Locks())
	}
}

// leave records that the caller releases all Locks. It returns false if there is no need to.
func (b *Bond) leave() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	isOver := b.ended.Hold != nil || b.released
	b.released = true
	return !isOver
}

// Extend prolongs all Locks to their TTLs from now, or to ttl if that is longer. It returns the
// same as Release.
func (b *Bond) Extend(ctx context.Context, ttl time.Duration) (votes int, f *core.Failure) {
	return await(ctx, b.Locks(), extend(ttl))
}

// Change sets other Terms for the Locks. They differ only in Renew and MaxHold, and MaxHold counts
// from now.
func (b *Bond) Change(t *core.Terms) {
	for _, l := range b.Locks() {
		l.entry.mu.Lock()
		l.entry.apply(func(k *core.Key, now clock.Instant) { k.Change(l.Hold, t, now) })
	}
}

// KeepRenewed returns terms for Locks that wait for the rest of their Bond. These are always
// renewed.
func KeepRenewed(t *core.Terms) *core.Terms {
	if t.Renew && t.MaxHold == 0 {
		return t
	}
	kept := *t
	kept.Renew, kept.MaxHold = true, 0
	return &kept
}

// Settle moves Locks from the terms of KeepRenewed to the Terms of the caller. It waits through an
// outage according to the Schedule, and returns the outcome of Repeat. An ended Lock is not a
// failure here, because the Owner of the Bond handles it.
func (b *Bond) Settle(ctx context.Context, t *core.Terms, s Schedule) (*core.Failure, error) {
	e := b.Locks()[0].entry.engine
	f, err := e.Repeat(ctx, t, s, func(ctx context.Context) (f *core.Failure, worth int, err error) {
		_, f = b.Extend(ctx, 0)
		switch {
		case f == nil || f.Kind == core.NotHeld:
			return nil, 0, nil
		case ctx.Err() != nil: // ctx has ended the extension, so the nodes are not the obstacle
			f = &core.Failure{Kind: core.Unknown, At: e.clock.Now()}
		}
		return f, 0, ctx.Err()
	})
	if f == nil && err == nil {
		b.Change(t)
	}
	return f, err
}

// await runs a call on all Locks at once. An ended Lock is the worst failure.
func await(ctx context.Context, locks []Lock, do func(*core.Key, *core.Hold, *core.Caller, clock.Instant)) (votes int, worst *core.Failure) {
	calls := make([]call, len(locks))
	for i, l := range locks {
		calls[i] = l.call(do)
	}
	for i, c := range calls {
		n, f := c.outcome(ctx)
		if i == 0 || n < votes {
			votes = n
		}
		if f != nil && (worst == nil || f.Kind == core.NotHeld) {
			worst = f
		}
	}
	return votes, worst
}

// A Result is the outcome of a try.
type Result struct {
	Lock    // without a Hold if the try failed
	Failure *core.Failure
}

// TryAll tries each target once. It submits the requests of all before it waits, so that they share
// packets. After an error of the context, the Results are incomplete.
func TryAll(ctx context.Context, targets []Target, t *core.Terms) (results []Result, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	calls := make([]call, len(targets))
	for i, to := range targets {
		calls[i] = to.Engine.begin(to.Key, core.Caller{Terms: t, Try: true})
	}
	results = make([]Result, len(targets))
	for i, c := range calls {
		var interrupted error
		results[i].Lock, results[i].Failure, interrupted = c.grant(ctx)
		err = cmp.Or(err, interrupted)
	}
	return results, err
}
