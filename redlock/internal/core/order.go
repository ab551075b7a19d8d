package core

import (
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// How a contest waits among all processes: with a place in the order, and a lookout for the key.

// A place is where this process stands in the order of the key.
type place struct {
	id       string        // empty: it has none
	since    clock.Instant // when it began to wait
	node     int           // that keeps the order
	asked    *Ballot       // the last question; nil: there is no order
	standing standing
	others   int           // behind: how many are before it; first: how many are behind it
	at       quorum.Set    // nodes where it may have a ticket
	bad      quorum.Set    // nodes that keep no order
	horizon  clock.Instant // first: a caller that came until then came before those of other processes; else zero
	waited   bool          // the key was not free, or others were before it
	called   bool          // a call has come since the last question
	doubted  bool          // a hint may have been missed since the last question

	overtakes bool // the vote takes a free lock that earlier places did not take
}

// A standing is what the node that keeps the order has said.
type standing uint8

const (
	unknown standing = iota
	first
	behind
)

// A lookout is what is known of the key itself.
type lookout struct {
	listens bool // nodes hint at the key
	asked   *Ballot
	free    bool          // the key seems free
	told    bool          // by the answer of node, and not by a hint
	node    int           // that has said so
	since   clock.Instant // when the key became free, as far as is known
	expires clock.Instant // when the key in the way expires; zero: not known
	second  clock.Instant // when to watch another node as well; zero: it is watched, or need not be
	wrong   quorum.Set    // nodes that have called a key free which others held
	vain    int           // votes on news that were lost
	pause   clock.Instant // no vote on news of a free key before this
}

const (
	// ticketLife is how long a node keeps the place of a waiter that it does not hear from. A live waiter
	// asks again earlier.
	ticketLife = time.Second
	// secondAfter is how long one node is watched alone. If that node falls silent, no hint comes and no
	// answer is overdue, so a waiter with one node would notice only after 100 ms or more.
	secondAfter = 10 * time.Millisecond
	// noOrderFor is how long no node is asked for a place after all have refused to keep an order, for
	// example because the user may run no scripts. Meanwhile each process acts as the first.
	noOrderFor = time.Second
	// fairPace is how slow nodes are to Fair callers at least. They wait longer for the node that keeps the
	// order, because another does not know who came before.
	fairPace = 6 * time.Millisecond
)

// Home returns the node that keeps the order, if it is well.
func (k *Key) Home() int { return k.draw(0) }

// ask makes the contest wait in the order. It asks for its place and about the key, and has the node hint at both.
// It keeps its old place, if it has one. The place of a Fair caller is its own, and counts from when it came.
func (k *Key) ask(now clock.Instant) {
	c, since := k.contest, now
	w := k.wanting(nil)
	if w.isFair() {
		since = w.arrived
	}
	p := &c.place
	home, replaces := -1, ""
	past := k.remember()
	if now >= past.noOrder {
		if home = k.drawOf(past.silent, p.bad); home < 0 {
			past.noOrder, p.bad = now.Add(noOrderFor), 0
		}
	}
	if p.id == "" || w.isFair() && p.since != since {
		if home >= 0 && p.at.Has(home) {
			replaces = p.id
			p.at.Remove(home)
		}
		k.leaveOrder(now)
		p.id, p.since, p.others = k.Group.NewValue(""), since, k.Turn.others
	}
	if !c.look.listens {
		c.look.listens = true
		k.do(Effect{Kind: Listen})
	}
	near := p.standing == first || p.called || p.others < 2
	p.standing, p.called, p.doubted, p.overtakes, p.asked, p.horizon = unknown, false, false, false, nil, 0
	c.look.asked, c.look.free, c.look.told, c.look.second, c.look.expires = nil, false, false, 0, 0
	if past.pace > 0 && w.isFair() { // else the pace is not known, and may be slower
		past.pace = max(past.pace, fairPace)
	}
	c.wait(ordered, now.Add(k.answerLimit(c.timeout)))
	if p.node = home; home < 0 {
		p.standing, p.others = first, 0
		c.until = now.Add(k.Group.Delay(c.tries, &Failure{}))
		k.lookOut(now)
		return
	}
	queue := keys.Queue.Of(k.Name)
	k.query(k.ballot(toNothing, protocol.OpWatch, nil, now), keys.Call(queue, p.id), home) // first, so that no call is missed
	p.asked = k.query(k.ballot(toLineUp, protocol.OpQueue, nil, now), queue, home)
	p.asked.Req.Ticket = &protocol.Ticket{ID: p.id, Waited: now.Sub(p.since), Life: ticketLife, Replaces: replaces}
	p.at.Add(home)
	if near {
		k.lookOut(now)
	} else {
		c.look.since = 0 // whoever takes the key meanwhile is not seen
	}
}

// lookOut watches the key where the order is kept, or at another node if that one says nothing of use.
func (k *Key) lookOut(now clock.Instant) {
	l, silent, node := &k.contest.look, k.past.silent, k.contest.place.node
	if l.wrong|silent == k.Group.everyNode() {
		l.wrong = 0
	}
	if node < 0 || (l.wrong | silent).Has(node) {
		node = k.drawOf(silent, l.wrong)
	}
	k.watch(node, now)
}

// watch asks a node about the key.
func (k *Key) watch(node int, now clock.Instant) {
	b := k.ballot(toWatch, protocol.OpWatch, nil, now)
	if k.wanting(nil).Terms.Shared {
		seekReaders(b)
	}
	k.contest.look.asked = k.query(b, k.Name, node)
}

// query asks one node about a key.
func (k *Key) query(b *Ballot, key string, node int) *Ballot {
	b.Req.Key, b.Req.Timeout = key, k.contest.timeout
	k.send(b, quorum.Of(node), &b.Req)
	return b
}

// leaveOrder gives the place back. Otherwise its ticket would be in the way of others for its life.
func (k *Key) leaveOrder(now clock.Instant) {
	c := k.contest
	for i := range k.Group.Nodes {
		if c.place.at.Has(i) {
			b := k.query(k.ballot(toNothing, protocol.OpQueue, nil, now), keys.Queue.Of(k.Name), i)
			b.Req.Ticket = &protocol.Ticket{ID: c.place.id, Life: ticketLife, Leave: true, Overtakes: c.place.overtakes}
		}
	}
	c.place.at = 0
}

// placed takes the answer about the place.
func (k *Key) placed(b *Ballot, a *Answer, now clock.Instant) {
	c := k.contest
	if c == nil || c.phase != ordered {
		return
	}
	p := &c.place
	if a.Outcome != protocol.Granted && a.Outcome != protocol.Refused { // it keeps no order, be it that it says so late
		p.bad.Add(a.Node)
	}
	if p.asked != b {
		return
	}
	if p.others = a.Others; p.doubted {
		k.ask(now)
		return
	}
	if a.Others > 0 {
		k.remember().met = now
	}
	if a.Outcome == protocol.Granted && a.Node == k.Home() {
		p.horizon = max(p.since, b.Start.Add(-a.Next))
	}
	if k.claim != nil {
		k.claim.horizon = p.horizon
	}
	switch a.Outcome {
	case protocol.Granted:
		if p.called && k.wanting(nil).isFair() { // an older place may have come back since
			k.ask(now)
			return
		}
		p.standing = first
		c.until = now.Add(longest/2 + k.Group.Jitter(longest/4))
		c.look.second = now.Add(secondAfter)
	case protocol.Refused:
		p.standing, p.waited = behind, true
		if look := c.look.asked; look != nil && look.Req.Op == protocol.OpLook && look.granted != 0 {
			c.look.free, c.look.told, c.look.since = false, false, 0 // as seen says where this answer comes first
		}
		k.withdraw(now)
		c.until = now.Add(min(longest, time.Duration(a.Others+1)*secondAfter) + k.Group.Jitter(secondAfter/2))
		if p.called {
			k.ask(now)
			return
		}
	default:
		k.ask(now)
		return
	}
	if c.look.asked == nil && (p.standing == first || p.others < 2) {
		k.lookOut(now)
	}
}

// watched takes the answer about the key.
func (k *Key) watched(b *Ballot, node int, a *Answer, now clock.Instant) {
	c := k.contest
	if c == nil || c.phase != ordered || c.look.asked != b {
		return
	}
	l := &c.look
	if b.Req.Op == protocol.OpLook {
		a = c.place.seen(a)
	}
	switch {
	case a == nil:
		l.free, l.told, l.node = true, true, node
		if l.since == 0 {
			l.since = now
		}
	case a.Outcome == protocol.Refused:
		l.since = 0
		if k.claim == nil && b.Start >= k.Turn.ended { // else it may be the key of this process
			c.place.waited = true
		}
		if a.TTL > 0 {
			l.expires = now.Add(k.Group.beyond(a.TTL))
		}
	default:
		l.wrong.Add(node)
	}
}

// Hint says that the key may have changed at the node.
func (k *Key) Hint(node int, now clock.Instant) {
	k.hinted(now)
	c := k.contest
	if c == nil || c.phase != ordered || c.look.wrong.Has(node) {
		return
	}
	c.look.hinted(now)
	k.next(now)
}

// hinted notes that the key may be free.
func (l *lookout) hinted(now clock.Instant) {
	if l.free = true; l.since == 0 && l.asked != nil {
		l.since = now
	}
}

// Call says that the place id may have become the first, or that it no longer is.
func (k *Key) Call(id string, now clock.Instant) {
	c := k.contest
	if c == nil || c.phase != ordered || c.place.id != id {
		return
	}
	if c.place.called = true; c.place.standing != unknown {
		k.ask(now)
	}
}

// Doubt says that a node may have lost anything, or that hints may have been missed.
func (k *Key) Doubt(now clock.Instant) {
	k.hinted(now)
	switch c := k.contest; {
	case c == nil || c.phase != ordered:
	case c.place.standing == unknown: // what it asks may have come too early to be watched
		c.place.doubted = true
	default:
		k.ask(now)
	}
}

// follow votes if the key seems free, and it is the turn of this process.
func (k *Key) follow(now clock.Instant) {
	c := k.contest
	l, p := &c.look, &c.place
	if l.expires > 0 && p.standing == first {
		c.until = min(c.until, max(l.expires, now))
	}
	overtakes, isFair := p.standing == behind, k.wanting(nil).isFair()
	if !l.free || p.standing == unknown || overtakes && isFair {
		return
	}
	at, mayTake := l.pause, true
	// Those before have not taken a free lock; the first may be stopped. Each gets its time, and then this
	// process takes it. A Fair one waits until their tickets are dropped.
	if overtakes {
		each := k.answerLimit(c.timeout)
		at, mayTake = max(at, l.since.Add(time.Duration(p.others)*(each+each/4))), l.told
	}
	if now < at || !mayTake {
		if soon := max(at, now.Add(hintGap)); c.until <= now || soon < c.until {
			c.until = soon
		}
		return
	}
	// Nodes hint at a renewal as at a release. Before a quarter of its TTL is over, no lock is renewed.
	mayBeRenewed := !l.told && l.expires > 0 && l.expires.Sub(now) <= 3*k.wanting(nil).Terms.TTL/4
	k.vote(now)
	if p.overtakes = overtakes; !overtakes && !mayBeRenewed && !isFair {
		k.leaveOrder(now) // so that the next is called while this one votes
	}
}

// tickOrdered does what is due although no news has come.
func (k *Key) tickOrdered(now clock.Instant) {
	c := k.contest
	p, l := &c.place, &c.look
	if l.second > 0 && now >= l.second {
		l.second = 0
		if i := k.draw(k.past.silent | l.wrong | l.asked.asked); i >= 0 {
			k.watch(i, now)
		}
	}
	switch {
	case now < c.until:
	case p.standing == unknown: // the node is silent
		k.past.silent.Add(p.node)
		k.ask(now)
	case p.standing == behind || k.claim != nil:
		k.ask(now)
	case l.free: // follow comes next
	default: // no hint has come, and a while has passed
		if now >= l.asked.Start.Add(k.answerLimit(c.timeout)) {
			k.past.silent |= l.asked.open()
		}
		k.vote(now)
	}
}
