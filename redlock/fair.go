package redlock

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
)

// Fair has waiters of all clients who ask for it served in the order in which they
// began to wait. Default: callers of one Locker are, and among several processes
// chance decides. It mostly favours one that acquires again at once after its
// release, and others can then wait for seconds.
//
// A quorum has no common order of arrival, so one node at a time keeps the queue of
// a name: the same one for all clients as long as it answers, and then another,
// to which the waiters tell how long they have waited. While that happens, and
// where a waiter falls silent for a second, others can get before it. So can
// those who do not ask for fairness, and TryAcquire, which does not wait. Safety
// does not depend on it.
//
// It costs a round trip to one node before each acquisition, and locks are not
// handed over within a process.
func Fair() Option {
	return Option{apply: func(s *settings) error { s.fair = true; return nil }}
}

// ticketLife is for how long a waiter who does not say anything is waited for. One
// who is alive asks after maxWait, or while it tries in vain after maxSilence. What
// is between those two and the life is for answers that are waited for.
const (
	ticketLife = time.Second
	maxSilence = ticketLife / 2
)

// A place is a waiter's in the queue of one node.
type place struct {
	contender *contender
	key       string
	id        string
	began     clock.Instant
	at        nodeSet // where there may be a ticket
	asked     int     // questions so far
	lastAsked clock.Instant
	first     atomic.Int64 // number of the last question that was answered with: the first
	behind    atomic.Int64 // the same with: others are before
	failed    atomic.Int64 // the same with: nothing
	called    atomic.Bool  // others have gone
	stop      func()       // of the Watch for calls; nil: there is none
}

// Receive takes the reply to an OpQueue.
func (p *place) Receive(number int, reply Reply) {
	switch reply.Outcome {
	case Granted:
		p.first.Store(int64(number))
	case Refused:
		p.behind.Store(int64(number))
	case Failed, Unknown:
		p.failed.Store(int64(number))
	}
	p.contender.parker.wake()
}

func (p *place) call() {
	p.called.Store(true)
	p.contender.parker.wake()
}

// takePlace is called once, by those who want to be fair.
func (c *contender) takePlace(name string) {
	c.place = &place{
		contender: c, key: c.settings.prefix + queueKey + name, id: newValue(), began: c.settings.clock.Now(),
	}
}

func (p *place) request(t Ticket) *Request {
	t.ID, t.Life = p.id, ticketLife
	return &Request{Op: OpQueue, Key: p.key, Timeout: p.contender.settings.timeout(), Ticket: &t}
}

// isFirst reports whether the last question has been answered so.
func (p *place) isFirst() bool { return p.first.Load() == int64(p.asked) }

func (p *place) isBehind() bool { return p.behind.Load() == int64(p.asked) }

func (p *place) isAnswered() bool { return p.isFirst() || p.isBehind() }

// hasFailed is about the last question alone: those to a node that hangs fail when
// another has long been asked.
func (p *place) hasFailed() bool { return p.failed.Load() == int64(p.asked) }

// restEnd is when to ask again although a rest goes on until end: others must not
// take the first of them for dead, and get before it when a quarantine is over. Where
// the try before took up all of that time, there is a rest all the same.
func (p *place) restEnd(now, end clock.Instant) clock.Instant {
	if p == nil {
		return end
	}
	return min(end, max(p.lastAsked.Add(maxSilence), now.Add(firstWait)))
}

func (p *place) unwatch() {
	if p != nil && p.stop != nil {
		p.stop()
		p.stop = nil
	}
}

// giveBack leaves all queues. Nobody waits for the answers: a ticket that stays is
// dropped when it is in the way.
func (p *place) giveBack() {
	if p == nil {
		return
	}
	for i, node := range p.contender.locker.nodes {
		if p.at.has(i) {
			_ = node.Submit(p.request(Ticket{Leave: true}), 0, nobody{})
		}
	}
}

// nobody is not interested.
type nobody struct{}

func (nobody) Receive(int, Reply) {}

// ask takes or keeps the place, and watches for a call, or the lock, or both: the
// first needs no call, and the others would be woken by what is none of their
// business.
func (c *contender) ask(call, lock bool) {
	if c.hasFailed() {
		c.leave()
	}
	p, i := c.place, c.node
	node := c.locker.nodes[i]
	p.called.Store(false)
	c.hinted.Store(false)
	c.free.Store(false)
	if call { // before the question, so that none is missed
		key := p.key + ":" + p.id
		if w, ok := node.(Watchable); ok && p.stop == nil {
			p.stop = w.Watch(key, p.call)
		}
		if node.Submit(&Request{Op: OpWatch, Key: key, Timeout: c.settings.timeout()}, 0, nobody{}) != nil {
			c.fail()
			return
		}
	}
	p.asked++
	p.lastAsked = c.settings.clock.Now()
	p.at.add(i)
	if node.Submit(p.request(Ticket{Waited: p.lastAsked.Sub(p.began)}), p.asked, p) != nil {
		c.fail()
		return
	}
	if lock {
		c.lookOut()
	}
}

// awaitTurn returns when the caller is the first of all and the lock seems free, or
// when no node keeps a queue, or ctx or the Locker has ended: then nobody is asked
// any more.
func (c *contender) awaitTurn(ctx context.Context, ln *line) {
	l, p := c.locker, c.place
	call, lock := true, true // as long as it is not known which
	for silent := 0; silent < len(l.nodes) && ctx.Err() == nil && !isDone(l.closed); {
		c.ask(call, lock)
		if c.awaitNews(ctx, ln, call, lock) {
			return
		}
		if p.hasFailed() || !p.isAnswered() {
			c.fail()
		}
		if c.hasFailed() {
			call, lock = true, true
			silent++
			continue
		}
		lock = p.called.Load() || p.isFirst()
		call = !lock
		silent = 0
	}
}

// awaitNews returns when there is reason to ask again, or true if awaitTurn is to
// return.
func (c *contender) awaitNews(ctx context.Context, ln *line, call, lock bool) bool {
	l, p, clock := c.locker, c.place, c.settings.clock
	pause := maxWait/2 + c.settings.jitter(maxWait/2)
	end := clock.Now().Add(pause)
	limit := end.Add(max(0, c.settings.timeout()-pause)) // for an answer
	c.parker.timer.Reset(pause)
	for !c.hasFailed() && !p.hasFailed() {
		if l.queue.hasNews(ln) { // of our own release there is no hint
			c.hinted.Store(true)
		}
		first := p.isFirst()
		switch {
		case ctx.Err() != nil, isDone(l.closed), first && lock && (c.free.Load() || c.hinted.Load()):
			return true
		case first && !lock, p.isBehind() && (!call || p.called.Load()):
			return false
		}
		if now := clock.Now(); now >= end {
			if p.isAnswered() || now >= limit {
				return false
			}
			c.parker.timer.Reset(limit.Sub(now))
		}
		c.parker.sleep(ctx, l.closed)
	}
	return false
}
