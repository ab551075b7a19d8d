package core

import (
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// Deadline returns the time at which Expire ends the hold, or zero without a hold.
func (k *Key) Deadline() clock.Instant {
	if k.claim == nil || k.claim.hold.Reason != Held {
		return 0
	}
	return k.claim.Deadline()
}

// IsWell reports whether the lock is held, and its last extension succeeded.
func (k *Key) IsWell() bool {
	return k.Deadline() > 0 && (k.claim.trouble == nil || k.claim.trouble.failed == nil)
}

// end is the only place where a claim ends. It releases the claim on all nodes even after a loss: a
// minority may still hold it, and would keep other clients out for a TTL.
func (k *Key) end(why Reason, failed *Ballot, now clock.Instant) *Ballot {
	c := k.claim
	k.claim, k.Turn.ended = nil, now
	if k.endHold(c.hold, why, failed, now); why == Overdue {
		k.Turn.until = 0 // the next attempt notices the outage, and the home may hang
	}
	if c.readers != nil {
		k.endJoin(c.readers)
	}
	k.unwatch()
	k.inQueue(event{kind: hinted}, now) // nodes send no hints about changes of this process
	k.finishAwaited(func(b *Ballot) bool { return b.purpose != toRelease }, now)
	b := k.releaseOn(c, c.mayHold, k.Group.everyNode(), now)
	if b.Req.Held = !c.hold.Reason.IsLoss(); why == Released && k.Turn.asks(now) {
		k.askOthers(c.Terms.Timeout, now)
	}
	return b
}

// endHold ends a hold once. Its holder is notified before a node is asked to release the claim.
func (k *Key) endHold(h *Hold, why Reason, failed *Ballot, now clock.Instant) {
	if h.Reason != Held {
		return
	}
	if h.Reason = why; failed != nil {
		h.Lost = failed.unmet(now)
	}
	if c := h.Claim; c.readers != nil && h == c.hold {
		k.endAll(h)
		return
	}
	k.do(Effect{Kind: End, Hold: h})
}

// releaseOn asks nodes to delete a claim. The request to the nodes in mayHold is repeated until it
// succeeds. The nodes in others only report their holder.
func (k *Key) releaseOn(c *Claim, maybe, others quorum.Set, now clock.Instant) *Ballot {
	b := k.ballot(toRelease, protocol.OpRelease, c, now)
	b.Req.MayHold = true
	if c.trouble != nil { // a silent node may hold the claim for this long
		b.Req.TTL = max(b.Req.TTL, c.trouble.longest)
	}
	k.send(b, maybe, &b.Req)
	if others&^maybe != 0 {
		only := b.Req
		only.MayHold = false
		k.send(b, others, &only)
	}
	// Nodes that may hold the claim must accept none of its tokens after that. The counters of
	// other nodes may decide another attempt, so they stay. A claim that was held until now is
	// released without its tokens, which costs a node less: a late attempt takes an unused token.
	if c.tokens != nil && (c.hold == nil || c.hold.Reason.IsLoss()) {
		c.tokens.fence(&b.Req, protocol.OpReleaseFenced)
	}
	return b
}

// released applies an answer to a release.
func (k *Key) released(b *Ballot, now clock.Instant) {
	if b.isSettled() {
		k.finishAwaited(func(o *Ballot) bool { return o == b }, now)
	}
}

// await makes a caller wait for its Release or Extend.
func (k *Key) await(b *Ballot, c *Caller) {
	c.asked = b
	k.awaited = append(k.awaited, c)
}

// finishAwaited delivers the outcome to the callers whose ballot has ended.
func (k *Key) finishAwaited(isOver func(*Ballot) bool, now clock.Instant) {
	k.awaited = slices.DeleteFunc(k.awaited, func(c *Caller) bool {
		if !isOver(c.asked) {
			return false
		}
		c.Failure, c.Votes = k.outcome(c, now), c.asked.tally.Granted
		k.do(Effect{Kind: Done, Caller: c})
		return true
	})
}

// outcome returns the failure of a Release or Extend, or nil.
func (k *Key) outcome(c *Caller, now clock.Instant) *Failure {
	switch b := c.asked; {
	case b.purpose == toRelease && b.isWon():
		return nil
	case b.purpose == toRelease:
		return b.unmet(now)
	case !k.claim.isAsked(b):
		return &Failure{Kind: NotHeld, At: now}
	case k.claim.meets(b):
		return nil
	default:
		return b.unmet(now)
	}
}

// answered applies an answer about the claim.
func (k *Key) answered(b *Ballot, node int, a *Answer, now clock.Instant) {
	if b.Req.Op.Extends() {
		k.expire(now) // a late quorum does not revive the claim
	}
	c := k.claim
	if !c.isAsked(b) {
		return
	}
	v := c.take(b, node, a, now)
	if v.end != Held {
		k.end(v.end, b, now)
	}
	if v.isExtended {
		c.renewAt = k.Group.renewAfter(b.Start, c.Terms.TTL)
		k.tellExtended(c)
	}
	if v.repair {
		k.repair(node, b.Req.TTL, now)
	}
	if v.look {
		k.hinted(now)
	}
	if v.isSettled {
		k.finishAwaited(func(o *Ballot) bool { return o == b }, now)
	}
}

// Renewal.

// heldDue returns the time of the next tickHeld.
func (k *Key) heldDue() clock.Instant {
	c := k.claim
	at := c.Deadline()
	switch {
	case c.renewal != nil:
		at = min(at, c.renewal.overdue())
	case c.isRenewed():
		at = min(at, c.renewAt)
	}
	sooner(&at, k.lookAt())
	if c.readers != nil {
		sooner(&at, k.joinDue())
	}
	return at
}

// expire ends an expired claim.
func (k *Key) expire(now clock.Instant) {
	if k.Expire(now) && k.claim.hold.Reason != Held {
		k.end(k.claim.hold.Reason, nil, now)
	}
}

// Expire ends an expired hold without asking a node. The caller must call Tick next, which asks the
// nodes. The two are separate because many holds can expire at once, and no hold should wait for
// the requests of another.
func (k *Key) Expire(now clock.Instant) (isOver bool) {
	switch c := k.claim; {
	case c == nil || now < c.Deadline():
		return false
	case now >= c.until:
		k.endHold(c.hold, Overdue, c.failed(), now)
	case c.readers != nil:
		k.endLong(c, now)
	default:
		k.endHold(c.hold, HeldLong, nil, now)
	}
	return true
}

// tickHeld ends an expired claim, renews it, and looks at its nodes.
func (k *Key) tickHeld(now clock.Instant) {
	k.expire(now)
	c := k.claim
	if c == nil {
		return
	}
	if c.renewal != nil && now >= c.renewal.overdue() {
		c.renewalFailed(now) // later answers still count
	}
	if c.readers != nil && c.readers.asked != nil {
		k.tickJoin(now)
	}
	if c.renewal == nil && c.isRenewed() && now >= c.renewAt {
		c.renewal = k.extend(0, now)
	}
	if at := k.lookAt(); at > 0 && now >= at {
		k.look(now)
	}
}

// extend asks the nodes to prolong the claim to its TTL from now, or to ttl if that is longer.
func (k *Key) extend(ttl time.Duration, now clock.Instant) *Ballot {
	c := k.claim
	b := k.ballot(toExtend, protocol.OpExtend, c, now)
	c.asksFor(b, ttl)
	b.HadKey, b.HadUntil, b.Req.Watch = c.surelyHold, c.until, k.isWatched
	k.send(b, k.Group.everyNode(), &b.Req)
	return b
}

// Extend extends the claim at its holder's request, to its TTL or to ttl if that is longer. Done
// follows for the caller, with a nil Failure on success.
func (k *Key) Extend(h *Hold, ttl time.Duration, caller *Caller, now clock.Instant) {
	if k.expire(now); h.Reason != Held {
		caller.Failure = &Failure{Kind: NotHeld, At: now}
		k.do(Effect{Kind: Done, Caller: caller})
		k.next(now)
		return
	}
	b := k.extend(ttl, now)
	if c := h.Claim; c.renewal == nil { // a second renewal would ask for the same
		c.renewal = b
	}
	k.await(b, caller)
}

// Repair.

// repair restores the claim on a node that has no such key, because it was down or has forgotten
// it. The node gets the TTL that the extension asked for. A later release arrives after the repair,
// on the same connection.
func (k *Key) repair(node int, ttl time.Duration, now clock.Instant) {
	c := k.claim
	t := c.troubled()
	t.repairs.Add(node)
	t.repaired.Add(node)
	c.mayHold.Add(node)
	b := k.ballot(toRepair, protocol.OpAcquire, c, now)
	c.asksFor(b, ttl)
	k.send(b, quorum.Of(node), &b.Req)
}

// Looks. A claim that is held for some time is watched: nodes send a hint when its key changes, so
// a loss is noticed within milliseconds instead of at the next renewal. A hint proves nothing.
// After a hint the nodes are asked, and only a majority without the claim ends it.
const (
	watchAfter    = 50 * time.Millisecond
	minWatchedTTL = time.Second // a shorter claim ends, or is renewed, almost as soon as a hint could arrive

	// The gap between looks starts at firstLookGap. A look within quietGaps gaps of the last look
	// doubles the gap, up to a quarter of the TTL. So a server that sends hints without end, for
	// example because its tracking table is full, costs about as many looks as renewals.
	firstLookGap = 2 * time.Millisecond
	quietGaps    = 16
)

// lookAt returns the time of the next look, or zero.
func (k *Key) lookAt() clock.Instant {
	switch c := k.claim; {
	case k.isWatched && c.trouble != nil:
		return c.trouble.lookAt
	case k.isWatched || c.readers != nil || k.Unwatched || k.Group.Hinting == 0 || c.Terms.TTL < minWatchedTTL:
		return 0
	default:
		return c.hold.Since.Add(watchAfter)
	}
}

// look asks the nodes whether they hold the claim, and for a hint at the next change.
func (k *Key) look(now clock.Instant) {
	c := k.claim
	if !k.isWatched {
		k.isWatched = true
		k.do(Effect{Kind: Listen})
	} else if t := c.trouble; t.looked > 0 && now < t.looked.Add(quietGaps*t.gap) {
		t.gap, t.looked, t.lookAt = min(2*t.gap, c.Terms.TTL/4), now, 0
	} else {
		t.gap, t.looked, t.lookAt = firstLookGap, now, 0
	}
	b := k.ballot(toLook, protocol.OpLook, c, now)
	b.Req.Watch = true
	k.send(b, k.Group.Hinting, &b.Req)
}

// unwatch stops the hints about the claim.
func (k *Key) unwatch() {
	if k.isWatched {
		k.isWatched = false
		k.do(Effect{Kind: Unlisten})
	}
}

// hinted schedules a look as early as the gap allows.
func (k *Key) hinted(now clock.Instant) {
	if k.isWatched {
		t := k.claim.troubled()
		t.lookAt = max(now, t.looked.Add(t.gap))
	}
}
