package core

import (
	"slices"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A Caller is one call that wants the lock. Those that wait are served in order. Those that try once do not
// join the line: they share a vote.
type Caller struct {
	Terms *Terms
	Try   bool // it tries once
	Shell any  // the owner's

	Hold    *Hold    // what it has got
	Failure *Failure // why it has got none, or why its Release or Extend has failed
	Votes   int      // nodes that did what its Release or Extend asked
	Token   int64    // of its Hold; zero if its Terms are not Fenced

	arrived clock.Instant
	asked   *Ballot // its Release or Extend
}

func (c *Caller) isFair() bool { return c.Terms.Fair && !c.Try }

// waits reports whether the caller waits in line.
func (c *Caller) waits() bool { return !c.Try && c.Terms.Adopts == "" }

// Arrive enters a caller.
func (k *Key) Arrive(c *Caller, now clock.Instant) {
	k.expire(now)
	switch c.arrived = now; {
	case k.closed:
		k.refuse(c, &Failure{Kind: AfterClose, At: now})
	case c.waits():
		k.line = append(k.line, c)
	case k.claim != nil && !k.mayTry(c.Terms):
		k.refuse(c, k.heldHere(c, now))
	default:
		at := len(k.tries)
		if c.Terms.Adopts != "" {
			at = 0
		}
		k.tries = slices.Insert(k.tries, at, c)
		if o := k.contest; o != nil && k.claim == nil && (o.phase == ordered || o.phase == resting) {
			k.vote(now)
		}
	}
	if o := k.contest; o != nil && o.isVoting() {
		o.endsBy(k.ends(c))
	}
	k.next(now)
}

// Leave says that the caller's context has ended. It returns what was in the way. It returns nil if the
// caller has been told an outcome by now.
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

// remove takes the caller out, wherever it is. It returns false if it is nowhere any more.
func (k *Key) remove(c *Caller) bool {
	for _, list := range []*[]*Caller{&k.line, &k.tries, &k.awaited} {
		switch i := slices.Index(*list, c); {
		case i == 0:
			(*list)[0] = nil
			*list = (*list)[1:] // of ten thousand that wait none is moved
			return true
		case i > 0:
			*list = slices.Delete(*list, i, i+1)
			return true
		}
	}
	return false
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

// next begins a contest if callers want the lock and there is none. While this process holds the lock there
// is none: the line waits for the handover, and those that try are refused.
func (k *Key) next(now clock.Instant) {
	if k.claim != nil && k.claim.readers != nil {
		k.admit(now)
	}
	if k.claim != nil && k.claim.tokens != nil {
		k.reserve(k.claim, now)
	}
	switch w := k.wanting(nil); {
	case w == nil:
		k.abandon(now)
	case k.closed:
	case k.contest == nil && (k.claim == nil || w.isFair()):
		k.beginContest(w.Terms)
		if len(k.tries) == 0 && k.Turn.isOver(now) {
			p := k.remember()
			p.pace, k.Turn.until = max(p.pace, k.Turn.cost), 0
			k.ask(now)
			return
		}
		k.compete(now)
	case k.contest == nil || k.contest.phase != ordered:
	case k.claim != nil && !w.isFair():
		k.endContest(now)
	case w.isFair() && w.arrived != k.contest.place.since && (k.claim == nil || k.contest.place.standing != unknown || w.arrived > k.claim.horizon):
		k.ask(now) // the caller whose place it is has left, or has got the claim
	case k.claim == nil:
		k.follow(now)
	}
}

// compete has the contest vote. A Fair caller lines up before that.
func (k *Key) compete(now clock.Instant) {
	if k.wanting(nil).isFair() {
		k.ask(now)
	} else {
		k.vote(now)
	}
}

// wanting returns the first of the line, or of those that try, that can have the claim; nil stands for any
// claim. Before them goes one that adopts a value.
func (k *Key) wanting(claim *Claim) *Caller {
	if claim == nil && len(k.tries) > 0 && k.tries[0].Terms.Adopts != "" {
		return k.tries[0]
	}
	if len(k.line) > 0 && (claim == nil && len(k.tries) == 0 || k.isTurn(k.line[0]) && (claim == nil || claim.suits(k.line[0].Terms))) {
		return k.line[0]
	}
	for _, c := range k.tries {
		if claim == nil || claim.suits(c.Terms) {
			return c
		}
	}
	return nil
}

// isTurn reports whether the first of the line may have the lock. A Fair one waits until it is the first of the
// order: callers that try may come before it, but their votes are not for it.
func (k *Key) isTurn(c *Caller) bool {
	return !c.isFair() || k.contest != nil && k.contest.place.standing == first && k.contest.place.since == c.arrived
}

// Handover.

// askOthers asks the node that keeps the order how many processes wait, if the turn wants to know. The answer comes
// together with that to the release.
func (k *Key) askOthers(c *Claim, now clock.Instant) {
	if !k.Turn.asks(now) {
		return
	}
	p := k.remember()
	if home := k.draw(p.silent); home >= 0 && now >= p.noOrder {
		b := k.ballot(toProbe, protocol.OpQueue, nil, now)
		b.Req.Key, b.Req.Timeout, b.Req.Ticket = keys.Queue.Of(k.Name), c.Terms.Timeout, &protocol.Ticket{Life: ticketLife, Leave: true}
		k.send(b, quorum.Of(home), &b.Req)
	}
}

// othersCounted takes the answer.
func (k *Key) othersCounted(a *Answer, now clock.Instant) {
	if a.Outcome != protocol.Granted {
		return
	}
	if k.Turn.told(a.Others, now); a.Others > 0 {
		k.remember().met = now
	}
}

// grant gives the claim to a caller.
func (k *Key) grant(c *Caller, claim *Claim, now clock.Instant) {
	k.remove(c)
	h := &Hold{Claim: claim, Since: now}
	h.take(c.Terms, now)
	if claim.tokens != nil {
		c.Token = claim.tokens.next()
	}
	if c.Hold = h; claim.readers != nil {
		claim.add(h)
	} else {
		claim.hold, claim.Terms = h, h.Terms
	}
	k.do(Effect{Kind: Grant, Caller: c})
}

// take gives the hold its terms, from now on.
func (h *Hold) take(t *Terms, now clock.Instant) {
	if h.Terms, h.EndBy = t, 0; t.MaxHold > 0 {
		h.EndBy = now.Add(t.MaxHold)
	}
}

// Change gives a hold other terms. They differ in Renew and MaxHold only, and MaxHold counts from now.
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

// Release ends a hold because its holder asks for it. The claim passes to the next of the line, or is given
// back. Done follows for c: at once after a handover, else when a quorum has confirmed or the time is up.
func (k *Key) Release(h *Hold, c *Caller, now clock.Instant) {
	if k.expire(now); h.Reason != Held {
		c.Failure = &Failure{Kind: NotHeld, At: now}
		k.do(Effect{Kind: Done, Caller: c})
		k.next(now)
		return
	}
	claim := h.Claim
	if claim.readers != nil && len(claim.readers.holds) > 1 {
		c.Votes = claim.votes.Size()
		k.endReader(h, Released, now)
		k.do(Effect{Kind: Done, Caller: c})
		k.next(now)
		return
	}
	if claim.readers == nil && k.canHandOver(claim, now) {
		c.Votes = claim.votes.Size()
		k.endHold(h, Released, nil, now)
		k.grant(k.line[0], claim, now)
		k.do(Effect{Kind: Done, Caller: c})
		k.next(now)
		return
	}
	k.await(k.end(Released, nil, now), c)
	k.next(now)
}

// canHandOver reports whether the next of the line can have the claim as it is: it wants the same terms,
// the turn is not over, and at least half of the claim's TTL is left. One that does not renew it wants all of it.
func (k *Key) canHandOver(c *Claim, now clock.Instant) bool {
	return c.hasNext() && k.couldHandOver(c, now)
}

// couldHandOver is canHandOver, but for the token. Where nodes may have a longer TTL than the claim's, the next caller
// has not asked for that.
func (k *Key) couldHandOver(c *Claim, now clock.Instant) bool {
	mayLast := c.trouble != nil && c.trouble.longest > c.Terms.TTL
	return len(k.line) > 0 && !mayLast && c.passesTo(k.line[0]) && now < k.Turn.until && c.until.Sub(now) >= c.Terms.TTL/2
}

// passesTo reports whether the claim can be handed over to a caller. The value must be unknown outside of this
// process, where it frees the claim of whoever has it. A Fair caller must have come before those of other processes.
func (c *Claim) passesTo(w *Caller) bool {
	return !c.told && c.Terms.Adopts == "" && w.Terms.Renew && c.suits(w.Terms) && (!w.Terms.Fair || w.arrived <= c.horizon)
}

// suits reports whether a caller with terms t would have asked for the same claim.
func (c *Claim) suits(t *Terms) bool {
	if t.Shared || c.readers != nil {
		return (t.Adopts == "" || t.Adopts == c.Value) && t.Shared && c.readers != nil && t.TTL <= c.Terms.TTL
	}
	of := c.Terms
	return t == of || t.TTL == of.TTL && t.Timeout == of.Timeout && t.Owner == of.Owner && t.Fenced == of.Fenced && t.Adopts == of.Adopts && t.Permits == of.Permits
}

// heldHere is the failure of a caller that finds another caller of this process holding the lock. Beside a writer no
// other value is on the nodes.
func (k *Key) heldHere(c *Caller, now clock.Instant) *Failure {
	if value := c.Terms.Adopts; value != "" && value != k.claim.Value && k.claim.readers == nil {
		return &Failure{Kind: NotHeld, At: now}
	}
	return &Failure{Kind: ByUs, At: now, Remaining: max(k.claim.Deadline().Sub(now), 0), Owner: ownerOf(k.claim.Value)}
}

// inTheWay is what has kept a caller waiting.
func (k *Key) inTheWay(c *Caller, now clock.Instant) *Failure {
	switch o := k.contest; {
	case k.claim != nil:
		return k.heldHere(c, now)
	case o != nil && o.lost != nil && o.lost.Kind != NotHeld:
		return o.lost.During(k.remember().outage, now).After(now)
	case o != nil && o.phase == ordered && o.place.waited:
		return &Failure{Kind: ByOther, At: now}
	case o != nil && o.phase == voting:
		return o.vote.failure(Unknown, now)
	}
	return &Failure{Kind: Unknown, At: now}
}
