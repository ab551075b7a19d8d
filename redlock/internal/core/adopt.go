package core

import (
	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
)

// A lock can be adopted by its value from the process that has taken it, or from an earlier life of this one.
// An adoption is a contest whose vote is an extension of the value that is there. So it makes no key, and gives
// nothing back if it is lost. Its deadline counts from the start of its own vote: what the holder knew of its
// deadline is of no use to it.
//
// A caller that adopts tries once. It goes before all others, because the value may expire. They get the next
// vote if its own is lost.

// adopts reports whether the claim is that of another, if it is won.
func (c *Claim) adopts() bool { return c.Terms.Adopts != "" }

// adopt makes the vote of a claim an adoption.
func (c *Claim) adopt(vote *Ballot) {
	c.Value = c.Terms.Adopts
	if vote.Req.Op, vote.Req.Value = protocol.OpExtend, c.Value; c.readers != nil {
		vote.Req.Op = protocol.OpExtendShared
	}
}

// notAdopted ends an adoption when a majority has refused, or no other answer will come.
func (k *Key) notAdopted(now clock.Instant) {
	c, b := k.contest, k.contest.vote
	if !b.isSettled() && now < c.until {
		return
	}
	c.loses(c.explain(now))
	k.undo(0, now)
	k.judge(now)
}

// explain makes the failure of the vote. That of an adoption names no holder.
func (c *contest) explain(now clock.Instant) *Failure {
	f := c.vote.explain(now)
	switch {
	case !c.claim.adopts():
	case c.vote.tally.Gone():
		f.Kind = NotHeld
	case f.Kind == ByOther: // by some, and others do not say
		f.Kind = NoQuorum
	}
	return f
}
