package membership

import (
	"cmp"
	"context"
	"sync/atomic"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/lockorder"
)

// A presenceOf is a Locker's presence in a group.
type presenceOf struct {
	now   atomic.Pointer[Presence]
	mu    lockorder.Mutex[lockorder.Presence]
	going *arrival // under way, or nil
}

// An arrival is an attempt to enter a group. All callers that wait for it share its outcome.
type arrival struct {
	done chan struct{}
	err  error
}

// A turnstile lets one caller at a time ask the nodes.
type turnstile chan struct{}

// pass waits for the caller's turn. It reports false if ctx ends before.
func (t turnstile) pass(ctx context.Context) bool {
	select {
	case t <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (t turnstile) leave() { <-t }

// A Presence is the lock under which a Locker uses a group. It ends once, and what was locked under
// it has ended then.
type Presence struct{ until atomic.Int64 }

// Until is when the presence ends if nothing renews it; for leases that end with it.
func (p *Presence) Until() *atomic.Int64 { return &p.until }

// End ends the presence.
func (p *Presence) End() { p.until.Store(0) }

// ExtendTo has the presence end at that moment, if it is not extended again before.
func (p *Presence) ExtendTo(until clock.Instant) { p.until.Store(int64(until)) }

// noPresence is one that has ended.
var noPresence = &Presence{}

// Current returns the presence of the Locker in the group, one that has ended if there is none; nil for a
// Locker without a map, whose Member is nil.
func (of *Member) Current() *Presence {
	if of == nil {
		return nil
	}
	return cmp.Or(of.presence.now.Load(), noPresence)
}

// IsOver reports whether no lock can be held by now under the presence, if one is needed.
func (p *Presence) IsOver(now clock.Instant) bool {
	return p != nil && now >= clock.Instant(p.until.Load())
}

// Enter makes sure of the Locker's presence in the group. Its error is that of ctx, of the Group's Lock,
// ErrMap, ErrNotYet or ErrClosed.
func (of *Member) Enter(ctx context.Context) error {
	if !of.Current().IsOver(of.in.config.Clock.Now()) {
		return nil
	}
	e := of.begin()
	if e == nil {
		return ErrClosed
	}
	var err error
	select {
	case <-e.done:
		err = e.err
	case <-ctx.Done():
		err = ctx.Err()
	}
	if of.in.keeper.ctx.Err() != nil {
		return ErrClosed
	}
	return err
}

// begin returns the arrival that is under way, and begins one if there is none. It is nil if the Locker
// is closed.
func (of *Member) begin() *arrival {
	of.presence.mu.Lock()
	defer of.presence.mu.Unlock()
	if of.presence.going == nil && of.in.keeper.add() {
		e := &arrival{done: make(chan struct{})}
		of.presence.going = e
		go func() {
			defer of.in.keeper.all.Done()
			e.err = of.enterNow(of.in.keeper.ctx)
			of.presence.mu.Lock()
			of.presence.going = nil
			of.presence.mu.Unlock()
			close(e.done)
		}()
	}
	return of.presence.going
}

// enterNow is the arrival. Each of its steps waits for the node timeout at most.
func (of *Member) enterNow(ctx context.Context) error {
	if !of.Current().IsOver(of.in.config.Clock.Now()) {
		return nil
	}
	if err := of.in.prove(ctx); err != nil {
		return err
	}
	k, err := of.group.Lock(ctx, presenceName(of.in.newest), true)
	if err != nil {
		return err
	}
	// The stage is read behind the presence: a version that is retired later is not this one.
	if err := of.admit(ctx); err != nil {
		k.Drop()
		return err
	}
	of.open(k)
	return nil
}

// admit returns why the Locker must not use the group, or nil. A group without a version gets one: its
// servers have forgotten, or it is joining, and clients that have it alone must not take themselves for
// the first. Where no other group knows the version all its servers must answer, because one that is away
// may remember.
func (of *Member) admit(ctx context.Context) error {
	seen := of.look(ctx)
	if seen.Err == nil && seen.Highest == 0 {
		known := of.in.firstStage(of.in.Look(ctx))
		if !seen.whole && !known.Proves(of.in.base) {
			return ErrNotYet
		}
		of.writeFirst(ctx, known)
		if seen = of.look(ctx); seen.Err == nil && seen.Majority == 0 {
			return ErrNotYet
		}
	}
	return cmp.Or(seen.Err, of.in.leftBehind(seen.Highest))
}

// open makes k the presence.
func (of *Member) open(k Lock) {
	p, ctx := k.Presence(), k.Context()
	of.presence.now.Store(p)
	context.AfterFunc(ctx, func() { of.group.EndUnder(p, context.Cause(ctx)) })
}
