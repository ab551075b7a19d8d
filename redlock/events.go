package redlock

import (
	"strings"
	"time"

	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/engine"
	"github.com/redquorum/redquorum/redlock/internal/guard"
)

// isObserved reports whether there is an observer to be told. Events cost readings of the clock, each of them a
// system call.
func (l *Locker) isObserved() bool { return len(l.events) > 0 }

// publish hands an event to all observers' queues.
func (l *Locker) publish(e Event) {
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	for _, q := range l.events {
		q.Enter(e, e.Kind.isDetail())
	}
}

// awaitObservers is called before a call returns: see Observer.
func (l *Locker) awaitObservers() {
	for _, q := range l.events {
		q.Await(l.settings.clock, l.settings.Timeout)
	}
}

// Answered implements engine.Events. A Tag is the call whose request it was.
func (p *place) Answered(a engine.Answer) {
	c, ok := a.Tag.(*call)
	if !ok || a.Request.Op == protocol.OpLook { // as many as servers give hints, and they change nothing
		return
	}
	outcome, ctx := a.Reply.Outcome, c.events
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
	e := Event{Kind: EventAttempt, Context: c.events, Name: c.nameOf(p, b.Req.Key), Group: p.name, Elapsed: now.Sub(b.Start), Votes: b.Votes()}
	if n := c.settings.holders(); n > 1 {
		e.Permits = n
		_, e.Permit = keys.OfSlot(b.Req.Key)
	}
	if f == nil {
		e.Remaining = b.Deadline().Sub(now)
	} else {
		e.Err = c.errorIn(p, e.Name, f, nil)
	}
	p.locker.publish(e)
}

// nameOf returns the name that a key of the call stands for.
func (c *call) nameOf(p *place, key string) string {
	if c.names == nil {
		return c.name
	}
	return strings.TrimPrefix(key, p.prefix)
}
