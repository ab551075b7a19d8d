package core

import (
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A phase is the state of a contest. The package comment has a table of the phases.
type phase uint8

const (
	none phase = iota
	voting
	rollingBack
	queued
	pausing
)

// A contest is how the callers of this process compete with other processes.
type contest struct {
	phase        phase
	until        clock.Instant // end of the phase; in the phase queued, queue.until replaces it
	ends         clock.Instant // earliest time at which a caller stops waiting for the attempt; zero for none
	claim        *Claim        // claim that the attempt tries to win
	attempt      *Ballot       // current or last attempt; nil before the first
	timeout      time.Duration // for requests to one node
	rollback     *Ballot       // release that rolls the attempt back
	lost         *Failure      // failure of the last attempt; nil before the first
	lostAttempts int           // number of lost attempts
	early        int           // attempts lost because nodes first had to record a TTL
	unreported   bool          // the loss is not reported until the refusing nodes have reported their holders
	queue        queue
	intent       *intent // nil unless a writer has lost an attempt
	room         *Ballot // for the first ballot, allocated with the contest; nil after that
}

func (k *Key) beginContest(t *Terms) {
	both := &struct {
		contest contest
		first   Ballot
	}{}
	k.contest = &both.contest
	k.contest.timeout, k.contest.room = t.Timeout, &both.first
	k.contest.queue.last = k.seq
}

// due returns the time of the next tickContest.
func (c *contest) due() clock.Instant {
	switch {
	case c.phase == queued:
		return c.queue.due()
	case c.isVoting() && c.ends > 0:
		return min(c.until, c.ends)
	}
	return c.until
}

// isVoting reports whether callers wait for the outcome of an attempt.
func (c *contest) isVoting() bool { return c.phase == voting || c.phase == rollingBack }

// isFor reports whether the current or last attempt was also an attempt for w: an adoption is an
// attempt only for callers that adopt the same lock.
func (c *contest) isFor(w *Caller) bool {
	return c.claim != nil && w.Terms.Adopts == c.claim.Terms.Adopts
}

// wait enters a phase that lasts until t.
func (c *contest) wait(p phase, t clock.Instant) { c.phase, c.until = p, t }

// Attempts.

// attempt asks all nodes for the lock.
func (k *Key) attempt(now clock.Instant) {
	c, t := k.contest, k.candidate(nil).Terms
	k.tellLost()
	c.claim = &Claim{Terms: t, Value: k.Group.newValue(t), horizon: c.queue.horizon}
	if t.Shared {
		k.withdraw(now)
		c.claim.readers = newReaders(k.Name)
	}
	c.attempt, c.rollback = k.ballot(toAcquire, protocol.OpAcquire, c.claim, now), nil
	switch {
	case t.Adopts != "":
		c.claim.adopt(c.attempt)
	case t.Fenced:
		k.propose(c.claim, c.attempt)
	}
	c.wait(voting, now.Add(t.Timeout))
	c.ends = now.Add(secondAfter) // most attempts end earlier, so the line need not be searched
	for _, try := range k.tryCallers {
		sooner(&c.ends, max(k.ends(try), now+1)) // if its time has expired, right after the start
	}
	k.send(c.attempt, k.Group.everyNode(), &c.attempt.Req)
}

// attemptAnswered applies an answer to an attempt.
func (k *Key) attemptAnswered(b *Ballot, node int, a *Answer, now clock.Instant) {
	c := k.contest
	switch isOver := c == nil || c.attempt != b || c.phase != voting; {
	case isOver:
		k.answered(b, node, a, now)
	case b.isWon():
		k.winAttempt(now)
	case b.isLost(), b.isSplit() && b.silent()&^k.remember().silent == 0:
		k.loseAttempt(now)
	case b.isSplit() && !c.claim.adopts(): // an adopter delays no other callers
		c.until = min(c.until, now.Add(k.lateLimit(b.Req.Timeout)))
	}
}

// lateLimit is the wait for the last answers to an attempt. A caller that tries does not ask again,
// so a late vote may grant it a free lock, and a late explanation may correct its error.
func (k *Key) lateLimit(limit time.Duration) time.Duration {
	if len(k.tryCallers) == 0 {
		return k.past.answerLimit(limit)
	}
	return max(k.past.answerLimit(limit), limit/10)
}

// winAttempt gives the claim to a caller, unless the votes came too late: a process that was
// paused, or a machine that slept, must not trust earlier votes.
func (k *Key) winAttempt(now clock.Instant) {
	c, b, claim := k.contest, k.contest.attempt, k.contest.claim
	who := k.candidate(claim)
	switch isLate := now >= quorum.Deadline(b.Start, claim.Terms.TTL); {
	case isLate:
		k.giveUp(b.failure(Stale, now), now)
		return
	case who == nil: // the caller has left
		k.rollBack(k.Group.everyNode(), now)
		c.loses(b.failure(Stale, now))
		k.endContest(now)
		return
	case !k.secureToken(true, now):
		return
	}
	b.decided = true
	k.tellVoted(b, nil)
	rivals, passed := c.rivals(), queue{}
	isFollowed := k.fair != nil && k.fairBehind(who) != nil
	switch {
	case !isFollowed:
	case who.waits(): // the next Fair caller takes the ticket over
		passed.ticket = c.queue.passOn()
	default: // the Fair caller keeps it, and a slow home may still answer
		passed = c.queue.keep()
	}
	if who.isFair() { // the turn of the process ends with its line
		k.Turn.until = 0
	}
	if rivals > 0 {
		k.remember().contendedAt = now
	}
	if k.past != nil {
		k.past.outage = 0
	}
	k.endContest(now)
	k.claim = claim
	k.Turn.begins(b.Start, now, rivals)
	claim.begin(b, k.Group.renewAfter(b.Start, claim.Terms.TTL))
	if claim.readers != nil && len(k.line) > 0 && k.line[0] == who {
		k.letIn(who, now)
	} else {
		k.grant(who, claim, now)
	}
	who.Hold.Since = b.Start
	k.tryCallers = slices.DeleteFunc(k.tryCallers, func(try *Caller) bool {
		mayTry := k.mayTry(try.Terms)
		if !mayTry {
			k.refuse(try, k.heldHere(try, now))
		}
		return !mayTry
	})
	if isFollowed {
		k.beginContest(k.line[0].Terms)
		if passed.last = max(passed.last, k.contest.queue.last); who.waits() || passed.at == 0 {
			k.contest.queue = passed
			k.joinQueue(now)
			return
		}
		k.contest.queue, k.contest.phase = passed, queued
	}
}

// Fencing tokens.

// propose adds a token to an attempt, or a block if the next caller can take the claim over.
func (k *Key) propose(claim *Claim, vote *Ballot) {
	size := int64(1)
	if len(k.line) > 1 && claim.passesTo(k.line[1]) {
		size = blockOf(k.Turn.cost)
	}
	claim.tokens, vote.floors = newTokens(k.Group, k.Name, size, vote.Start), &floors{}
	claim.tokens.fence(&vote.Req, protocol.OpAcquireFenced)
}

// secureToken reports whether a quorum has accepted a token of the attempt. Otherwise it waits,
// raises the token, or gives the attempt up.
func (k *Key) secureToken(inTime bool, now clock.Instant) bool {
	c := k.contest
	t := c.claim.tokens
	switch step, first := t.step(c.attempt, inTime); step {
	case tokenAccepted:
		t.accept()
		return true
	case tokenHurries:
		c.until = min(c.until, now.Add(k.past.answerLimit(c.attempt.Req.Timeout)))
	case tokenRaised:
		if t.raise == nil {
			k.Group.Propose() // without this call, the next attempt could propose the number of this raise if the clock stands still
			k.remember().contendedAt = now
		}
		k.raise(c.claim, first, t.size, now)
		c.wait(voting, now.Add(c.attempt.Req.Timeout))
	case tokenRefused:
		k.giveUp(t.raise.noToken(now), now)
	}
	return false
}

// raise asks the nodes of the claim to accept a block of at most n numbers.
func (k *Key) raise(c *Claim, first, n int64, now clock.Instant) {
	b := k.ballot(toRaise, protocol.OpRaise, c, now)
	c.tokens.raiseTo(b, first, n)
	k.send(b, k.Group.everyNode(), &b.Req)
}

// raised applies an answer to a raise.
func (k *Key) raised(b *Ballot, now clock.Instant) {
	switch c := k.contest; {
	case k.claim.isAsked(b):
		k.claim.tokens.raised(b)
	case c != nil && c.phase == voting && c.claim.tokens != nil && c.claim.tokens.raise == b:
		k.winAttempt(now)
	}
}

// rivals returns the number of other processes that want the key.
func (c *contest) rivals() int {
	if c.queue.waited || c.lost != nil && c.lost.Kind == ByOther {
		return max(c.queue.others, 1)
	}
	return c.queue.others
}

// loseAttempt rolls the attempt back. Usually the process joins the queue at once. If callers try,
// it first waits until the refusing nodes have reported their holders.
func (k *Key) loseAttempt(now clock.Instant) {
	c, b := k.contest, k.contest.attempt
	if c.claim.adopts() {
		k.notAdopted(now)
		return
	}
	k.Turn.until = 0
	if b.tally.Refused > 0 {
		k.remember().contendedAt = now
	}
	if silent := b.silent(); silent != 0 && now >= c.until { // an attempt can be lost before the last nodes have answered
		k.remember().silent |= silent
	}
	refusers := b.with(protocol.Refused)
	c.loses(b.explain(now))
	k.rollBack(refusers, now)
	until := min(b.timeout(), now.Add(k.lateLimit(b.Req.Timeout)))
	if refusers == 0 || now >= until || c.lost.Kind == ByOther && len(k.tryCallers) == 0 {
		k.concludeLost(now)
		return
	}
	c.wait(rollingBack, until)
}

// giveUp loses an attempt that a quorum has granted.
func (k *Key) giveUp(f *Failure, now clock.Instant) {
	k.rollBack(k.Group.everyNode(), now)
	k.contest.loses(f)
	k.concludeLost(now)
}

// notAdopted ends an adoption after a majority has refused, or when no more answers will arrive.
func (k *Key) notAdopted(now clock.Instant) {
	c, b := k.contest, k.contest.attempt
	if !b.isSettled() && now < c.until {
		return
	}
	c.loses(c.claim.explain(c.attempt, now))
	k.rollBack(0, now)
	k.concludeLost(now)
}

// rollBack releases the claim on nodes that may hold it. The release also goes to the nodes in
// others, which report their holders, and to failed nodes, where it may be unneeded.
func (k *Key) rollBack(others quorum.Set, now clock.Instant) {
	c := k.contest
	c.attempt.decided = true
	c.queue.overtakes = false // no lock was taken
	if !c.claim.adopts() {
		c.rollback = k.releaseOn(c.claim, c.attempt.mayHold(), others|c.attempt.with(protocol.Failed), now)
		c.rollback.purpose = toRollBack
	}
	k.do(Effect{Kind: Lost, Ballot: c.attempt})
}

// rolledBack applies an answer to the release of a lost attempt.
func (k *Key) rolledBack(b *Ballot, now clock.Instant) {
	c := k.contest
	if c == nil || c.rollback != b {
		return
	}
	if !c.attempt.isWon() { // otherwise the attempt was late or lacks a token, and no client blocks it
		c.lost = c.attempt.explain(now)
		c.lost.learn(c.rollback)
	}
	k.intend(now)
	if c.isExplained() {
		k.tellLost()
	}
	// In the queue, the rollback has found a key of another type.
	if c.phase == rollingBack && c.isExplained() || c.phase == queued && c.lost.Kind == NoQuorum {
		k.concludeLost(now)
	}
}

// loses records the failure of the attempt. The previous holder counts until nodes report another.
func (c *contest) loses(f *Failure) {
	if old := c.lost; old != nil && old.Kind == ByOther && f.Kind == ByOther && f.Remaining == 0 {
		f.Remaining, f.Owner = old.After(f.At).Remaining, old.Owner
	}
	c.lost, c.unreported = f, true
}

// isExplained reports whether the refusing nodes have reported their holders.
func (c *contest) isExplained() bool {
	return c.rollback == nil || c.attempt.with(protocol.Refused)&c.rollback.silent() == 0
}

// tellLost reports the loss of the attempt, unless it was reported before.
func (k *Key) tellLost() {
	if c := k.contest; c.unreported {
		c.unreported = false
		k.tellVoted(c.attempt, c.lost)
	}
}

// concludeLost fails the callers that try, and continues for the line. A caller that arrived after
// the start of the attempt shares the next one, because nodes may have answered before it arrived.
// So does a reader after the attempt of a writer, because it could join readers that hold the lock.
func (k *Key) concludeLost(now clock.Instant) {
	c, f := k.contest, k.contest.lost
	c.lostAttempts++
	if f.Kind != NoQuorum && k.past != nil {
		k.past.outage = 0
	}
	if f.IsEarly && c.early < 2 && k.candidate(nil) != nil { // the nodes grant the next attempt
		c.unreported = false // observers see both as one attempt
		c.early++
		k.attempt(now)
		return
	}
	if f.Kind != ByOther || c.phase == rollingBack || c.isExplained() {
		k.tellLost()
	}
	mayBeReaders := f.Kind == ByOther && c.claim.readers == nil && (len(k.line) == 0 || k.line[0].Terms.Shared) // no writer waits
	k.tryCallers = slices.DeleteFunc(k.tryCallers, func(try *Caller) bool {
		isOver := try.arrived <= c.attempt.Start && c.isFor(try) && !(mayBeReaders && try.Terms.Shared)
		if isOver {
			k.refuse(try, f)
		}
		return isOver
	})
	if f.Kind == NoQuorum {
		k.endPatience(f, now)
	}
	switch {
	case k.candidate(nil) == nil:
		k.endContest(now)
	case len(k.tryCallers) > 0:
		if q := &c.queue; len(k.line) > 0 && (q.at == 0 || now >= q.until) { // the ticket outlives all tries
			k.joinQueue(now)
		}
		k.attempt(now)
	case f.Kind == Stale || f.Kind == NotHeld: // no client blocks the lock
		k.compete(now)
	case f.Kind == ByOther:
		c.phase = queued
		k.inQueue(event{kind: attemptLost, refused: c.attempt.with(protocol.Refused)}, now)
	default:
		d := k.Group.Delay(c.lostAttempts-1, f)
		if c.queue.id != "" { // renew the ticket before it expires
			d = min(d, ticketLife/2)
		}
		again := now.Add(d)
		if f.Kind == NoQuorum && len(k.line) > 0 {
			again = min(again, k.patienceEnds(k.line[0]))
		}
		c.wait(pausing, again)
	}
}

// tickContest acts at the end of a phase.
func (k *Key) tickContest(now clock.Instant) {
	c := k.contest
	if c.isVoting() && c.ends > 0 && now >= c.ends {
		if k.endCallers(now); now < c.until {
			return
		}
	}
	switch c.phase {
	case voting:
		if c.attempt.isWon() {
			k.secureToken(false, now)
			return
		}
		if end := c.attempt.overdue(); c.attempt.parked != 0 && now < end {
			c.until = end
			return
		}
		k.loseAttempt(now)
	case rollingBack:
		k.concludeLost(now)
	case pausing:
		k.compete(now)
	case queued:
		k.inQueue(event{kind: timerFired}, now)
	}
}

// endContest ends the contest, its ticket and its hints.
func (k *Key) endContest(now clock.Instant) {
	c := k.contest
	k.tellLost()
	if c.queue.at != 0 {
		k.inQueue(event{kind: left}, now)
	}
	k.withdraw(now)
	k.contest = nil
	if c.queue.watch.listens {
		k.do(Effect{Kind: Unlisten})
	}
}

// abandon ends a contest that has lost its last caller.
func (k *Key) abandon(now clock.Instant) {
	c := k.contest
	if c == nil {
		return
	}
	if c.phase == voting {
		k.rollBack(0, now)
	}
	k.endContest(now)
}

// Waiting in the queue.

// joinQueue makes the contest wait in the queue.
func (k *Key) joinQueue(now clock.Instant) {
	k.contest.phase = queued
	k.inQueue(event{kind: joined}, now)
}

// inQueue applies an event to the queue, and carries out its actions. During an attempt for callers
// that try, the home may answer about the ticket of the line.
func (k *Key) inQueue(e event, now clock.Instant) {
	c := k.contest
	if c == nil || c.phase != queued && e.kind != left && !(c.isVoting() && e.kind == ticketAnswered) {
		return
	}
	s := k.situation(now)
	for _, a := range c.queue.step(&e, &s) {
		switch a.kind {
		case forHints:
			k.do(Effect{Kind: Listen})
		case forAttempt:
			k.attempt(now)
		case forReaders:
			k.withdraw(now)
		case forHorizon:
			k.claim.horizon = a.horizon
		default:
			k.query(a, now)
		}
	}
}

// situation returns the state of the Key that the queue needs.
func (k *Key) situation(now clock.Instant) situation {
	c := k.contest
	s := situation{now: now, group: k.Group, key: k.Name, past: k.remember(), timeout: c.timeout, others: k.Turn.others, lost: c.lostAttempts, ended: k.Turn.ended}
	if f := k.fair; f != nil {
		s.fair, s.arrived = true, f.arrived
	}
	if w := k.candidate(nil); w != nil {
		s.shared, s.ttl = w.Terms.Shared, w.Terms.TTL
	}
	if k.claim != nil {
		s.held, s.horizon = true, k.claim.horizon
	}
	return s
}

// query sends a question about the ticket or the key.
func (k *Key) query(a ask, now clock.Instant) {
	about := func(p purpose, op protocol.Op, key string) *protocol.Request {
		b := k.ballot(p, op, nil, now)
		b.seq, b.Req.Key, b.Req.Timeout = a.number, key, k.contest.timeout
		k.send(b, a.nodes, &b.Req)
		return &b.Req
	}
	switch order := keys.Queue.Of(k.Name); a.kind {
	case forTicket:
		about(toNothing, protocol.OpWatch, keys.Call(order, a.ticket.ID)) // before the ticket, so that no call is missed
		about(toJoinQueue, protocol.OpQueue, order).Ticket = &a.ticket
	case forLeave:
		about(toNothing, protocol.OpQueue, order).Ticket = &a.ticket
	case forKey:
		if req := about(toWatch, protocol.OpWatch, k.Name); a.readers {
			req.Op, req.Value, req.Watch = protocol.OpLook, protocol.ReadersValue, true
		}
	}
}

// Hint must be called when the key may have changed at a node.
func (k *Key) Hint(node int, now clock.Instant) {
	k.hinted(now)
	if c := k.contest; c != nil && c.phase == queued && !c.queue.watch.unreliable.Has(node) {
		k.inQueue(event{kind: hinted}, now)
		k.next(now)
	}
}

// Call must be called when the ticket id may have become the first, or may have lost that place.
func (k *Key) Call(id string, now clock.Instant) {
	k.inQueue(event{kind: called, id: id}, now)
}

// Doubt must be called when a node may have lost data, or hints may have been missed.
func (k *Key) Doubt(now clock.Instant) {
	k.hinted(now)
	k.inQueue(event{kind: doubted}, now)
}

// Home returns the node that keeps the queue if it is healthy.
func (k *Key) Home() int { return k.Group.draw(k.Name, 0) }
