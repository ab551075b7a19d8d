package redlock

import (
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/lockorder"
	"github.com/redquorum/redquorum/protocol"
	"github.com/redquorum/redquorum/redlock/internal/ballot"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// Fair has the waiters of all clients that ask for it served in the order in which they
// began to wait. Default: a waiter takes its place in that order only when it has been passed
// over, so one who comes at the right moment can get before it once.
//
// Callers of one process who wait when its turn comes are served one after the other, for up to
// five milliseconds, even if a caller of another process began to wait between them.
//
// A quorum has no common order of arrival, so one node at a time keeps the queue of a name: the
// same one for all clients as long as it answers, and then another, to which the waiters tell how
// long they have waited. While that happens, and where a waiter is silent for a second, others can
// get before it. So can callers that do not ask for fairness, and TryAcquire, which does not wait.
// Safety does not depend on it.
//
// It costs a round trip to one node before each acquisition. It has no effect on readers (Shared).
func Fair() Option {
	return Option{apply: func(s *settings) error { s.fair = true; return nil }}
}

// The order among processes. As with sync.Mutex, the lock is first for whoever is fast, and a
// waiter that was passed over for passedOver switches to order of arrival: it takes a place in
// the queue that one node keeps, the one that contenders ask first. Processes that come again
// learn that others wait (contention.others) and line up behind them.
//
//	refused ──► contends by chance ──passed over──► place ──first, and free──► asks all nodes
//	                   ▲                              │ the node is silent or keeps no queue
//	                   └──────────────────────────────┘
//
// The first of the queue watches the lock, and the others only their own place, so a release wakes
// one waiter however many there are. A first that has failed watches its place as well: the process
// that was faster makes a call there when it lines up. The first leaves the queue when it asks for
// the lock, and the next is called meanwhile. The second looks now and then, and takes the lock if
// the first leaves it lie, because a process that is paused must not keep the others waiting. A fair
// caller leaves only when it has the lock, and never takes it as the second.
//
// The node is a guess here as well: safety does not depend on the order, and a caller that did not
// ask for Fair leaves the queue of a node that does not answer in time. A fair caller to whom no
// node answers contends by chance, and asks again before each try. Both go back to the node that all
// others ask when it answers again (home).

const (
	// passedOver is how long a waiter contends by chance.
	passedOver = time.Millisecond

	// ticketLife is how long a silent waiter keeps its place. A waiter that is alive asks again
	// after maxWait, or after maxSilence while it tries in vain. The rest of the life is for
	// slow answers.
	ticketLife = time.Second
	maxSilence = ticketLife / 2

	// askAgainAfter is how soon a waiter asks again, for each waiter before it: those at the
	// front notice soon that the node has fallen silent, and many cost no more than a few.
	askAgainAfter = 10 * time.Millisecond

	// queueAnswerLimit is how long the node that keeps a queue is waited for at least by fair
	// callers. To move for a hiccup would cost the order.
	queueAnswerLimit = 25 * time.Millisecond
)

// A place is that of a waiter in the queue of one node.
type place struct {
	contender  *contender
	key        string
	id         string
	began      clock.Instant
	at         quorum.Set // where there may be a ticket
	asked      int        // questions so far
	lastAsked  clock.Instant
	takeoverAt clock.Instant // when to take the lock that others leave lie; zero: they do not
	tookOver   bool          // the first, which has left the lock lie
	called     atomic.Bool   // others have gone or, if it is the first, one has come
	stop       func()        // of the Watch for calls; nil: there is none

	mu     lockorder.Mutex[lockorder.Ticket]
	answer standing // to the question with the highest number
}

// A standing is what a node has answered about a place.
type standing struct {
	question int
	outcome  protocol.Outcome // granted to the first
	others   int              // Reply.Others
}

// Receive takes the reply to an OpQueue.
func (p *place) Receive(number int, reply protocol.Reply) {
	p.mu.Lock()
	if number > p.answer.question {
		p.answer = standing{number, reply.Outcome, reply.Others}
	}
	p.mu.Unlock()
	p.contender.parker.Wake()
}

// standing returns the answer to the last question; its outcome is zero as long as there is none.
func (p *place) standing() standing {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.answer.question != p.asked {
		return standing{}
	}
	return p.answer
}

func (s standing) isFirst() bool  { return s.outcome == protocol.Granted }
func (s standing) isBehind() bool { return s.outcome == protocol.Refused }
func (s standing) isSecond() bool { return s.isBehind() && s.others == 1 }

func (s standing) hasFailed() bool {
	return s.outcome == protocol.Failed || s.outcome == protocol.Unknown
}

// call is called by the node when tickets before the caller's have gone, and when one has come behind
// the first.
func (p *place) call(string) {
	p.called.Store(true)
	if c := p.contender; c.settings.shared { // the lock need not be free
		c.hinted.Store(true)
	}
	p.contender.parker.Wake()
}

// takePlace has the caller wait in the order. A place that it has already is kept.
func (c *contender) takePlace() {
	if c.place != nil {
		return
	}
	began := c.since
	if c.settings.inOrder() {
		began = c.arrived
	}
	c.splits, c.notBefore = 0, 0
	c.turnTo(c.home())
	c.group.inflight.add() // until giveBack
	c.place = &place{contender: c, key: keys.Queue.Of(c.key), id: newValue(), began: began}
}

// isQueued reports whether the caller has, or is about to take, a place.
func (c *contender) isQueued() bool { return c != nil && c.place != nil }

// wasPassedOver reports whether the caller, having failed so often before, is to take a place. Where
// others contend all the time it was passed over by the first refusal.
func (c *contender) wasPassedOver(tries int, failed *QuorumError) bool {
	now := c.settings.clock.Now()
	if failed.Err != ErrHeld || c.keepsNoQueue == quorum.All(len(c.group.nodes)) && now < c.keepsNoQueueUntil {
		return false
	}
	return tries > 0 && now.Sub(c.since) >= passedOver || c.group.queue.isContended(c.line, now)
}

// othersSeen returns how many others are known to want the lock that the caller has won.
func (c *contender) othersSeen() int {
	if c.place == nil {
		return 1 // which had it before, and may come again
	}
	return c.place.standing().others
}

func (p *place) request(t protocol.Ticket) *protocol.Request {
	t.ID, t.Life = p.id, ticketLife
	return &protocol.Request{Op: protocol.OpQueue, Key: p.key, Timeout: p.contender.settings.timeout(), Ticket: &t}
}

// restEnd returns when a waiter asks again although its rest goes on until end: others would take
// one that is silent for dead, and get before it when a quarantine is over. After a try that took
// up all of that time there is a rest all the same.
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

// giveBack ends the place and leaves all queues. Only Close waits for the answers. A ticket that
// stays is dropped when it is in the way.
func (p *place) giveBack() {
	if p == nil {
		return
	}
	for i := range p.contender.group.nodes {
		p.giveBackAt(i)
	}
	p.contender.group.inflight.done()
}

// giveBackAt leaves the queue of one node. Otherwise the ticket would be in the way of others for
// ticketLife.
func (p *place) giveBackAt(i int) {
	if p == nil || !p.at.Has(i) {
		return
	}
	p.at.Remove(i)
	c := p.contender
	t := protocol.Ticket{Leave: true, Overtakes: p.tookOver}
	c.group.inflight.add()
	if c.group.nodes[i].Submit(p.request(t), 0, departure{c.group, c.line.key}) != nil {
		c.group.inflight.done()
	}
}

// A departure takes the reply to the last request of a place at a node. Close waits for it.
type departure struct {
	group *group
	line  string
}

// Receive implements protocol.Receiver.
func (d departure) Receive(_ int, reply protocol.Reply) {
	if reply.Outcome == protocol.Granted && reply.Others > 0 {
		d.group.queue.setOthers(d.line, reply.Others)
	}
	d.group.inflight.done()
}

// probeQueueLength asks the node that keeps the queue how many wait there, without a place of its own. A
// node that does not answer is not waited for.
func (s *session) probeQueueLength() {
	nodes := s.group.nodes
	i := firstOf(nodes, s.lineKey(), s.group.voters.Overdue())
	if i < 0 {
		return // who comes next lines up, and sees why
	}
	if h := s.group.queue.lengthProbe(s); h != nil {
		_ = nodes[i].Submit(&h.req, 0, h)
	}
}

// A queueLengthProbe asks how long the queue of one line is, again and again.
type queueLengthProbe struct {
	req   protocol.Request
	queue *queue
	line  string
}

// lengthProbe returns the one of the session's line, nil if that is not there any more.
func (q *queue) lengthProbe(s *session) *queueLengthProbe {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln, timeout := q.lines[s.lineKey()], s.settings.timeout()
	if ln == nil {
		return nil
	}
	p := ln.ensureContention()
	if p.lengthProbe == nil || p.lengthProbe.req.Timeout != timeout {
		p.lengthProbe = &queueLengthProbe{queue: q, line: s.lineKey(), req: protocol.Request{
			Op: protocol.OpQueue, Key: keys.Queue.Of(s.key), Timeout: timeout,
			Ticket: &protocol.Ticket{Leave: true, Life: ticketLife},
		}}
	}
	return p.lengthProbe
}

// Receive implements protocol.Receiver.
func (h *queueLengthProbe) Receive(_ int, reply protocol.Reply) {
	if reply.Outcome == protocol.Granted {
		h.queue.hear(h.line, reply.Others, true)
	}
}

// ignored is the Receiver of replies that do not matter.
type ignored struct{}

func (ignored) Receive(int, protocol.Reply) {}

// home returns the node that is to keep the caller's place: where all others have theirs, unless it
// has failed. A caller goes back there as soon as it can be asked again, because one that waits
// elsewhere is called by no one, and is passed over by all.
func (c *contender) home() int {
	if c.settings.clock.Now() >= c.keepsNoQueueUntil {
		c.keepsNoQueue = 0
	}
	return c.choose(&c.keepsNoQueue, c.late())
}

// late returns the nodes that are not asked for a place: those that are overdue or, where the caller
// is served in order, silent.
func (c *contender) late() quorum.Set {
	if c.settings.inOrder() {
		return c.group.voters.Silent()
	}
	return c.group.voters.Overdue()
}

// isLate notes that node i has not answered in time.
func (c *contender) isLate(i int) {
	c.group.voters.PassOver(i)
	if c.settings.inOrder() {
		c.group.voters.KeepNoQueue(i)
	}
}

// hasNotKept notes that the node keeps no place. It is avoided until it answers something, and where
// it was not for lateness also for maxWait: it may answer all but questions about places.
func (c *contender) hasNotKept() {
	if !c.late().Has(c.node) {
		c.keepsNoQueue.Add(c.node)
		c.keepsNoQueueUntil = c.settings.clock.Now().Add(maxWait)
		c.isLate(c.node)
	}
}

// leaveOrder has a caller that did not ask for Fair contend by chance at another node.
func (c *contender) leaveOrder() {
	c.place.unwatch()
	c.place.giveBack()
	c.place = nil
	c.leave()
}

// ask takes or keeps the place, and watches for a call, or the lock, or both. A first that has not
// failed needs no call, and the lock would wake the others for nothing.
func (c *contender) ask(call, lock bool) {
	c.turnTo(c.home())
	p, i := c.place, c.node
	node := c.group.nodes[i]
	p.called.Store(false)
	c.hinted.Store(false)
	c.question, p.tookOver = nil, false
	if call { // before the question, so that none is missed
		key := keys.Call(p.key, p.id)
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

// awaitTurn returns when the caller is to try, and the node that it is to ask first: none if it is
// the first and the lock seems free. It returns as well when no node keeps a queue, when the
// holder of this process has handed over, or when ctx or the Locker has ended.
func (c *contender) awaitTurn() (first ballot.Plan) {
	p := c.place
	c.called, c.moves, c.unordered = false, 0, false
	// The place is not known yet, and a caller that is alone tries a free lock at once.
	call, lock := true, true
	if !c.followHints && !c.group.queue.isHeld(c.line) {
		others := c.group.queue.othersOf(c.line)
		call, lock = others > 1, others == 1 || c.settings.shared
	}
	for silent := 0; silent < len(c.group.nodes) && !c.isOver(); {
		c.ask(call, lock)
		first, over := c.awaitNews(call, lock)
		if over {
			return first
		}
		s := p.standing()
		if s.outcome == 0 || s.hasFailed() {
			c.fail()
		}
		if s.isBehind() && c.settings.inOrder() {
			c.withdraw() // or the readers before this writer would be kept out, and it would wait for them
		}
		if c.question.hasFailed() {
			c.hasNotKept()
			if !c.settings.inOrder() {
				if c.leaveOrder(); !c.followHints {
					return everyNode // nobody is known to be in the way
				}
				return ballot.Probe(c.node)
			}
			call, lock = true, true
			silent++
			continue
		}
		lock = c.settings.shared || p.called.Load() || s.isFirst() || s.isSecond() ||
			p.lastAsked.Sub(c.triedAt) >= ticketLife // those before may be out of reach of a quorum
		call = !s.isFirst()
		silent = 0
	}
	c.unordered = true
	return everyNode
}

// awaitNews returns when there is reason to ask again or, with over, what awaitTurn is to return.
func (c *contender) awaitNews(call, lock bool) (first ballot.Plan, over bool) {
	p, now := c.place, c.settings.clock.Now()
	limit := now.Add(c.answerLimit()) // for the answer
	var end clock.Instant             // to ask again; zero: not known yet
	extended := false
	for armed := clock.Instant(0); ; {
		if q := &c.group.queue; q.hasNews(c.line) { // of our own release there is no hint
			c.hinted.Store(true)
			if q.isHandedOver(c.acquisition) {
				return everyNode, true
			}
		}
		s := p.standing()
		free := lock && c.isFree()
		now = c.settings.clock.Now()
		c.met = c.met || s.others > 0 || c.question.saw() == protocol.Refused
		if s.isFirst() && p.called.Load() && c.splits <= 3 { // whoever was faster has probably lined up
			c.notBefore = 0
		}
		switch {
		case c.isOver():
			return everyNode, true
		case s.hasFailed():
			return everyNode, false
		case s.isFirst() && !lock:
			return everyNode, !call && s.others == 0
		case s.isBehind() && free && c.settings.shared: // readers come in together
			if now >= c.notBefore {
				return ballot.Probe(c.node), true
			}
		case s.isBehind() && (!call || p.called.Load()):
			return everyNode, false
		case s.isFirst() && free && now >= c.notBefore:
			if c.called = true; c.fruitlessCalls > 1 { // the key changes often, and is not free
				return ballot.Probe(c.node), true
			}
			if !c.settings.inOrder() {
				p.giveBackAt(c.node)
			}
			return everyNode, true
		case s.isBehind() && free && p.takeoverAt == 0 && !c.settings.inOrder():
			p.takeoverAt = now.Add(time.Duration(s.others) * c.spareLimit())
		case c.question.saw() == protocol.Refused && !free:
			p.takeoverAt = 0
		}
		if s.outcome != 0 && end == 0 {
			c.group.voters.Measured(c.node, now.Sub(p.lastAsked))
			end = now.Add(c.silence(s))
		}
		if left := c.question.takeLeft(); left > 0 && s.isFirst() {
			end = min(end, now.Add(c.settings.beyond(left)))
		}
		due := limit
		if s.outcome != 0 {
			due = end
		}
		if p.takeoverAt > 0 {
			due = min(due, p.takeoverAt)
		}
		if free && (s.isFirst() || c.settings.shared) {
			due = min(due, c.notBefore)
		}
		due = min(due, c.checkHints(now))
		if c.question.hasFailed() {
			return everyNode, false
		}
		switch {
		case now < due:
		case s.isFirst() && !c.group.queue.isHeld(c.line): // the node may hold what no quorum holds
			return everyNode, true
		case p.takeoverAt > 0 && now >= p.takeoverAt:
			p.takeoverAt, p.tookOver = 0, true
			return ballot.Probe(c.node), true
		case s.outcome == 0 && !extended && ballot.HasOverslept(now.Sub(limit), 0):
			limit, extended = now.Add(ballot.MinAnswerLimit), true
			continue
		default:
			if s.outcome == 0 {
				c.isLate(c.node)
			}
			return everyNode, false
		}
		if due != armed {
			armed = due
			c.parker.WakeAfter(due.Sub(now))
		}
		c.sleep()
	}
}

// spareLimit returns how long the first may leave a free lock lie before the second takes it.
func (c *contender) spareLimit() time.Duration {
	limit := c.answerLimit()
	return limit + c.settings.jitter(limit/2+1)
}

// silence returns how soon a waiter that has heard nothing asks again.
func (c *contender) silence(s standing) time.Duration {
	limit := maxWait
	if s.isBehind() {
		limit = min(limit, time.Duration(s.others+1)*askAgainAfter)
	}
	return limit/2 + c.settings.jitter(limit/2)
}
