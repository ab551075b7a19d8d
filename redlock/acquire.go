package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/engine"
	"github.com/redquorum/redquorum/redlock/internal/guard"
)

// TryAcquire tries once to acquire the lock name, and does not wait for a holder. If concurrent
// callers have split the votes, it retries a few times, so that one of them gets the lock.
//
// It returns within the node timeout, or within three node timeouts at worst: an attempt of another
// caller may be in progress, and an attempt may need another round trip to learn whether a node has
// forgotten locks (MemoryGuard), and one for a fencing token (Fenced). Right after a Release it may
// leave the lock to waiters of other processes for a few milliseconds.
//
// A *QuorumError distinguishes contention (ErrHeld), an outage (ErrNoQuorum) and the end of ctx. In
// each case the grants of single nodes are released. After Close the error is ErrClosed.
func (l *Locker) TryAcquire(ctx context.Context, name string, opts ...Option) (*Lock, error) {
	return l.acquire(ctx, &call{name: name, isTry: true}, opts)
}

// Acquire waits for the lock name until ctx ends, or as long as Wait allows. It waits through
// contention, quarantines (see MemoryGuard) and late votes. It returns ErrNoQuorum after an outage
// of three seconds (see Patience). Retries limits the tries.
//
// Callers of this Locker are served in order, and Release hands the lock over to the next caller.
// After a few milliseconds other processes get their turn, in order of arrival; Fair is stricter.
// Nodes wake waiters if they send hints (see package pool); without hints waiters ask within 200
// ms. Callers with Retries or RetryInterval do not wait in line; they try on their own schedule.
//
// If ctx ends, the returned error matches the error of ctx, and QuorumError.Kind returns the
// obstacle. Other errors are the same as for TryAcquire. The end of ctx ends the wait, not the
// lock: see Lock.Context.
//
// A name has 1 to 1,024 bytes including the Locker's Prefix. Any bytes are allowed, but not a key
// of redlock's own (see Reserved).
func (l *Locker) Acquire(ctx context.Context, name string, opts ...Option) (*Lock, error) {
	return l.acquire(ctx, &call{name: name}, opts)
}

// A call is one Acquire or similar operation.
type call struct {
	locker   *Locker
	settings *settings
	ctx      context.Context // context of the caller
	waiting  context.Context // limits the wait: ctx, or derived from it by option Wait
	name     string          // name of the lock; for several names, a text that describes them
	names    []string        // names of a set, sorted, without duplicates; nil for a single name
	isTry    bool            // does not wait for a holder
	isSet    bool            // made by AcquireAll or TryAcquireAll
	observed *observed       // nil without observers
	room     *Lock           // memory for the first Lock, allocated with the call; nil after use
}

// An observed has the start of an observed acquisition, and the context for its events: the
// caller's context, or a context that a Tracer derived from it.
type observed struct {
	ctx   context.Context
	began clock.Instant
}

// events returns the context of the acquisition's events.
func (c *call) events() context.Context {
	if c.observed == nil {
		return c.ctx
	}
	return c.observed.ctx
}

// acquire implements all ways to acquire a lock. asked has the names and the kind of the call.
func (l *Locker) acquire(ctx context.Context, asked *call, opts []Option) (*Lock, error) {
	c, err := l.begin(ctx, asked, opts)
	if err != nil {
		return nil, err
	}
	k, err := c.getInTime()
	if w := c.settings.warning; w != nil && err == nil {
		k.watch(k.Remaining()-w.before, false)
	}
	return c.conclude(k, err)
}

// begin checks the arguments of a call, and notifies the tracers of its start.
func (l *Locker) begin(ctx context.Context, asked *call, opts []Option) (*call, error) {
	both := &struct {
		call call
		lock Lock
	}{}
	c := &both.call
	*c = *asked
	c.locker, c.ctx, c.waiting, c.room = l, ctx, ctx, &both.lock
	if c.isSet {
		c.names = slices.Compact(slices.Sorted(slices.Values(asked.names)))
		c.name = textOf(c.names)
	}
	if ctx == nil {
		return nil, nilContext(protocol.OpAcquire, c.name)
	}
	var err error
	if c.settings, err = l.settings.with(opts); err != nil {
		return nil, err
	}
	if c.isSet {
		if err := c.settings.checkSet(c.names); err != nil {
			return nil, err
		}
	}
	for _, name := range c.each() {
		if err := l.checkName(name); err != nil {
			return nil, err
		}
	}
	if len(c.names) == 1 {
		c.names = nil
	}
	if !c.isTry && c.settings.retries != 0 {
		if err := c.checkNested(); err != nil {
			return nil, err
		}
	}
	if l.isObserved() {
		c.observed = &observed{ctx, l.settings.clock.Now()}
		for _, t := range l.settings.tracers {
			c.observed.ctx = t.Start(c.observed.ctx, c.name)
		}
	}
	return c, nil
}

// about returns the call of a request that is not an acquisition, or the reason the request is
// refused.
func (l *Locker) about(ctx context.Context, op protocol.Op, name string) (*call, error) {
	if ctx == nil {
		return nil, nilContext(op, name)
	}
	if err := l.checkName(name); err != nil {
		return nil, err
	}
	if l.isClosed() {
		return nil, closedError(op, name)
	}
	return &call{locker: l, ctx: ctx, waiting: ctx, name: name}, nil
}

// each returns the names of the call.
func (c *call) each() []string {
	if c.names != nil {
		return c.names
	}
	return []string{c.name}
}

// textOf returns a text with the names for people: only the first name if there are many.
func textOf(names []string) string {
	const shown = 4
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown-1], ", "), len(names)-shown+1)
}

// terms returns the Terms of the settings, with the data that observers need.
func (c *call) terms() *core.Terms {
	if !c.locker.isObserved() {
		return &c.settings.Terms
	}
	own := c.settings.Terms
	own.Tag = c
	return &own
}

// schedule returns the schedule of the caller's wait.
func (c *call) schedule() engine.Schedule {
	switch of := c.settings; {
	case c.isTry:
		return engine.Schedule{}
	case of.retries == Forever && of.interval == 0:
		return engine.Schedule{InLine: true}
	default:
		return engine.Schedule{Retries: of.retries, Interval: of.interval}
	}
}

// getInTime acquires the lock within the time of option Wait.
func (c *call) getInTime() (*Lock, error) {
	if c.settings.wait == 0 || c.isTry {
		return c.get()
	}
	var cancel context.CancelFunc
	c.waiting, cancel = context.WithTimeout(c.ctx, c.settings.wait)
	defer cancel()
	k, err := c.get()
	var e *QuorumError
	if errors.As(err, &e) && errors.Is(e.Err, context.DeadlineExceeded) && c.ctx.Err() == nil {
		e.Err, e.before, e.Waited = cmp.Or(e.before, error(ErrNoQuorum)), nil, c.settings.wait
	}
	return k, err
}

// get acquires the lock. It starts over if the lock ended before the caller could get it.
func (c *call) get() (*Lock, error) {
	for {
		if c.locker.isClosed() {
			return nil, closedError(protocol.OpAcquire, c.name)
		}
		if err := c.waiting.Err(); err != nil {
			return nil, c.noFailure(err)
		}
		k, err := c.take()
		switch {
		case err != nil:
			return nil, err
		case k.complete():
			return k, nil
		}
		k.has.Drop()
		if c.isTry {
			return nil, c.noFailure(errStale)
		}
	}
}

// take acquires all parts of a Lock.
func (c *call) take() (*Lock, error) {
	if err := c.meet(); err != nil {
		return nil, err
	}
	k := c.room
	if c.room = nil; k == nil {
		k = &Lock{}
	}
	k.call = c
	if c.names != nil {
		return k, k.takeSet()
	}
	k.room[0] = part{name: c.name, at: c.locker.placeOf(c.name)}
	k.parts = k.room[:]
	if c.settings.holders() > 1 {
		return k, k.takePermits()
	}
	return k, k.takeOne()
}

// takeOne acquires the only part.
func (k *Lock) takeOne() error {
	p, to := &k.parts[0], k.parts[0].target()
	lock, f, err := to.Engine.Get(k.waiting, to.Key, k.terms(), k.schedule())
	if f != nil || err != nil {
		return k.errorOf(f, err)
	}
	p.lock, k.has = lock, &p.lock
	return nil
}

// conclude reports the outcome of the call to the observers, and waits until they have received it.
func (c *call) conclude(k *Lock, err error) (*Lock, error) {
	l := c.locker
	if !l.isObserved() {
		return k, err
	}
	e := Event{Kind: EventNotAcquired, Name: c.name, Group: l.placeOf(c.each()[0]).name, Err: err}
	if err == nil {
		e = k.event(EventAcquired)
		e.Votes, e.Remaining = k.Votes(), k.Remaining()
	}
	e.Context, e.Elapsed = c.events(), l.settings.clock.Now().Sub(c.observed.began)
	l.publish(e)
	l.awaitObservers()
	return k, err
}

// Answered implements engine.Events. A Tag is the call of the request.
func (p *place) Answered(a engine.Answer) {
	c, ok := a.Tag.(*call)
	if !ok || a.Request.Op == protocol.OpLook { // looks are as frequent as hints, and change nothing
		return
	}
	outcome, ctx := a.Reply.Outcome, c.events()
	if a.OfHeld {
		ctx = c.ctx
	}
	if a.Reply.Err == guard.ErrEarly { // the node carried out the operation, so observers see no fault
		outcome = protocol.Granted
	}
	p.locker.publish(Event{
		Kind: EventVote, Context: ctx, Name: c.nameOf(p, a.Request.Key), Group: p.name, Op: a.Request.Op,
		Node: p.nodes[a.Node].String(), Outcome: outcome, Elapsed: a.After, Err: a.Reply.Err,
	})
}

// Voted implements engine.Events.
func (p *place) Voted(b *core.Ballot, f *core.Failure) {
	c, ok := b.Tag.(*call)
	if !ok || keys.Gate.Has(b.Req.Key) { // a gate is not a permit
		return
	}
	now := p.locker.settings.clock.Now()
	e := Event{Kind: EventAttempt, Context: c.events(), Name: c.nameOf(p, b.Req.Key), Group: p.name, Elapsed: now.Sub(b.Start), Votes: b.Votes()}
	if n := c.settings.holders(); n > 1 {
		e.Permits = n
		_, e.Permit = keys.OfSlot(b.Req.Key)
	}
	if f == nil {
		e.Remaining = b.Deadline().Sub(now)
	} else {
		e.Err = c.errorIn(p, about{name: e.Name}, f, nil)
	}
	p.locker.publish(e)
}

// nameOf returns the name of a key of the call.
func (c *call) nameOf(p *place, key string) string {
	if c.names == nil {
		return c.name
	}
	return strings.TrimPrefix(key, p.locker.settings.prefix)
}

// noFailure returns the error of a call that has sent nothing to the nodes.
func (c *call) noFailure(kind error) *QuorumError {
	return c.locker.placeOf(c.each()[0]).quorumError(protocol.OpAcquire, c.name, kind)
}

// errorOf returns the error of a Lock that was not acquired. ended is the context's error if that
// ended the wait.
func (k *Lock) errorOf(f *core.Failure, ended error) error {
	if f == nil {
		return k.noFailure(ended)
	}
	of, a := k.parts[f.Key], about{name: k.name, permits: k.settings.holders(), weight: k.settings.weight}
	if len(k.parts) > 1 {
		a.of = of.name
		for _, i := range f.Held {
			a.held = append(a.held, k.parts[i].name)
		}
	}
	return k.errorIn(of.at, a, f, ended)
}

// errorIn returns the error of a failure in a place.
func (c *call) errorIn(p *place, a about, f *core.Failure, ended error) error {
	switch {
	case f.Kind == core.AfterClose:
		return closedError(protocol.OpAcquire, a.name)
	case f.Kind == core.ByUs && c.settings.Adopts != "":
		return fmt.Errorf("redlock: adopt %q: this Locker holds the lock already, and only readers with the same value and options share one; "+
			"use the Lock that it returned, or adopt with another Locker", a.name)
	}
	if a.op = protocol.OpAcquire; f.Kind == core.NoToken {
		a.op = protocol.OpRaise
	}
	return p.errorOf(a, f, ended)
}
