package core

import (
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// Arrive adds a caller.
func (k *Key) Arrive(c *Caller, now clock.Instant) {
	k.expire(now)
	switch c.arrived = now; {
	case k.closed:
		k.refuse(c, &Failure{Kind: AfterClose, At: now})
	case c.waits():
		if k.line = append(k.line, c); k.fair == nil && c.isFair() {
			k.fair = c
		}
	case k.claim != nil && !k.mayTry(c.Terms):
		k.refuse(c, k.heldHere(c, now))
	default:
		at := len(k.tryCallers)
		if c.Terms.Adopts != "" {
			at = 0
		}
		k.tryCallers = slices.Insert(k.tryCallers, at, c)
	}
	if o := k.contest; o != nil && o.isVoting() {
		sooner(&o.ends, k.ends(c))
	}
	k.next(now)
}

// Leave removes a caller whose context has ended, and returns its failure. It returns nil if the
// caller already has an outcome.
func (k *Key) Leave(c *Caller, now clock.Instant) (f *Failure) {
	if !k.remove(c) {
		return nil
	}
	if c.asked != nil {
		c.Votes = c.asked.tally.Granted
		return c.asked.failure(NoQuorum, now)
	}
	f = k.inTheWay(c, now)
	k.next(now)
	return f
}

// remove removes the caller from its list, and reports whether it was in one.
func (k *Key) remove(c *Caller) bool {
	for _, list := range []*[]*Caller{&k.line, &k.tryCallers, &k.awaited} {
		switch i := slices.Index(*list, c); {
		case i == 0:
			(*list)[0] = nil
			*list = (*list)[1:] // avoids moving a line of ten thousand callers
		case i > 0:
			*list = slices.Delete(*list, i, i+1)
		default:
			continue
		}
		if k.fair == c {
			k.fair = k.fairBehind(c)
		}
		return true
	}
	return false
}

// fairBehind returns the first Fair caller of the line except c, or nil.
func (k *Key) fairBehind(c *Caller) *Caller {
	if i := slices.IndexFunc(k.line, func(o *Caller) bool { return o != c && o.isFair() }); i >= 0 {
		return k.line[i]
	}
	return nil
}

func (k *Key) fail(c *Caller, f *Failure) {
	k.remove(c)
	k.refuse(c, f)
}

// refuse fails a caller that is in no list.
func (k *Key) refuse(c *Caller, f *Failure) {
	c.Failure = f
	k.do(Effect{Kind: Fail, Caller: c})
}

// next begins a contest if a caller wants the lock and none is in progress. While this process
// holds the lock, the line waits for a handover, and callers that try are refused.
func (k *Key) next(now clock.Instant) {
	if k.claim != nil && k.claim.readers != nil {
		k.admit(now)
	}
	if k.claim != nil && k.claim.tokens != nil {
		k.reserve(k.claim, now)
	}
	switch w := k.candidate(nil); {
	case w == nil:
		k.abandon(now)
	case k.closed:
	case k.contest == nil && (k.claim == nil || k.placedBy() != nil):
		k.beginContest(w.Terms)
		if k.Turn.isOver(now) && k.leaveToOthers(now) {
			return
		}
		k.compete(now)
	case k.contest == nil || k.contest.isVoting():
	case k.claim == nil && len(k.tryCallers) > 0 && now >= k.triesFrom(): // callers that try wait for no holder
		k.attempt(now)
	case k.contest.phase == pausing && k.contest.attempt == nil && len(k.line) > 0: // the line does not pause after the turn
		k.joinQueue(now)
	case k.contest.phase != queued:
	case k.claim != nil && k.placedBy() == nil:
		k.endContest(now)
	default:
		k.inQueue(event{kind: changed}, now)
	}
}

// leaveToOthers lets other processes go first after the turn. It returns false if callers that try
// make an attempt at once, because no other process is known to wait.
func (k *Key) leaveToOthers(now clock.Instant) bool {
	at := k.triesFrom()
	if len(k.tryCallers) == 0 || now < at && len(k.line) > 0 {
		p := k.remember()
		p.pace, k.Turn.until = max(p.pace, k.Turn.cost), 0
		k.joinQueue(now)
		return true
	}
	k.askOthers(k.contest.timeout, now)
	k.contest.wait(pausing, at)
	return now < at
}

// triesFrom returns the time from which callers that try may make an attempt; zero for any time. For
// a turn after its last release, the process leaves the key to the processes that wait. Each caller
// waits for one of its timeouts at most, so two are left for the attempt.
func (k *Key) triesFrom() clock.Instant {
	if k.claim != nil || k.Turn.others == 0 || len(k.tryCallers) == 0 || k.tryCallers[0].Terms.Adopts != "" {
		return 0
	}
	at := k.Turn.ended.Add(k.Turn.length())
	for _, try := range k.tryCallers {
		at = min(at, try.arrived.Add(try.Terms.Timeout))
	}
	return at
}

// placedBy returns the caller that the ticket of this process counts from: the first Fair caller of
// the line. The ticket also serves the callers ahead in the line. It returns nil without a Fair
// caller, or if callers that try come first.
func (k *Key) placedBy() *Caller {
	if k.claim == nil && len(k.tryCallers) > 0 {
		return nil
	}
	return k.fair
}

// compete makes an attempt. With a Fair caller the process joins the queue instead.
func (k *Key) compete(now clock.Instant) {
	if k.placedBy() != nil {
		k.joinQueue(now)
	} else {
		k.attempt(now)
	}
}

// candidate returns the first caller that can have the claim, from the line or from the callers
// that try. A nil claim means any claim. A caller that adopts a value comes first.
func (k *Key) candidate(claim *Claim) *Caller {
	if claim == nil && len(k.tryCallers) > 0 && k.tryCallers[0].Terms.Adopts != "" {
		return k.tryCallers[0]
	}
	if len(k.line) > 0 && (claim == nil && len(k.tryCallers) == 0 || k.isTurn(k.line[0]) && (claim == nil || claim.matches(k.line[0].Terms))) {
		return k.line[0]
	}
	for _, c := range k.tryCallers {
		if claim == nil || claim.matches(c.Terms) {
			return c
		}
	}
	return nil
}

// isTurn reports whether the first caller of the line may have the lock. A Fair caller waits until
// its ticket is the first. Callers that try may overtake it, but their attempts are not for it.
func (k *Key) isTurn(c *Caller) bool {
	return !c.isFair() || k.contest != nil && k.contest.queue.isFirst(c.arrived)
}

// Patience.

// ends returns the time at which a caller stops waiting for an attempt: three timeouts for a caller
// that tries, and its Patience for a caller in line.
func (k *Key) ends(c *Caller) clock.Instant {
	if !c.waits() {
		return c.arrived.Add(3 * c.Terms.Timeout)
	}
	since := k.contest.attempt.Start
	if k.past != nil && k.past.outage > 0 {
		since = k.past.outage
	}
	return max(since, c.arrived).Add(max(c.Terms.Patience, c.Terms.Timeout))
}

// endCallers fails the callers that have waited long enough. The attempt continues for the others.
func (k *Key) endCallers(now clock.Instant) {
	c, f := k.contest, k.contest.lost
	switch {
	case c.phase == rollingBack:
	case c.attempt.isWon():
		f = c.attempt.failure(NoToken, now)
	default:
		f = c.claim.explain(c.attempt, now)
	}
	c.ends = 0
	for _, w := range slices.Concat(k.tryCallers, k.line) {
		switch end := k.ends(w); {
		case now < end:
			sooner(&c.ends, end)
		case !w.waits() && !c.isFor(w): // an attempt for this caller has not begun in time
			k.fail(w, &Failure{Kind: NoQuorum, At: now, Nodes: k.Group.everyNode().Size()})
		case !w.waits():
			k.fail(w, f)
		case f.Kind == NoQuorum && c.phase == voting && w != k.candidate(nil): // the candidate has the time of the attempt
			k.fail(w, f.During(max(k.remember().outage, c.attempt.Start), now))
		}
	}
	if c.phase == voting && k.candidate(nil) == nil { // no caller waits for the other answers
		c.loses(f)
	}
}

// endPatience fails the callers at the head of the line whose Patience has expired. These callers
// need no attempt of their own.
func (k *Key) endPatience(f *Failure, now clock.Instant) {
	p := k.remember()
	if p.outage == 0 {
		p.outage = max(k.contest.attempt.Start, 1) // zero means no outage
	}
	for len(k.line) > 0 {
		if c := k.line[0]; f.IsPermanent() || now >= k.patienceEnds(c) {
			k.fail(c, f.During(p.outage, now))
		} else {
			return
		}
	}
}

// patienceEnds returns the end of the Patience of a caller. The last attempt begins by then.
func (k *Key) patienceEnds(c *Caller) clock.Instant {
	return max(k.past.outage, c.arrived).Add(c.Terms.Patience)
}

// Handover.

// askOthers asks the home for the number of waiting processes. With a release, both answers arrive
// together.
func (k *Key) askOthers(timeout time.Duration, now clock.Instant) {
	b := k.ballot(toAskQueue, protocol.OpQueue, nil, now)
	b.Req.Key, b.Req.Timeout, b.Req.Ticket = keys.Queue.Of(k.Name), timeout, &protocol.Ticket{Life: ticketLife, Leave: true}
	k.askHome(b, now)
}

// askHome sends the question to the home, or to the next node that replaces it.
func (k *Key) askHome(b *Ballot, now clock.Instant) {
	p := k.remember()
	if home := k.Group.draw(k.Name, p.silent|b.asked); home >= 0 && now >= p.noOrder {
		b.Start = now
		k.send(b, quorum.Of(home), &b.Req)
	}
}

// othersCounted applies the answer of the home. If the home is silent or down, the other processes
// wait at the node that replaces it.
func (k *Key) othersCounted(b *Ballot, a *Answer, now clock.Instant) {
	if a.Outcome != protocol.Granted {
		if !k.closed {
			k.askHome(b, now)
		}
		return
	}
	if k.Turn.answered(a.Others, now); a.Others > 0 {
		k.remember().contendedAt = now
	}
}

// grant gives the claim to a caller.
func (k *Key) grant(c *Caller, claim *Claim, now clock.Instant) {
	k.remove(c)
	h := &Hold{Claim: claim, Since: now}
	h.take(c.Terms, now)
	if claim.tokens != nil {
		c.Token = claim.tokens.take()
	}
	if c.Hold = h; claim.readers != nil {
		claim.add(h)
	} else {
		claim.hold, claim.Terms = h, h.Terms
	}
	k.do(Effect{Kind: Grant, Caller: c})
}

// Change sets other terms for a hold. They differ only in Renew and MaxHold.
func (k *Key) Change(h *Hold, t *Terms, now clock.Instant) {
	if k.expire(now); h.Reason != Held {
		k.next(now)
		return
	}
	if c := h.Claim; c.readers != nil {
		c.remove(h)
		h.take(t, now)
		c.add(h)
		return
	}
	h.take(t, now)
	h.Claim.Terms = t
}

// Release ends a hold at the request of its holder. The claim passes to the next caller of the
// line, or is released on the nodes. Done follows for c: at once after a handover, or when a quorum
// has confirmed.
func (k *Key) Release(h *Hold, c *Caller, now clock.Instant) {
	k.expire(now)
	claim := h.Claim
	switch {
	case h.Reason != Held:
		c.Failure = &Failure{Kind: NotHeld, At: now}
	case claim.readers != nil && len(claim.readers.holds) > 1:
		c.Votes = claim.votes.Size()
		k.endReader(h, Released, now)
	case claim.readers == nil && k.canHandOver(claim, now):
		c.Votes = claim.votes.Size()
		k.endHold(h, Released, nil, now)
		k.grant(k.line[0], claim, now)
	default:
		k.await(k.end(Released, nil, now), c)
		k.next(now)
		return
	}
	k.do(Effect{Kind: Done, Caller: c})
	k.next(now)
}

// canHandOver reports whether the next caller of the line can have the claim as it is: it has the
// same terms, the turn is not over, and at least half of the TTL is left. Without Renew, all of the
// TTL must be left.
func (k *Key) canHandOver(c *Claim, now clock.Instant) bool {
	return c.tokens.hasNext() && k.couldHandOver(c, now)
}

// reserve asks for another block of tokens after the last token was issued, if the next caller of
// the line could have the claim. If the nodes do not accept the block, the claim is released.
func (k *Key) reserve(c *Claim, now clock.Instant) {
	if t := c.tokens; t.raise == nil && !t.hasNext() && k.couldHandOver(c, now) {
		k.raise(c, t.first+t.size, maxBlock, now)
	}
}

// couldHandOver is canHandOver without the check of the token. A claim with a longer TTL on some
// nodes is not handed over, because the next caller has not asked for that TTL.
func (k *Key) couldHandOver(c *Claim, now clock.Instant) bool {
	mayLast := c.trouble != nil && c.trouble.longest > c.Terms.TTL
	return len(k.line) > 0 && !mayLast && c.passesTo(k.line[0]) && now < k.Turn.until && c.until.Sub(now) >= c.Terms.TTL/2
}

// heldHere returns the failure of a caller that finds the lock held by another caller of this
// process. While a writer holds the lock, the nodes have no other value.
func (k *Key) heldHere(c *Caller, now clock.Instant) *Failure {
	if value := c.Terms.Adopts; value != "" && value != k.claim.Value && k.claim.readers == nil {
		return &Failure{Kind: NotHeld, At: now}
	}
	return &Failure{Kind: ByUs, At: now, Remaining: max(k.claim.Deadline().Sub(now), 0), Owner: ownerOf(k.claim.Value)}
}

// inTheWay returns the reason a caller was still waiting.
func (k *Key) inTheWay(c *Caller, now clock.Instant) *Failure {
	switch o := k.contest; {
	case k.claim != nil:
		return k.heldHere(c, now)
	case o != nil && c.Terms.Adopts != "" && !o.isFor(c):
		return &Failure{Kind: Unknown, At: now}
	case o != nil && o.lost != nil && o.lost.Kind != NotHeld:
		return o.lost.During(k.remember().outage, now).After(now)
	case o != nil && o.phase == queued && o.queue.waited:
		return &Failure{Kind: ByOther, At: now}
	case o != nil && o.phase == voting:
		return o.attempt.failure(Unknown, now)
	}
	return &Failure{Kind: Unknown, At: now}
}
