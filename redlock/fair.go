package redlock

import (
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/protocol"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// Fair has the waiters of all clients that ask for it served in the order in which they
// began to wait. Default: callers of one Locker are, and among several processes
// chance decides. It mostly favours one that acquires again at once after its
// release, and others can then wait for seconds.
//
// A quorum has no common order of arrival, so one node at a time keeps the queue of
// a name: the same one for all clients as long as it answers, and then another,
// to which the waiters tell how long they have waited. While that happens, and
// where a waiter falls silent for a second, others can get before it. So can
// callers that do not ask for fairness, and TryAcquire, which does not wait. Safety
// does not depend on it.
//
// It costs a round trip to one node before each acquisition, and locks are not
// handed over within a process.
func Fair() Option {
	return Option{apply: func(s *settings) error { s.fair = true; return nil }}
}

// ticketLife is how long a silent waiter keeps its place. A waiter that is alive asks again
// after maxWait, or after maxSilence while it tries in vain. The rest of the life is for
// slow answers.
const (
	ticketLife = time.Second
	maxSilence = ticketLife / 2

	// queueAnswerLimit is how long the node that keeps a queue is waited for at least. To
	// move for a hiccup would cost the order.
	queueAnswerLimit = 25 * time.Millisecond
)

// A place is a waiter's in the queue of one node.
type place struct {
	contender *contender
	key       string
	id        string
	began     clock.Instant
	at        quorum.Set // where there may be a ticket
	asked     int        // questions so far
	lastAsked clock.Instant
	first     atomic.Int64 // number of the last question that was answered with: the first
	behind    atomic.Int64 // the same with: others are before
	failed    atomic.Int64 // the same with: nothing
	called    atomic.Bool  // others have gone
	stop      func()       // of the Watch for calls; nil: there is none
}

// Receive takes the reply to an OpQueue.
func (p *place) Receive(number int, reply protocol.Reply) {
	switch reply.Outcome {
	case protocol.Granted:
		p.first.Store(int64(number))
	case protocol.Refused:
		p.behind.Store(int64(number))
	case protocol.Failed, protocol.Unknown:
		p.failed.Store(int64(number))
	}
	p.contender.parker.wake()
}

func (p *place) call() {
	p.called.Store(true)
	p.contender.parker.wake()
}

// takePlace is called once, by a fair caller.
func (c *contender) takePlace() {
	c.place = &place{
		contender: c, key: c.settings.prefix + queueKey + c.name, id: newValue(), began: c.settings.clock.Now(),
	}
}

func (p *place) request(t protocol.Ticket) *protocol.Request {
	t.ID, t.Life = p.id, ticketLife
	return &protocol.Request{Op: protocol.OpQueue, Key: p.key, Timeout: p.contender.settings.timeout(), Ticket: &t}
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

// giveBack leaves all queues. The answers are not waited for: a ticket that stays is
// dropped when it is in the way.
func (p *place) giveBack() {
	if p == nil {
		return
	}
	for i := range p.contender.locker.nodes {
		p.giveBackAt(i)
	}
}

// giveBackAt leaves the queue of one node: at one that goes on, a ticket that no
// waiter keeps would be in the way of others until it has lived.
func (p *place) giveBackAt(i int) {
	if p == nil || !p.at.Has(i) {
		return
	}
	p.at.Remove(i)
	_ = p.contender.locker.nodes[i].Submit(p.request(protocol.Ticket{Leave: true}), 0, ignored{})
}

// ignored is the Receiver of replies that do not matter.
type ignored struct{}

func (ignored) Receive(int, protocol.Reply) {}

// ask takes or keeps the place, and watches for a call, or the lock, or both: the
// first needs no call, and the others would be woken for nothing.
func (c *contender) ask(call, lock bool) {
	if c.question.hasFailed() {
		c.leave()
	}
	p, i := c.place, c.node
	node := c.locker.nodes[i]
	p.called.Store(false)
	c.hinted.Store(false)
	c.question = nil
	if call { // before the question, so that none is missed
		key := p.key + ":" + p.id
		if w, ok := node.(protocol.Watchable); ok && p.stop == nil {
			p.stop = w.Watch(key, p.call)
		}
		if node.Submit(&protocol.Request{Op: protocol.OpWatch, Key: key, Timeout: c.settings.timeout()}, 0, ignored{}) != nil {
			c.fail()
			return
		}
	}
	p.asked++
	p.lastAsked = c.settings.clock.Now()
	p.at.Add(i)
	if node.Submit(p.request(protocol.Ticket{Waited: p.lastAsked.Sub(p.began)}), p.asked, p) != nil {
		c.fail()
		return
	}
	if lock {
		c.askForHints(p.lastAsked)
	}
}

// awaitTurn returns when the caller is the first of all and the lock seems free, or
// when no node keeps a queue, or ctx or the Locker has ended: then no node is asked
// any more.
func (c *contender) awaitTurn() {
	p := c.place
	call, lock := true, true // as long as it is not known which
	for silent := 0; silent < len(c.locker.nodes) && !c.isOver(); {
		c.ask(call, lock)
		if c.awaitNews(call, lock) {
			return
		}
		if p.hasFailed() || !p.isAnswered() {
			c.fail()
		}
		if c.question.hasFailed() {
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
func (c *contender) awaitNews(call, lock bool) bool {
	p, clock := c.place, c.settings.clock
	now := clock.Now()
	end := now.Add(maxWait/2 + c.settings.jitter(maxWait/2))
	limit := now.Add(c.answerLimit()) // for an answer
	for armed := end.Add(1); !p.hasFailed(); {
		if c.locker.queue.hasNews(c.line) { // of our own release there is no hint
			c.hinted.Store(true)
		}
		first := p.isFirst()
		switch {
		case c.isOver(), first && lock && c.isFree():
			return true
		case first && !lock, p.isBehind() && (!call || p.called.Load()):
			return false
		}
		now = clock.Now()
		due := min(end, c.checkHints(now))
		if c.question.hasFailed() {
			return false
		}
		if !p.isAnswered() {
			due = limit
		}
		if now >= due {
			return false
		}
		if due != armed {
			armed = due
			c.parker.timer.Reset(due.Sub(now))
		}
		c.sleep()
	}
	return false
}
