package core

import (
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A queue is the waiting of this process among all processes: its ticket at the node that keeps
// their order, called home, and its watch of the key. A queue is pure. Its method step takes an
// event, changes only the queue, and returns the requests that the Key must send.
//
// The process at the head of the queue makes an attempt when the key seems free. The other
// processes renew their tickets from time to time, and watch the key if they are near the head.
// They make an attempt only if the processes ahead have left a free lock unused.
type queue struct {
	ticket
	watch keyWatch
	until clock.Instant // time of the next timerFired, without other events
	last  int64         // number of the last question; unique among the contests of the Key
	asks  []ask         // buffer for the result of step
}

// A ticket is the entry of this process in the queue.
type ticket struct {
	id       string        // empty without a ticket
	since    clock.Instant // start of the waiting
	home     int           // node that keeps the order; -1 if no node does
	question int64         // number of the last question about the ticket; zero for none
	standing standing
	others   int           // Reply.Others of the last answer: processes ahead of this one, or behind it if it is the first
	at       quorum.Set    // nodes that may have the ticket
	bad      quorum.Set    // nodes that keep no order
	horizon  clock.Instant // if the ticket is the first: a caller that arrived by this time is ahead of other processes; otherwise zero
	waited   bool          // the key was held, or other processes were ahead
	called   bool          // a call arrived after the last question
	doubted  bool          // hints may have been missed after the last question

	overtakes bool // the attempt takes a lock that the processes ahead left unused
}

// A standing is the place of a ticket by the last answer of its home.
type standing uint8

const (
	unknown standing = iota
	first
	behind
)

// A keyWatch is the view of the key itself.
type keyWatch struct {
	listens    bool       // the nodes send hints about the key
	question   int64      // number of the last question about the key; zero for none
	nodes      quorum.Set // addressees of that question
	open       quorum.Set // addressees without an answer
	asked      clock.Instant
	isGranted  bool          // a node has granted that question
	readers    bool          // the question also asks for readers
	free       bool          // the key seems free
	freeAt     quorum.Set    // nodes that have called the key free in answer to that question
	since      clock.Instant // when a node first called the key free; zero after any later news of the key
	expires    clock.Instant // end of the key that blocks this process; zero if unknown
	second     clock.Instant // time to watch a second node; zero for none
	unreliable quorum.Set    // nodes that have called a held key free
	wasted     int           // lost attempts on news of a free key
	pause      clock.Instant // no attempt on such news before this time
}

const (
	// ticketLife is the time for which a node keeps a ticket without a renewal. Live processes
	// renew earlier.
	ticketLife = time.Second
	// secondAfter is the time for which a process watches one node alone. If that node falls
	// silent, no hint arrives and no answer is overdue, so the process would notice only after 100
	// ms or more.
	secondAfter = 10 * time.Millisecond
	// noOrderFor is the time for which every process acts as the first, after all nodes have
	// refused to keep an order, for example because the user may not run scripts.
	noOrderFor = time.Second
	// fairPace is the least response time that Fair callers assume. They wait longer for the home,
	// because another node does not know which callers arrived before.
	fairPace = 6 * time.Millisecond
)

// An event is an input of a queue.
type event struct {
	kind    eventKind
	number  int64         // ticketAnswered, keyAnswered: question
	start   clock.Instant // ticketAnswered: start of the question
	node    int           // keyAnswered
	answer  *Answer       // ticketAnswered; keyAnswered: nil if the key is free
	id      string        // called
	refused quorum.Set    // attemptLost: nodes that refused
}

type eventKind uint8

const (
	joined         eventKind = iota // the process begins to wait
	attemptLost                     // another client won, so the process waits again
	ticketAnswered                  // the home has answered
	keyAnswered                     // the watched node has answered
	hinted                          // the key may be free
	called                          // the ticket may have become the first, or may have lost that place
	doubted                         // hints may have been missed
	timerFired
	changed // callers or claim of the process may have changed; follows every other event
	left    // the process stops waiting
)

// A situation is the state of the Key that a queue needs.
type situation struct {
	now     clock.Instant
	group   *Group
	key     string
	past    *past // past of the Key; the queue adds silent nodes
	timeout time.Duration
	fair    bool          // a Fair caller waits
	arrived clock.Instant // arrival of the first Fair caller
	shared  bool          // the candidate is a reader
	ttl     time.Duration // of the candidate
	others  int           // waiting processes when this one held the key last
	lost    int           // lost attempts
	held    bool          // this process holds the lock
	horizon clock.Instant // of that claim
	ended   clock.Instant // end of the last claim of this process
}

// An ask is an action that a queue needs from the Key.
type ask struct {
	kind    askKind
	nodes   quorum.Set
	number  int64           // forTicket, forKey: question
	ticket  protocol.Ticket // forTicket, forLeave
	readers bool            // forKey: also ask for readers
	horizon clock.Instant   // forHorizon
}

type askKind uint8

const (
	forHints   askKind = iota // make the nodes send hints about the key
	forTicket                 // take or renew the ticket, and have the node call when it may be the first
	forLeave                  // end the ticket
	forKey                    // ask whether the key is free, and for a hint at its next change
	forAttempt                // make an attempt
	forReaders                // withdraw the writer's intent, because it would keep out readers that this process waits for
	forHorizon                // hand the claim over to Fair callers that arrived by the horizon
)

// step applies an event and returns the actions, in order. The next step reuses the slice.
func (q *queue) step(e *event, s *situation) []ask {
	q.asks = q.asks[:0]
	switch e.kind {
	case joined:
		q.watch.since = 0 // no hints arrived until now
		q.join(s)
	case attemptLost:
		q.attemptLost(e.refused, s)
	case ticketAnswered:
		q.ticketAnswered(e, s)
	case keyAnswered:
		q.keyAnswered(e, s)
	case hinted:
		q.watch.hinted()
	case called:
		if q.id == e.id {
			if q.called = true; q.standing != unknown {
				q.join(s)
			}
		}
	case doubted:
		if q.standing == unknown { // the question may have preceded the watch
			q.doubted = true
		} else {
			q.join(s)
		}
	case timerFired:
		q.timerFired(s)
	case changed:
		// The caller of the ticket may have left, or may hold the claim. If the horizon of the
		// claim covers the next Fair caller, there is time to wait for the home's answer about the
		// ticket.
		isOther := s.fair && s.arrived != q.since
		switch {
		case isOther && (!s.held || q.standing != unknown || s.arrived > s.horizon):
			q.join(s)
		case !s.held:
			q.attempt(s)
		}
	case left:
		q.leave(s)
	}
	return q.asks
}

// due returns the time of the next timerFired.
func (q *queue) due() clock.Instant {
	at := q.until
	sooner(&at, q.watch.second)
	return at
}

// isFirst reports whether the ticket is the first, and belongs to a caller that arrived then.
func (q *queue) isFirst(arrived clock.Instant) bool { return q.standing == first && q.since == arrived }

// passOn returns the ticket for the next contest, and drops it here.
func (q *queue) passOn() ticket {
	t := ticket{id: q.id, since: q.since, at: q.at, bad: q.bad}
	q.at = 0
	return t
}

// keep returns the queue for the next contest, and drops it here. The process has just taken the key.
func (q *queue) keep() queue {
	kept := *q
	q.at, q.watch.listens = 0, false
	kept.watch.free, kept.watch.freeAt, kept.watch.since = false, 0, 0
	return kept
}

// join asks for a ticket and about the key. It renews the ticket if there is one. With a Fair
// caller, the ticket counts from the arrival of that caller.
func (q *queue) join(s *situation) {
	since := s.now
	if s.fair {
		since = s.arrived
	}
	home, replaces := -1, ""
	if s.now >= s.past.noOrder {
		if home = s.drawOf(s.past.silent, q.bad); home < 0 {
			s.past.noOrder, q.bad = s.now.Add(noOrderFor), 0
		}
	}
	if q.id == "" || s.fair && q.since != since {
		if home >= 0 && q.at.Has(home) {
			replaces = q.id
			q.at.Remove(home)
		}
		q.leave(s)
		q.id, q.since, q.others = s.group.NewValue(""), since, s.others
	}
	w := &q.watch
	if !w.listens {
		w.listens = true
		q.asks = append(q.asks, ask{kind: forHints})
	}
	isNear := q.standing == first || q.called || q.others < 2
	q.standing, q.called, q.doubted, q.question, q.horizon = unknown, false, false, 0, 0
	w.question, w.isGranted, w.free, w.freeAt, w.second, w.expires = 0, false, false, 0, 0, 0
	if s.past.pace > 0 && s.fair { // the limit is already longer if the pace is unknown
		s.past.pace = max(s.past.pace, fairPace)
	}
	q.until = s.now.Add(s.past.answerLimit(s.timeout))
	if q.home = home; home < 0 {
		q.standing, q.others = first, 0
		q.until = s.now.Add(s.group.Delay(s.lost, &Failure{}))
		q.watchKey(s)
		return
	}
	q.last++
	q.question = q.last
	t := protocol.Ticket{ID: q.id, Waited: s.now.Sub(q.since), Life: ticketLife, Replaces: replaces}
	q.asks = append(q.asks, ask{kind: forTicket, nodes: quorum.Of(home), number: q.question, ticket: t})
	q.at.Add(home)
	if isNear {
		q.watchKey(s)
	}
}

// attemptLost joins the queue again after another client has won.
func (q *queue) attemptLost(refused quorum.Set, s *situation) {
	w := &q.watch
	if w.free { // a wasted attempt; a server may send hints without end
		gap := hintGap << min(w.wasted/2, 4)
		w.wasted++
		pause := gap/2 + s.group.Jitter(gap/2)
		if s.fair { // otherwise the processes behind would take this one for dead
			pause = min(pause, minAnswerLimit)
		}
		w.pause = s.now.Add(pause)
	}
	w.unreliable |= w.freeAt &^ refused // false answers
	w.since = 0                         // no hints arrived during the attempt
	q.join(s)
}

// watchKey watches the key at the home, or at another node if the home is silent or unreliable. A
// key that seems free is watched at all nodes, because one node may lack a key that other nodes
// hold.
func (q *queue) watchKey(s *situation) {
	w, silent, node := &q.watch, s.past.silent, q.home
	if w.unreliable|silent == s.group.everyNode() {
		w.unreliable = 0
	}
	if node < 0 || (w.unreliable | silent).Has(node) {
		node = s.drawOf(silent, w.unreliable)
	}
	nodes := quorum.Of(node)
	if w.since > 0 {
		nodes = s.group.everyNode()
	}
	q.watchAt(nodes, s)
}

// watchAt asks nodes about the key. A reader also asks for readers, because it could join them.
func (q *queue) watchAt(nodes quorum.Set, s *situation) {
	w := &q.watch
	q.last++
	w.question, w.nodes, w.open, w.asked, w.isGranted, w.readers = q.last, nodes, nodes, s.now, false, s.shared
	q.asks = append(q.asks, ask{kind: forKey, nodes: nodes, number: w.question, readers: s.shared})
}

// leave ends the ticket. Otherwise the ticket would delay other processes until it expires.
func (q *queue) leave(s *situation) {
	for i := range s.group.Nodes {
		if q.at.Has(i) {
			t := protocol.Ticket{ID: q.id, Life: ticketLife, Leave: true, Overtakes: q.overtakes}
			q.asks = append(q.asks, ask{kind: forLeave, nodes: quorum.Of(i), ticket: t})
		}
	}
	q.at = 0
}

// ticketAnswered applies the answer of the home about the ticket.
func (q *queue) ticketAnswered(e *event, s *situation) {
	a := e.answer
	isKept := a.Outcome == protocol.Granted || a.Outcome == protocol.Refused
	if !isKept { // even if the answer is late
		q.bad.Add(a.Node)
	}
	if q.question != e.number {
		return
	}
	if q.others = a.Others; q.doubted {
		q.join(s)
		return
	}
	if a.Others > 0 {
		s.past.contendedAt = s.now
	}
	if a.Outcome == protocol.Granted && a.Node == s.group.draw(s.key, 0) {
		q.horizon = max(q.since, e.start.Add(-a.Next))
	}
	if s.held {
		q.asks = append(q.asks, ask{kind: forHorizon, horizon: q.horizon})
	}
	w := &q.watch
	switch {
	case !isKept, a.Outcome == protocol.Granted && q.called && s.fair: // an older ticket may be ahead again
		q.join(s)
		return
	case a.Outcome == protocol.Granted:
		q.standing = first
		q.until = s.now.Add(longest/2 + s.group.Jitter(longest/4))
		w.second = s.now.Add(secondAfter)
	default:
		q.standing, q.waited = behind, true
		if w.readers && w.isGranted {
			w.free, w.freeAt, w.since = false, 0, 0 // freeForReaders does the same if the answer about the ticket is earlier
		}
		q.asks = append(q.asks, ask{kind: forReaders})
		q.until = s.now.Add(min(longest, time.Duration(a.Others+1)*secondAfter) + s.group.Jitter(secondAfter/2))
		if q.called {
			q.join(s)
			return
		}
	}
	if w.question == 0 && (q.standing == first || q.others < 2) {
		q.watchKey(s)
	}
}

// keyAnswered applies the answer of the watched node.
func (q *queue) keyAnswered(e *event, s *situation) {
	w := &q.watch
	if w.question != e.number {
		return
	}
	a := e.answer
	w.open.Remove(e.node)
	w.isGranted = w.isGranted || a == nil
	if w.readers {
		a = q.freeForReaders(a)
	}
	switch {
	case a == nil:
		if w.since == 0 && !w.free { // otherwise a hint may be newer than the answer
			w.since = s.now
		}
		w.free = true
		w.freeAt.Add(e.node)
	case a.Outcome == protocol.Refused:
		w.since = 0
		w.unreliable |= w.freeAt
		if !s.held && w.asked > s.ended { // otherwise it may be the key of this process
			q.waited = true
		}
		if a.TTL > 0 {
			w.expires = s.now.Add(s.group.afterExpiry(a.TTL))
		}
	default:
		w.unreliable.Add(e.node)
	}
}

// freeForReaders converts an answer about the readers of a key: nil if the key is free for a
// reader. A reader behind other processes does not join the readers, because a writer may be ahead.
func (q *queue) freeForReaders(a *Answer) *Answer {
	switch {
	case a != nil && a.Outcome == protocol.Refused && a.TTL == 0: // there is no key
		return nil
	case a == nil && q.standing == behind:
		return &Answer{Outcome: protocol.Refused}
	}
	return a
}

// hinted records that the key may be free. The key may just as well have been taken or renewed.
func (w *keyWatch) hinted() { w.free, w.since = true, 0 }

// attempt requests an attempt if the key seems free and this process may take it.
func (q *queue) attempt(s *situation) {
	w := &q.watch
	if w.expires > 0 && q.standing == first {
		q.until = min(q.until, max(w.expires, s.now))
	}
	overtakes := q.standing == behind
	if !w.free || q.standing == unknown || overtakes && s.fair {
		return
	}
	at := w.pause
	// The processes ahead may have stopped. Each of them gets some time after a node has called the
	// key free. Then this process takes the key if a quorum calls it free. A Fair caller waits
	// until their tickets expire.
	if overtakes {
		each, since := s.past.answerLimit(s.timeout), s.now
		if w.since > 0 {
			since = w.since
		}
		at = max(at, since.Add(time.Duration(q.others)*(each+each/4)))
		if w.freeAt.Size() <= s.group.Nodes/2 {
			at = max(at, s.now.Add(each)) // to ask first
		}
	}
	if s.now < at {
		if soon := max(at, s.now.Add(hintGap)); q.until <= s.now || soon < q.until {
			q.until = soon
		}
		return
	}
	// Nodes send hints at a renewal, too. No lock is renewed in the first quarter of its TTL.
	mayBeRenewed := w.freeAt == 0 && w.expires > 0 && w.expires.Sub(s.now) <= 3*s.ttl/4
	q.asks = append(q.asks, ask{kind: forAttempt})
	if q.overtakes = overtakes; !overtakes && !mayBeRenewed && !s.fair {
		q.leave(s) // the home then calls the next process during the attempt
	}
}

// timerFired acts because no answer or hint arrived in time.
func (q *queue) timerFired(s *situation) {
	w := &q.watch
	if w.second > 0 && s.now >= w.second {
		w.second = 0
		if i := s.group.draw(s.key, s.past.silent|w.unreliable|w.nodes); i >= 0 {
			q.watchAt(quorum.Of(i), s)
		}
	}
	switch {
	case s.now < q.until:
	case q.standing != first || s.held:
		if q.standing == unknown { // the home is silent
			s.past.silent.Add(q.home)
		}
		q.join(s)
	case w.free: // the event changed follows
	default: // no news for a while
		if s.now >= w.asked.Add(s.past.answerLimit(s.timeout)) {
			s.past.silent |= w.open
		}
		q.asks = append(q.asks, ask{kind: forAttempt})
	}
}

// The home node.

// draw returns the node with the highest lot for a key, or -1 if avoid has all nodes. All processes
// draw the same node, in whatever order they list the nodes.
func (g *Group) draw(key string, avoid quorum.Set) int {
	best, most := -1, uint64(0)
	for i, lot := range g.Lots {
		if avoid.Has(i) {
			continue
		}
		if lot = keys.Mix(keys.Hash(lot, key)); best < 0 || lot > most {
			best, most = i, lot
		}
	}
	return best
}

// drawOf draws a node outside both sets, or outside avoid if the sets contain every node.
func (s *situation) drawOf(rather, avoid quorum.Set) int {
	if i := s.group.draw(s.key, rather|avoid); i >= 0 {
		return i
	}
	return s.group.draw(s.key, avoid)
}
