package redlock

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/engine"
	"github.com/redquorum/redquorum/redlock/internal/guard"
)

// An observer may fall behind by so many events before more are dropped. Votes,
// tries and extensions are many, and each matters little. How acquisitions and
// locks end must add up, in a gauge of held locks for instance, so the queue has
// room for as many of those as a process may lose at one moment.
const (
	maxWaitingDetails = 1 << 12
	maxWaitingEnds    = 1 << 17
)

// An eventQueue has the events that one observer has yet to be told of. One
// goroutine tells them, in their order, and lives while there are any. So an
// observer that is slow, or never returns, holds up neither the goroutines that
// end and renew locks nor the other observers.
type eventQueue struct {
	observer Observer

	mu        sync.Mutex
	waiting   []Event // from head on
	head      int
	running   bool  // the goroutine is there
	behind    bool  // a caller has waited in vain: no other waits until all is told
	entered   int64 // events so far
	delivered int64 // of those, the ones that the observer has seen or Close has given up
	dropped   int   // events that were not entered, and that the observer does not know of
	listeners []*listener
}

// A listener is a caller that waits until so many events have been told.
type listener struct {
	number int64
	told   chan struct{}
}

// enter adds an event, or drops it. It never waits for the observer.
func (q *eventQueue) enter(e Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.entered-q.delivered >= e.Kind.maxWaiting() {
		q.dropped++
		return
	}
	if n := len(q.waiting); n == cap(q.waiting) && q.head > n/2 {
		q.waiting, q.head = slices.Delete(q.waiting, 0, q.head), 0
	}
	q.entered++
	q.waiting = append(q.waiting, e)
	if !q.running {
		q.running = true
		go q.deliver()
	}
}

// maxWaiting is how far an observer may be behind for such an event to be kept.
func (k EventKind) maxWaiting() int64 {
	switch k {
	case EventAcquired, EventNotAcquired, EventLost, EventReleased:
		return maxWaitingEnds
	}
	return maxWaitingDetails
}

// deliver gives the observer everything that waits.
func (q *eventQueue) deliver() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.head < len(q.waiting) {
		e := q.waiting[q.head]
		q.waiting[q.head] = Event{} // which can hold on to much
		q.head++
		number := q.entered - int64(len(q.waiting)-q.head)
		e.Dropped, q.dropped = q.dropped, 0
		q.mu.Unlock()
		q.observer.Observe(e)
		q.mu.Lock()
		q.delivered = max(q.delivered, number)
		q.wake()
	}
	q.running, q.behind = false, false
	q.waiting, q.head = q.waiting[:0], 0
	if cap(q.waiting) > maxWaitingDetails {
		q.waiting = nil
	}
}

// wake wakes the listeners whose events have been told. The queue must be locked.
func (q *eventQueue) wake() {
	q.listeners = slices.DeleteFunc(q.listeners, func(l *listener) bool {
		if l.number > q.delivered {
			return false
		}
		close(l.told)
		return true
	})
}

// await returns when the observer has been told of all events so far, or after
// limit. An observer that takes longer is behind, and keeps no other caller
// until it has caught up.
func (q *eventQueue) await(c clock.Clock, limit time.Duration) {
	q.mu.Lock()
	if q.delivered >= q.entered || q.behind {
		q.mu.Unlock()
		return
	}
	l := &listener{q.entered, make(chan struct{})}
	q.listeners = append(q.listeners, l)
	q.mu.Unlock()

	late := make(chan struct{})
	defer c.AfterFunc(limit, func() { close(late) }).Stop()
	select {
	case <-l.told:
	case <-late:
		q.mu.Lock()
		defer q.mu.Unlock()
		if n := len(q.listeners); n > 0 {
			q.listeners = slices.DeleteFunc(q.listeners, func(o *listener) bool { return o == l })
			q.behind = q.behind || len(q.listeners) < n
		}
	}
}

// giveUp forgets what the observer has not been told of.
func (q *eventQueue) giveUp() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting, q.head = nil, 0
	q.delivered = q.entered
	q.wake()
}

// isObserved reports whether there is an observer to be told. Events cost readings of the clock, each of them a
// system call.
func (l *Locker) isObserved() bool { return len(l.events) > 0 }

// publish hands an event to all observers' queues.
func (l *Locker) publish(e Event) {
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	for _, q := range l.events {
		q.enter(e)
	}
}

// awaitObservers is called before a call returns: see Observer.
func (l *Locker) awaitObservers() {
	for _, q := range l.events {
		q.await(l.settings.clock, l.settings.timeout())
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
