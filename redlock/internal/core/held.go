package core

import (
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A Claim is the lock of this process on the nodes, from the vote that won it until it ends. Several
// callers can hold it, one after the other.
//
// It is held only before its deadline, which counts from the start of the last request that a quorum
// granted while the claim was still held. A node that refuses an extension no longer has the claim, and
// gets it again. It never counts for the extension that found the gap, because another client may have
// had the node meanwhile.
type Claim struct {
	Terms *Terms
	Value string

	hold    *Hold
	until   clock.Instant // the deadline that the votes make
	horizon clock.Instant // a Fair caller that came until then came before those of other processes; see place
	renewAt clock.Instant
	renewal *Ballot // under way, or nil
	proof   int64   // the ballot that until counts from
	known
	trouble *trouble // nil: all has been well
	told    bool     // its value is known outside of this process
	Checked bool     // the holder's: as a permit it has no lock of another kind beside it
	readers *readers // nil: it is a writer's
	tokens  *tokens  // nil: its Terms are not Fenced
}

// What is known of the nodes with a claim.
type known struct {
	votes quorum.Set // have it, as far as is known
	maybe quorum.Set // may have it
	had   quorum.Set // are known to have it until the deadline, which the votes make; see Ballot.HadKey
}

// A trouble is what went wrong with a claim, and what is done about it.
type trouble struct {
	failed   *Ballot       // the last extension that came to nothing; nil after one that succeeded
	refused  int64         // the last that a node refused; earlier grants prove nothing
	repairs  quorum.Set    // nodes that are being given the claim again
	repaired quorum.Set    // the same, and those that were given it before, or were asked to let another reader in
	lookAt   clock.Instant // when to look at the nodes; zero: never
	looked   clock.Instant // when that was done last
	gap      time.Duration
	longest  time.Duration // the longest TTL that nodes were asked for in place of the claim's; zero: none
}

// A Hold is what one caller has of a claim.
type Hold struct {
	Claim  *Claim
	Terms  *Terms
	Since  clock.Instant // the vote that won the claim began, or it was handed over
	EndBy  clock.Instant // its MaxHold is over; zero: never
	Reason Reason
	Lost   *Failure // of the extension or look that explains a loss; nil: there is none
	Shell  any      // the owner's
}

// A Reason is why a hold has ended.
type Reason uint8

// The Reasons.
const (
	Held     Reason = iota // it has not
	Released               // by its holder
	Closed                 // by the end of the Locker
	Overdue                // no extension came before the deadline
	HeldLong               // its MaxHold is over
	Gone                   // a majority does not have the claim, by the answers to an extension
	Missing                // a majority does not have the claim, by what looks have told
)

// IsLoss reports whether the holder did not want the end.
func (r Reason) IsLoss() bool { return r >= Overdue }

// Deadline is when the hold ends, if nothing extends its claim.
func (h *Hold) Deadline() clock.Instant {
	if h.EndBy > 0 {
		return min(h.Claim.until, h.EndBy)
	}
	return h.Claim.until
}

// Deadline is when the claim ends, or with readers the first of its holds, if nothing extends it.
func (c *Claim) Deadline() clock.Instant { return c.hold.Deadline() }

// Until is when the claim ends if nothing extends it, even if a MaxHold is over before.
func (c *Claim) Until() clock.Instant { return c.until }

// Votes returns how many nodes have the claim, as far as is known.
func (c *Claim) Votes() int { return c.votes.Size() }

// Tell returns the value for use outside of this process, where it can free the claim. So the claim is not
// handed over any more. If it was handed over already, the value is another caller's, and Tell returns nothing.
func (h *Hold) Tell() string {
	c := h.Claim
	if c.readers == nil && c.hold != h {
		return ""
	}
	c.told = true
	return c.Value
}

// begin makes the claim held, by a vote that was won.
func (c *Claim) begin(b *Ballot, renewAt clock.Instant) {
	c.until, c.proof, c.renewAt = quorum.Deadline(b.Start, c.Terms.TTL), b.seq, renewAt
	c.votes, c.had, c.maybe = b.granted, b.granted, b.maybe()
	if c.readers != nil {
		c.readers.confirmed = b.Start
	}
}

// Deadline is when Expire ends the hold of the claim; zero: there is none.
func (k *Key) Deadline() clock.Instant {
	if k.claim == nil || k.claim.hold.Reason != Held {
		return 0
	}
	return k.claim.Deadline()
}

// IsWell reports whether the key is held, and its last extension has succeeded.
func (k *Key) IsWell() bool {
	return k.Deadline() > 0 && (k.claim.trouble == nil || k.claim.trouble.failed == nil)
}

// isAsked reports whether the ballot is about the claim.
func (c *Claim) isAsked(b *Ballot) bool { return c != nil && b.Req.Value == c.Value }

// troubled returns the trouble to be changed.
func (c *Claim) troubled() *trouble {
	if c.trouble == nil {
		c.trouble = &trouble{}
	}
	return c.trouble
}

// end is the only place where a claim ends. It gives the claim back on all nodes, even if it was lost: a
// minority may still have it, and would keep others out for a TTL.
func (k *Key) end(why Reason, failed *Ballot, now clock.Instant) *Ballot {
	c := k.claim
	k.claim, k.Turn.ended = nil, now
	if k.endHold(c.hold, why, failed, now); why == Overdue {
		k.Turn.until = 0 // a vote tells of an outage, and the node that keeps the order may hang
	}
	if c.readers != nil {
		k.endJoin(c.readers)
	}
	k.unwatch()
	if k.contest != nil { // nodes do not hint at what this process does itself
		k.contest.look.hinted(now)
	}
	k.tellAwaited(func(b *Ballot) bool { return b.purpose != toRelease }, now)
	b := k.giveBack(c, c.maybe, k.Group.everyNode(), now)
	if b.Req.Held = !c.hold.Reason.IsLoss(); why == Released {
		k.askOthers(c, now)
	}
	return b
}

// endHold ends a hold that has not ended. Its holder knows before a node is asked to give the claim back.
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

// giveBack asks nodes to delete a claim. The request to the nodes in maybe is repeated until it succeeds.
// The nodes in others only say what they have.
func (k *Key) giveBack(c *Claim, maybe, others quorum.Set, now clock.Instant) *Ballot {
	b := k.ballot(toRelease, protocol.OpRelease, c, now)
	b.Req.MayHold = true
	if c.trouble != nil { // for so long a node can have it that did not answer
		b.Req.TTL = max(b.Req.TTL, c.trouble.longest)
	}
	k.send(b, maybe, &b.Req)
	if others&^maybe != 0 {
		only := b.Req
		only.MayHold = false
		k.send(b, others, &only)
	}
	k.fenceRelease(c, &b.Req) // not for the others, whose counters may be what another vote is settled by
	return b
}

// released is told of an answer to a release.
func (k *Key) released(b *Ballot, now clock.Instant) {
	if b.isSettled() {
		k.tellAwaited(func(o *Ballot) bool { return o == b }, now)
	}
}

// await has a caller told what comes of its Release or Extend.
func (k *Key) await(b *Ballot, c *Caller) {
	c.asked = b
	k.awaited = append(k.awaited, c)
}

// tellAwaited tells the callers for which the waiting is over what has come of their ballots.
func (k *Key) tellAwaited(isOver func(*Ballot) bool, now clock.Instant) {
	k.awaited = slices.DeleteFunc(k.awaited, func(c *Caller) bool {
		if !isOver(c.asked) {
			return false
		}
		c.Failure, c.Votes = k.outcome(c, now), c.asked.tally.Granted
		k.do(Effect{Kind: Done, Caller: c})
		return true
	})
}

// outcome is why what a caller has asked for has not succeeded, or nil.
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

// unmet is why a release, an extension or a look has not succeeded.
func (b *Ballot) unmet(now clock.Instant) *Failure {
	if b.tally.Gone() {
		return b.failure(NotHeld, now)
	}
	return b.failure(NoQuorum, now)
}

// votedLate takes an answer to a vote that is over. It matters if that has won the present claim.
func (k *Key) votedLate(b *Ballot, node int, a *Answer) {
	c := k.claim
	switch {
	case !c.isAsked(b):
	case a == nil:
		c.maybe.Add(node)
		c.knows(b, node)
		if b.seq == c.proof {
			c.votes.Add(node)
		}
	case a.Outcome != protocol.Unknown:
		c.lacks(node)
	}
}

// lacks notes that the node has refused the claim. It may have got it again since, by a repair.
func (c *Claim) lacks(node int) {
	if c.trouble == nil || !c.trouble.repaired.Has(node) {
		c.maybe.Remove(node)
	}
}

// knows notes that the node has the claim until the deadline, because it has granted b. A later refusal overrides
// that, and the key of an earlier grant, or of one for a shorter TTL, expires before the deadline.
func (c *Claim) knows(b *Ballot, node int) {
	if b.Deadline() >= c.until && (c.trouble == nil || b.seq > c.trouble.refused) {
		c.had.Add(node)
	}
}

// Renewal.

// renewalStep is the longest step from one moment to the next at which locks are renewed.
const renewalStep = 20 * time.Millisecond

// renewAfter draws when to renew a claim: between a quarter and a third of the TTL after start. The draw
// spreads locks that were taken together. Rounding to a step lets the renewals of many share a packet.
func (k *Key) renewAfter(start clock.Instant, ttl time.Duration) clock.Instant {
	latest := start.Add(ttl / 3)
	at := latest.Add(-k.Group.Jitter(ttl/12 + 1))
	step := max(min(renewalStep, ttl/256), 1)
	if rest := time.Duration(at) % step; rest > 0 {
		at = at.Add(step - rest)
	}
	return min(at, latest)
}

// isRenewed reports whether another renewal would prolong a hold that wants that.
func (c *Claim) isRenewed() bool {
	if c.readers != nil {
		return c.readers.renewing > 0
	}
	return c.hold.Terms.Renew && (c.hold.EndBy == 0 || c.until < c.hold.EndBy)
}

// heldDue is when tickHeld has something to do.
func (k *Key) heldDue() clock.Instant {
	c := k.claim
	at := c.Deadline()
	switch {
	case c.renewal != nil:
		at = min(at, c.renewal.overdue())
	case c.isRenewed():
		at = min(at, c.renewAt)
	}
	if look := k.lookAt(); look > 0 {
		at = min(at, look)
	}
	if c.readers != nil {
		if join := k.joinDue(); join > 0 {
			at = min(at, join)
		}
	}
	return at
}

// expire ends a claim whose time is over.
func (k *Key) expire(now clock.Instant) {
	if k.Expire(now) && k.claim.hold.Reason != Held {
		k.end(k.claim.hold.Reason, nil, now)
	}
}

// Expire ends a hold whose time is over, and asks no node. Tick must follow, which does. They are two because
// many holds can be over at the same moment, and none should wait for the requests of another.
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

// tickHeld ends a claim whose time is over, renews it, and looks after it.
func (k *Key) tickHeld(now clock.Instant) {
	k.expire(now)
	c := k.claim
	if c == nil {
		return
	}
	if c.renewal != nil && now >= c.renewal.overdue() {
		c.renewalFailed(now) // answers may still come and be learnt from
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

// failed returns the extension that explains why the deadline was missed.
func (c *Claim) failed() *Ballot {
	if c.trouble != nil && c.trouble.failed != nil {
		return c.trouble.failed
	}
	return c.renewal
}

// renewalFailed notes that the renewal has come to nothing. Another is tried soon: some ten times within
// the two thirds of the TTL that are left.
func (c *Claim) renewalFailed(now clock.Instant) {
	c.troubled().failed, c.renewal = c.renewal, nil
	c.renewAt = now.Add(max(c.Terms.TTL/16, time.Millisecond))
}

// extend asks the nodes to let the claim live for its TTL from now, or for ttl if that is longer.
func (k *Key) extend(ttl time.Duration, now clock.Instant) *Ballot {
	c := k.claim
	b := k.ballot(toExtend, protocol.OpExtend, c, now)
	c.asksFor(b, ttl)
	b.HadKey, b.HadUntil, b.Req.Watch = c.had, c.until, k.isWatched
	k.send(b, k.Group.everyNode(), &b.Req)
	return b
}

// asksFor has a ballot ask for a TTL that is longer than the claim's. The claim has it once a quorum has granted it:
// until then it ends, and is renewed, by the TTL that it has.
func (c *Claim) asksFor(b *Ballot, ttl time.Duration) {
	if ttl > c.Terms.TTL {
		b.Req.TTL = ttl
		c.troubled().longest = max(c.trouble.longest, ttl)
	}
}

// lasts gives the claim the TTL that a quorum has granted.
func (c *Claim) lasts(ttl time.Duration) {
	if ttl > c.Terms.TTL {
		t := *c.Terms
		t.TTL = ttl
		c.Terms = &t
	}
}

// Extend extends the claim at its holder's request, for its TTL or for ttl if that is longer. Done follows for
// caller: its Failure is nil if that has succeeded in time.
func (k *Key) Extend(h *Hold, ttl time.Duration, caller *Caller, now clock.Instant) {
	if k.expire(now); h.Reason != Held {
		caller.Failure = &Failure{Kind: NotHeld, At: now}
		k.do(Effect{Kind: Done, Caller: caller})
		k.next(now)
		return
	}
	b := k.extend(ttl, now)
	if c := h.Claim; c.renewal == nil { // another would ask for no more
		c.renewal = b
	}
	k.await(b, caller)
}

// extended is told of an answer to an extension.
func (k *Key) extended(b *Ballot, node int, a *Answer, now clock.Instant) {
	k.expire(now) // a quorum that is late does not revive the claim
	c := k.claim
	if !c.isAsked(b) {
		return
	}
	refused := a != nil && a.Outcome == protocol.Refused
	switch {
	case a == nil:
		c.maybe.Add(node)
		c.knows(b, node)
	case refused:
		c.had.Remove(node)
		t := c.troubled()
		t.refused = max(t.refused, b.seq)
		c.lacks(node)
	}
	k.weighExtension(b, now)
	if k.claim == c && refused && a.TTL == 0 && !c.isRepaired(node) {
		k.repair(node, b.Req.TTL, now)
	}
	if c.meets(b) || b.isSettled() {
		k.tellAwaited(func(o *Ballot) bool { return o == b }, now)
	}
}

// meets reports whether the claim lives for as long as an extension has asked, by that or by a later one.
func (c *Claim) meets(b *Ballot) bool {
	return c.until >= b.Deadline() && (c.proof >= b.seq || b.isWon())
}

// isProven reports whether the claim can count from a ballot that a quorum has granted, and live until then. It is not
// shortened. A ballot for a longer TTL may be won after a later one, unless a node has refused that since.
func (c *Claim) isProven(b *Ballot, until clock.Instant) bool {
	if b.seq > c.proof {
		return until >= c.until
	}
	return until > c.until && (c.trouble == nil || b.seq >= c.trouble.refused)
}

// weighExtension draws the conclusions from the answers to an extension so far.
func (k *Key) weighExtension(b *Ballot, now clock.Instant) {
	c := k.claim
	if b.purpose == toExtend && b.tally.Gone() {
		k.end(Gone, b, now)
		return
	}
	switch until := b.Deadline(); {
	case !b.isWon() || now >= c.Deadline(): // undecided, or decided after the deadline
	case b.seq == c.proof:
		c.votes |= b.granted
	case c.isProven(b, until):
		c.lasts(b.Req.TTL)
		c.proof, c.until, c.votes = b.seq, until, b.granted
		c.had &= b.granted // the key of the others may expire before
		c.renewAt = k.renewAfter(b.Start, c.Terms.TTL)
		if c.trouble != nil {
			c.trouble.failed = nil
		}
		k.tellExtended(c)
	}
	switch {
	case b != c.renewal:
	case c.proof >= b.seq || c.meets(b):
		c.renewal = nil
	case b.isWon() || b.tally.Pending() == 0:
		c.renewalFailed(now)
	}
}

// Repair.

func (c *Claim) isRepaired(node int) bool { return c.trouble != nil && c.trouble.repairs.Has(node) }

// repair gives the claim to a node that has said that it has no such key: it was down when the lock was taken, or has
// forgotten. The node gets the TTL that it was asked for. A later release travels on the same connection, so it arrives
// after the repair.
func (k *Key) repair(node int, ttl time.Duration, now clock.Instant) {
	c := k.claim
	t := c.troubled()
	t.repairs.Add(node)
	t.repaired.Add(node)
	c.maybe.Add(node)
	b := k.ballot(toRepair, protocol.OpAcquire, c, now)
	c.asksFor(b, ttl)
	k.send(b, quorum.Of(node), &b.Req)
}

// repaired takes the node's answer.
func (k *Key) repaired(b *Ballot, node int, now clock.Instant) {
	c := k.claim
	if !c.isAsked(b) {
		return
	}
	c.troubled().repairs.Remove(node)
	k.hinted(now) // the repair has used up the node's tracking of the key, so look again
	if b.granted.Has(node) {
		c.votes.Add(node)
		c.knows(b, node)
	}
}

// Looks. A claim that is held for a while is watched: nodes that can hint when its key changes do, so that
// a loss is told within milliseconds and not at the next renewal. A hint proves nothing. After a hint the
// nodes are asked, and only a majority that answers that it does not have the claim ends it.
const (
	watchAfter    = 50 * time.Millisecond
	minWatchedTTL = time.Second // a shorter claim is renewed, or ends, almost as soon as a hint could tell

	// After a look the next waits for a gap, at first firstLookGap. A look within quietGaps gaps of the last
	// doubles the gap, up to a quarter of the TTL. So a server that hints all the time, because its table of
	// tracked keys is full for instance, costs about as many looks as renewals.
	firstLookGap = 2 * time.Millisecond
	quietGaps    = 16

	// repairDelay lets other nodes that lose their key at the same moment be heard first. If they are a
	// majority the lock is lost.
	repairDelay = 20 * time.Millisecond
)

// lookAt is when a look is due, zero for never.
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

// look asks the nodes whether they have the claim, and has them hint at the next change.
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

// unwatch has nodes hint at the claim no more.
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

// looked takes a node's answer to a look. The deadline does not depend on looks.
func (k *Key) looked(b *Ballot, node int, a *Answer, now clock.Instant) {
	c := k.claim
	switch {
	case !c.isAsked(b):
	case a == nil:
		c.maybe.Add(node)
	case b.tally.Gone():
		k.end(Missing, b, now)
	case a.Outcome == protocol.Refused && a.TTL == 0 && c.renewal == nil && c.isRenewed():
		c.renewAt = min(c.renewAt, now.Add(repairDelay)) // the renewal finds the gap and repairs the node
	}
}
