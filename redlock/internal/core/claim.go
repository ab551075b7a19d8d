package core

import (
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A Claim is the lock of this process on the nodes, from the attempt that won it until it ends.
//
// It is held only before its deadline, which counts from the start of the last request that a
// quorum granted in time. A node that refuses an extension has lost the claim, and gets it again.
// Such a node does not count for the extension that found this, because another client may have
// held the lock there.
type Claim struct {
	Terms *Terms
	Value string

	hold     *Hold
	until    clock.Instant // deadline of the votes
	horizon  clock.Instant // a Fair caller that arrived by this time is ahead of other processes; see ticket
	renewAt  clock.Instant
	renewal  *Ballot // extension in progress, or nil
	provenBy int64   // number of the ballot that until counts from
	known
	trouble *trouble // nil without trouble
	exposed bool     // other processes may know the value
	Checked bool     // used by the holder of a permit: no lock of another kind exists next to the claim
	readers *readers // nil for a writer
	tokens  *tokens  // nil unless the Terms are Fenced
}

// The nodes of a claim.
type known struct {
	votes      quorum.Set // nodes that hold the claim, by their answers
	mayHold    quorum.Set // may hold it
	surelyHold quorum.Set // nodes that hold the claim until the deadline of the votes; see Ballot.HadKey
}

// A trouble is the repair of a claim that some nodes have lost.
type trouble struct {
	failed   *Ballot       // last extension, if it failed
	refused  int64         // number of the last extension that a node refused; earlier grants prove nothing
	repairs  quorum.Set    // nodes that are getting the claim again
	repaired quorum.Set    // nodes that got the claim again, or a question of readers
	lookAt   clock.Instant // time of the next look; zero for none
	looked   clock.Instant // time of the last look
	gap      time.Duration
	longest  time.Duration // longest TTL that nodes may have granted, if longer than the TTL of the claim; else zero
}

// A Hold is one caller's use of a claim.
type Hold struct {
	Claim  *Claim
	Terms  *Terms
	Since  clock.Instant // start of the attempt, or time of the handover
	EndBy  clock.Instant // end of its MaxHold; zero for none
	Reason Reason
	Lost   *Failure // explains a loss; nil if no answer does
	Ref    any      // for the owner of the Key
}

// A Caller is one call that wants the lock. It waits in line, or tries once.
type Caller struct {
	Terms *Terms
	Try   bool // the caller tries once
	Ref   any  // for the owner of the Key

	Hold    *Hold    // nil without the lock
	Failure *Failure // reason for having no Hold, or of a failed Release or Extend
	Votes   int      // nodes that granted the Release or Extend
	Token   int64    // of the Hold; zero unless the Terms are Fenced

	arrived clock.Instant
	asked   *Ballot // ballot of its Release or Extend
}

func (c *Caller) isFair() bool { return c.Terms.Fair && !c.Try }

// waits reports whether the caller waits in line.
func (c *Caller) waits() bool { return !c.Try && c.Terms.Adopts == "" }

// A Reason is the cause of the end of a hold.
type Reason uint8

// The Reasons.
const (
	Held     Reason = iota // the hold has not ended
	Released               // its holder released it
	Closed                 // the Locker was closed
	Overdue                // no extension was granted before the deadline
	HeldLong               // its MaxHold expired
	Gone                   // a majority has lost the claim, by the answers to an extension
	Missing                // a majority has lost the claim, by the answers to a look
)

// IsLoss reports whether the hold ended against the will of its holder.
func (r Reason) IsLoss() bool { return r >= Overdue }

// Deadline returns the end of the hold if no extension follows.
func (h *Hold) Deadline() clock.Instant {
	if h.EndBy > 0 {
		return min(h.Claim.until, h.EndBy)
	}
	return h.Claim.until
}

// Deadline returns the end of the claim, or of the first of its readers, if no extension follows.
func (c *Claim) Deadline() clock.Instant { return c.hold.Deadline() }

// Until returns the end of the claim if no extension follows, regardless of MaxHold.
func (c *Claim) Until() clock.Instant { return c.until }

// Votes returns the number of nodes that hold the claim, according to their answers.
func (c *Claim) Votes() int { return c.votes.Size() }

// Voters returns the nodes that hold the claim, according to their answers.
func (c *Claim) Voters() quorum.Set { return c.votes }

// Expose returns the value for use outside of this process, where it can release the claim. The
// claim is no longer handed over after that. After a handover Expose returns "".
func (h *Hold) Expose() string {
	c := h.Claim
	if c.readers == nil && c.hold != h {
		return ""
	}
	c.exposed = true
	return c.Value
}

// begin makes the claim held after the attempt b has won it.
func (c *Claim) begin(b *Ballot, renewAt clock.Instant) {
	c.until, c.provenBy, c.renewAt = quorum.Deadline(b.Start, c.Terms.TTL), b.seq, renewAt
	c.votes, c.surelyHold, c.mayHold = b.granted, b.granted, b.mayHold()
	if c.readers != nil {
		c.readers.confirmed = b.Start
	}
}

// isAsked reports whether the ballot is about the claim.
func (c *Claim) isAsked(b *Ballot) bool { return c != nil && b.Req.Value == c.Value }

// troubled returns the trouble, created on first use.
func (c *Claim) troubled() *trouble {
	if c.trouble == nil {
		c.trouble = &trouble{}
	}
	return c.trouble
}

// passesTo reports whether the claim can be handed over to a caller. No other process may know the
// value, because the value releases the claim. A Fair caller must be ahead of other processes.
func (c *Claim) passesTo(w *Caller) bool {
	return !c.exposed && c.Terms.Adopts == "" && w.Terms.Renew && c.matches(w.Terms) && (!w.Terms.Fair || w.arrived <= c.horizon)
}

// matches reports whether a caller with terms t would have asked the nodes for the same claim. Every
// option that changes the request must be compared here, or a handover ignores it.
func (c *Claim) matches(t *Terms) bool {
	if t.Shared || c.readers != nil {
		return (t.Adopts == "" || t.Adopts == c.Value) && t.Shared && c.readers != nil && t.TTL <= c.Terms.TTL
	}
	of := c.Terms
	return t == of || t.TTL == of.TTL && t.Timeout == of.Timeout && t.Owner == of.Owner && t.Fenced == of.Fenced && t.Adopts == of.Adopts && t.Permits == of.Permits
}

// take sets the terms of the hold. MaxHold counts from now.
func (h *Hold) take(t *Terms, now clock.Instant) {
	if h.Terms, h.EndBy = t, 0; t.MaxHold > 0 {
		h.EndBy = now.Add(t.MaxHold)
	}
}

// Answers.

// A verdict is the consequence of an answer for a claim.
type verdict struct {
	end        Reason // Held if the claim has not ended
	isExtended bool   // the claim has another deadline
	repair     bool   // the node has lost the key, and must get it again
	look       bool   // a look is due, because the node may send no more hints
	isSettled  bool   // the outcome of the ballot is known
}

// take records the answer of a node to a ballot about the claim. It expects nil for a grant.
func (c *Claim) take(b *Ballot, node int, a *Answer, now clock.Instant) (v verdict) {
	switch isRefused := a != nil && a.Outcome == protocol.Refused; {
	case b.purpose == toRepair:
		c.repaired(b, node)
		v.look = true // the repair replaces the node's tracking of the key
	case b.purpose == toLook:
		v.end = c.looked(b, node, a, now)
	case b.purpose == toJoin:
		if a == nil {
			c.knows(b, node)
		}
		v = c.weigh(b, now)
	case b.Req.Op.Extends():
		c.heard(b, node, a)
		if v = c.weigh(b, now); v.end == Held {
			v.repair = isRefused && a.TTL == 0 && !c.trouble.repairs.Has(node)
			v.isSettled = c.meets(b) || b.isSettled()
		}
	default: // a vote that arrives after the attempt
		c.takeLate(b, node, a)
	}
	return v
}

// takeLate records an answer to the attempt that won the claim.
func (c *Claim) takeLate(b *Ballot, node int, a *Answer) {
	switch {
	case a == nil:
		c.mayHold.Add(node)
		c.knows(b, node)
		if b.seq == c.provenBy {
			c.votes.Add(node)
		}
	case a.Outcome != protocol.Unknown:
		c.lacks(node)
	}
}

// heard records a node's answer to an extension.
func (c *Claim) heard(b *Ballot, node int, a *Answer) {
	switch {
	case a == nil:
		c.mayHold.Add(node)
		c.knows(b, node)
	case a.Outcome == protocol.Refused:
		c.surelyHold.Remove(node)
		t := c.troubled()
		t.refused = max(t.refused, b.seq)
		c.lacks(node)
	}
}

// weigh applies the answers to an extension so far.
func (c *Claim) weigh(b *Ballot, now clock.Instant) (v verdict) {
	if b.purpose == toExtend && b.tally.Gone() {
		return verdict{end: Gone}
	}
	switch until := b.Deadline(); {
	case !b.isWon() || now >= c.Deadline(): // undecided, or granted too late
	case b.seq == c.provenBy:
		c.votes |= b.granted
	case c.isProven(b, until):
		v.isExtended = true
		c.lasts(b.Req.TTL)
		c.provenBy, c.until, c.votes = b.seq, until, b.granted
		c.surelyHold &= b.granted // the keys of other nodes may expire before
		if c.trouble != nil {
			c.trouble.failed = nil
		}
	}
	switch {
	case b != c.renewal:
	case c.provenBy >= b.seq || c.meets(b):
		c.renewal = nil
	case b.isWon() || b.tally.Pending() == 0:
		c.renewalFailed(now)
	}
	return v
}

// meets reports whether b or a later extension makes the claim live as long as b asked.
func (c *Claim) meets(b *Ballot) bool {
	return c.until >= b.Deadline() && (c.provenBy >= b.seq || b.isWon())
}

// isProven reports whether ballot b can set the deadline to until. It never shortens the claim. An
// extension to a longer TTL may be granted after a later extension, unless a node has refused the
// claim since.
func (c *Claim) isProven(b *Ballot, until clock.Instant) bool {
	if b.seq > c.provenBy {
		return until >= c.until
	}
	return until > c.until && (c.trouble == nil || b.seq >= c.trouble.refused)
}

// repaired records the answer of a node that got the claim again.
func (c *Claim) repaired(b *Ballot, node int) {
	c.troubled().repairs.Remove(node)
	if b.granted.Has(node) {
		c.votes.Add(node)
		c.knows(b, node)
	}
}

// repairDelay is the wait for other nodes that lose their key at the same moment.
const repairDelay = 20 * time.Millisecond

// looked records a node's answer to a look. A look does not change the deadline.
func (c *Claim) looked(b *Ballot, node int, a *Answer, now clock.Instant) (end Reason) {
	switch {
	case a == nil:
		c.mayHold.Add(node)
	case b.tally.Gone():
		return Missing
	case a.Outcome == protocol.Refused && a.TTL == 0 && c.renewal == nil && c.isRenewed():
		c.renewAt = min(c.renewAt, now.Add(repairDelay)) // the renewal repairs the node
	}
	return Held
}

// lacks records that a node refused the claim. A repair may have restored the claim since.
func (c *Claim) lacks(node int) {
	if c.trouble == nil || !c.trouble.repaired.Has(node) {
		c.mayHold.Remove(node)
	}
}

// knows records that a node holds the claim until the deadline, because it has granted b. A later
// refusal overrides the grant. The key of an earlier grant, or of one for a shorter TTL, expires
// before the deadline.
func (c *Claim) knows(b *Ballot, node int) {
	if b.Deadline() >= c.until && (c.trouble == nil || b.seq > c.trouble.refused) {
		c.surelyHold.Add(node)
	}
}

// isRenewed reports whether a holder wants renewals, and another one would prolong its hold.
func (c *Claim) isRenewed() bool {
	if c.readers != nil {
		return c.readers.renewing > 0
	}
	return c.hold.Terms.Renew && (c.hold.EndBy == 0 || c.until < c.hold.EndBy)
}

// failed returns the extension that explains the missed deadline.
func (c *Claim) failed() *Ballot {
	if c.trouble != nil && c.trouble.failed != nil {
		return c.trouble.failed
	}
	return c.renewal
}

// renewalFailed schedules another renewal. About ten fit into the rest of the TTL.
func (c *Claim) renewalFailed(now clock.Instant) {
	c.troubled().failed, c.renewal = c.renewal, nil
	c.renewAt = now.Add(max(c.Terms.TTL/16, time.Millisecond))
}

// asksFor makes a ballot ask for ttl if that is longer. A quorum of grants makes the claim last.
func (c *Claim) asksFor(b *Ballot, ttl time.Duration) {
	if ttl > c.Terms.TTL {
		b.Req.TTL = ttl
		c.troubled().longest = max(c.trouble.longest, ttl)
	}
}

// lasts sets the TTL of the claim to the TTL that a quorum has granted.
func (c *Claim) lasts(ttl time.Duration) {
	if ttl > c.Terms.TTL {
		t := *c.Terms
		t.TTL = ttl
		c.Terms = &t
	}
}

// Adoptions. A lock can be adopted by its value from another process, or from an earlier run of this one. An
// adoption is a contest whose attempt extends the existing value. It creates no key, and a lost
// adoption releases nothing. Its deadline counts from the start of its own attempt.
//
// A caller that adopts tries once, and before all other callers, because the value may expire. If
// the adoption fails, the other callers get the next attempt.

// adopts reports whether the claim takes over the lock of another holder.
func (c *Claim) adopts() bool { return c.Terms.Adopts != "" }

// adopt makes the attempt of a claim an adoption.
func (c *Claim) adopt(vote *Ballot) {
	c.Value = c.Terms.Adopts
	if vote.Req.Op, vote.Req.Value = protocol.OpExtend, c.Value; c.readers != nil {
		vote.Req.Op = protocol.OpExtendShared
	}
}

// explain returns the failure of the attempt. It names no holder if the attempt was an adoption.
func (c *Claim) explain(vote *Ballot, now clock.Instant) *Failure {
	f := vote.explain(now)
	switch {
	case !c.adopts():
	case vote.tally.Gone():
		f.Kind = NotHeld
	case f.Kind == ByOther: // some nodes refused, and others are silent
		f.Kind = NoQuorum
	}
	return f
}
