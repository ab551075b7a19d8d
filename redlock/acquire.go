package redlock

import (
	"context"
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

// TryAcquire asks for the lock name once, and does not wait for a holder. If callers at the same
// moment have split the votes, it asks again a few times, so one of them gets the lock.
//
// It returns within the node timeout, or within three of them at worst: the vote of another caller
// may be under way, and a vote may need another round trip to learn whether a node has forgotten
// locks (MemoryGuard), and one for a fencing token (Fenced).
//
// A *QuorumError tells contention (ErrHeld) from an outage (ErrNoQuorum) and from the end of ctx.
// Grants of single nodes are then released. After Close the error is ErrClosed.
func (l *Locker) TryAcquire(ctx context.Context, name string, opts ...Option) (*Lock, error) {
	return l.acquire(ctx, &call{name: name, isTry: true}, opts)
}

// Acquire waits for the lock name until ctx ends. It waits through contention, quarantines (see
// MemoryGuard) and votes that came too late. It returns ErrNoQuorum after an outage of three
// seconds (see Patience). Retries limits the tries.
//
// Callers of this Locker are served in order, and Release hands the lock to the next of them. After
// some milliseconds other processes get their turn, in order of arrival; Fair is stricter. Nodes
// wake waiters if they give hints (see package pool); without hints waiters ask within 200 ms.
// Callers with Retries or RetryInterval try on their own schedule, and do not wait in line.
//
// If ctx ends, the error matches ctx's, and QuorumError.Kind tells what was in the way. Other
// errors are those of TryAcquire. The end of ctx ends the waiting, not the lock: see Lock.Context.
//
// A name is one to 1,024 bytes with the Locker's Prefix, of any value, but no key of redlock's own
// (see Reserved).
func (l *Locker) Acquire(ctx context.Context, name string, opts ...Option) (*Lock, error) {
	return l.acquire(ctx, &call{name: name}, opts)
}

// A call is one Acquire, or what is like it.
type call struct {
	locker   *Locker
	settings *settings
	ctx      context.Context // the caller's, which bounds the waiting
	name     string          // or a text for people that stands for names
	names    []string        // of a set, sorted, without doubles; nil: it is one name
	isTry    bool            // without waiting
	isSet    bool            // by AcquireAll or TryAcquireAll
	observed *observed       // nil: nobody observes the acquisition
	room     *Lock           // for the first try, allocated with the call; nil: it is used
}

// An observed acquisition has a beginning, and a context for its events: the caller's, or what a Tracer has made of it.
type observed struct {
	ctx   context.Context
	began clock.Instant
}

// events is the context of the acquisition's events.
func (c *call) events() context.Context {
	if c.observed == nil {
		return c.ctx
	}
	return c.observed.ctx
}

// acquire is behind all ways to get a lock. asked has the names, and how they are wanted.
func (l *Locker) acquire(ctx context.Context, asked *call, opts []Option) (*Lock, error) {
	c, err := l.begin(ctx, asked, opts)
	if err != nil {
		return nil, err
	}
	k, err := c.get()
	if w := c.settings.warning; w != nil && err == nil {
		k.watch(k.Remaining()-w.before, false)
	}
	return c.conclude(k, err)
}

// begin checks the arguments of a call, and tells the tracers that it begins.
func (l *Locker) begin(ctx context.Context, asked *call, opts []Option) (*call, error) {
	both := &struct {
		call call
		lock Lock
	}{}
	c := &both.call
	*c = *asked
	c.locker, c.ctx, c.room = l, ctx, &both.lock
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
	if l.isObserved() {
		c.observed = &observed{ctx, l.settings.clock.Now()}
		for _, t := range l.settings.tracers {
			c.observed.ctx = t.Start(c.observed.ctx, c.name)
		}
	}
	return c, nil
}

// about returns the call of a request that is no acquisition, or why the request is refused.
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
	return &call{locker: l, ctx: ctx, name: name}, nil
}

// each returns the names of the call.
func (c *call) each() []string {
	if c.names != nil {
		return c.names
	}
	return []string{c.name}
}

// textOf returns the names for people: the first of them, if there are many.
func textOf(names []string) string {
	const shown = 4
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown-1], ", "), len(names)-shown+1)
}

// terms are those of the settings, with what observers want to know.
func (c *call) terms() *core.Terms {
	if !c.locker.isObserved() {
		return &c.settings.Terms
	}
	own := c.settings.Terms
	own.Tag = c
	return &own
}

// schedule is how the caller waits.
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

// get acquires the lock. It begins anew if what it had ended before the caller could have it.
func (c *call) get() (*Lock, error) {
	for {
		if c.locker.isClosed() {
			return nil, closedError(protocol.OpAcquire, c.name)
		}
		if err := c.ctx.Err(); err != nil {
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

// take gets all that a Lock consists of.
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

// takeOne takes the only part.
func (k *Lock) takeOne() error {
	p, to := &k.parts[0], k.parts[0].target()
	lock, f, err := to.Engine.Get(k.call.ctx, to.Key, k.terms(), k.schedule())
	if f != nil || err != nil {
		return k.errorOf(f, err)
	}
	p.lock, k.has = lock, &p.lock
	return nil
}

// conclude tells the observers how the call ended, and waits until they know.
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

// Answered implements engine.Events. A Tag is the call whose request it was.
func (p *place) Answered(a engine.Answer) {
	c, ok := a.Tag.(*call)
	if !ok || a.Request.Op == protocol.OpLook { // as many as servers give hints, and they change nothing
		return
	}
	outcome, ctx := a.Reply.Outcome, c.events()
	if a.OfHeld {
		ctx = c.ctx
	}
	if a.Reply.Err == guard.ErrEarly { // the node did what was asked, so observers are told of no fault
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
	if !ok || keys.Gate.Has(b.Req.Key) { // a gate is no permit
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

// nameOf returns the name that a key of the call stands for.
func (c *call) nameOf(p *place, key string) string {
	if c.names == nil {
		return c.name
	}
	return strings.TrimPrefix(key, p.locker.settings.prefix)
}

// noFailure is the error of a call that has asked no node.
func (c *call) noFailure(kind error) *QuorumError {
	return c.locker.placeOf(c.each()[0]).quorumError(protocol.OpAcquire, c.name, kind)
}

// errorOf makes the error of a Lock that was not acquired. ended is the context's error, if that ended the waiting.
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

// errorIn makes the error of a failure in a place.
func (c *call) errorIn(p *place, a about, f *core.Failure, ended error) error {
	switch {
	case f.Kind == core.AfterClose:
		return closedError(protocol.OpAcquire, a.name)
	case f.Kind == core.ByUs && c.settings.Adopts != "":
		return fmt.Errorf("redlock: adopt %q: this Locker holds the lock already, and only readers with the same value and options share one; "+
			"use the Lock that it has returned, or adopt with another Locker", a.name)
	}
	if a.op = protocol.OpAcquire; f.Kind == core.NoToken {
		a.op = protocol.OpRaise
	}
	return p.errorOf(a, f, ended)
}
