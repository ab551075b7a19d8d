package engine

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/redlock/internal/core"
)

// A Bond is several Locks that end together: the first that ends ends all. Its Locks can be of several
// engines. It is safe for concurrent use.
//
//	         lost, Close            its Owner                the goroutine
//	one Lock ───────────► Bond ended ───────► context ended ──────────────► the others are released
//	         Release ───► each is released, the context before the first
//
// A Bond learns of an end while the key of that Lock is locked, where no other key can be. So a goroutine
// releases the others. It only submits the releases, so it waits for nothing but the mutexes of keys. Until it
// is through it counts as a key of the engine, which Close waits for.
type Bond struct {
	mu       sync.Mutex // taken after that of an entry
	owner    Owner      // nil: none
	locks    []Lock
	ended    Lock // the first that has ended, if one has
	released bool // Release has begun, and ends the others
}

// Add puts the Lock into the Bond. It returns false if the Bond has ended; then the Lock has ended, too.
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

// ends notes that a Lock has ended. It returns the Locks if they are to be released.
func (b *Bond) ends(l Lock) []Lock {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended.Hold != nil {
		return nil
	}
	if b.ended = l; b.owner != nil {
		b.owner.Ended(l) // under the mutex: another Lock that ends must not be given back before
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

// drop releases Locks, and does not wait for that.
func drop(locks []Lock) {
	for _, l := range locks {
		l.Drop()
	}
}

// Own makes o the Owner of the Bond, in place of another. It is told of the first Lock that ends, and of each that
// is extended. Own returns false if the Bond has ended: then o is not told.
func (b *Bond) Own(o Owner) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.owner = o
	return b.ended.Hold == nil
}

// Locks returns them, in the order in which they were added.
func (b *Bond) Locks() []Lock {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.locks
}

// First returns which Lock was the first that has ended, if one has.
func (b *Bond) First() (l Lock, hasEnded bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ended, b.ended.Hold != nil
}

// Deadline returns when the first of the Locks ends, if nothing extends them; zero if one has ended.
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

// Votes returns the fewest nodes that have one of the Locks.
func (b *Bond) Votes() (least int) {
	for i, l := range b.Locks() {
		if n := l.Votes(); i == 0 || n < least {
			least = n
		}
	}
	return least
}

// Release releases all Locks at once. It returns the fewest votes that one of them had, and the worst failure.
// It releases nothing if the Bond has ended, or another caller has called it.
func (b *Bond) Release(ctx context.Context) (votes int, f *core.Failure) {
	locks := b.Locks()
	for _, l := range locks { // one that is over by now was lost
		l.entry.mu.Lock()
		l.entry.happen((*core.Key).Tick)
	}
	if !b.leave() {
		return 0, &core.Failure{Kind: core.NotHeld}
	}
	return await(ctx, locks, (*core.Key).Release)
}

// Drop releases all Locks, and does not wait for that.
func (b *Bond) Drop() {
	if b.leave() {
		drop(b.Locks())
	}
}

// leave notes that the caller releases all Locks. It returns false if that is not to be done any more.
func (b *Bond) leave() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	isOver := b.ended.Hold != nil || b.released
	b.released = true
	return !isOver
}

// Extend has all Locks live for their TTLs from now, or for ttl if that is longer. It returns what Release does.
func (b *Bond) Extend(ctx context.Context, ttl time.Duration) (votes int, f *core.Failure) {
	return await(ctx, b.Locks(), extend(ttl))
}

// Change gives the Locks other Terms. They differ in Renew and MaxHold only, and MaxHold counts from now.
func (b *Bond) Change(t *core.Terms) {
	for _, l := range b.Locks() {
		l.entry.mu.Lock()
		l.entry.happen(func(k *core.Key, now clock.Instant) { k.Change(l.Hold, t, now) })
	}
}

// Kept returns the terms for Locks that wait for others of their Bond: they are renewed, whatever t says.
func Kept(t *core.Terms) *core.Terms {
	if t.Renew && t.MaxHold == 0 {
		return t
	}
	kept := *t
	kept.Renew, kept.MaxHold = true, 0
	return &kept
}

// Settle has Locks that were Kept begin to live by the Terms of the caller. That one has ended is no failure here: the
// Owner of the Bond knows.
func (b *Bond) Settle(ctx context.Context, t *core.Terms) *core.Failure {
	if _, f := b.Extend(ctx, 0); f != nil && f.Kind != core.NotHeld {
		return f
	}
	b.Change(t)
	return nil
}

// await has something done to all Locks at once. That a Lock has ended is the worst failure.
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

// A Result is what has come of a try.
type Result struct {
	Lock    // it has no Hold if the try has failed
	Failure *core.Failure
}

// TryAll tries each of the targets once. The requests for all are submitted before any is waited for, so they share
// packets. An error is the context's, and the Results are what there was by then.
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
