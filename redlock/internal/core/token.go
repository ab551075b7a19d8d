package core

import (
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
)

// Fencing tokens come from the quorum itself. A vote proposes one number to all nodes, the wall clock in
// microseconds. A node accepts it together with the lock if it is above all that it has accepted before. The
// lock is granted when a quorum has accepted the same number. Two quorums share a node, and that accepts no
// number twice, or a lower one later. So tokens are unique and rise, whatever the clocks say. Clocks only
// make the first proposal a good one.
//
// A node that has the claim but has accepted a higher number says so. Then a raise, one more request,
// asks the nodes that have the claim to accept a number above theirs. Its answers are awaited in the phase
// voting, too.
//
// A node accepts no number far from its own clock ([Group].Slack), so one client's mad clock cannot use up
// the numbers. This also bounds what a node that has lost its counters had accepted before. Where the guard
// knows the clocks of a quorum it compares them itself. Then the acquisition is plain commands to the node
// in place of a script.
//
// If other callers of the process wait, a vote proposes a block of numbers. A node accepts the first as above,
// and its counter goes to the last. So no other claim gets a number of the block, or a lower one later, and
// the holders of a claim take one after the other without a message. When they have used it up, another raise
// asks for more while the last of them works.
//
// Two simpler ways are wrong: to compare the last of a block with the counter, so that blocks overlap; and to
// count up at each node and take the highest answer. In both, two holders can get the same number
// (redlock/internal/explore has the counter-examples).

// Tokens are the numbers of a claim: a block that a quorum has accepted, or is asked to.
type tokens struct {
	first   int64
	size    int64
	issued  int64         // how many holders have had one
	since   clock.Instant // the block was proposed
	isAgain bool          // the vote has raised them twice
	raise   *Ballot       // that proposes the block and was not accepted yet; nil: the vote has proposed it
}

// maxBlock bounds a block of a vote. It is as many microseconds as the shortest turn of a process has, less
// some for clocks that differ. When the turn is over, the clocks of others are past the block.
const (
	minBlock = 256
	maxBlock = 4000
)

// raisedBlock bounds the block of a raise. Each raise begins where a block before has ended, so numbers must
// not be reserved faster than time passes. A node accepts a thousand at any rate.
func raisedBlock(since time.Duration) int64 { return min(max(1, since.Microseconds()), 1000) }

// propose has the vote of a claim propose tokens. If no other caller waits for such a claim it is one, because
// a number that is reserved for nothing can cost the next holder a raise. Otherwise it is as many microseconds
// as four acquisitions take, so the clocks are past the block soon after.
func (k *Key) propose(claim *Claim, vote *Ballot) {
	t := &tokens{first: k.Group.Propose(), size: 1, since: vote.Start}
	if len(k.line) > 1 && claim.passesTo(k.line[1]) {
		t.size = min(max(minBlock, 4*k.Turn.cost.Microseconds()), maxBlock)
	}
	claim.tokens, vote.floors = t, &floors{}
	k.fence(t, &vote.Req, protocol.OpAcquireFenced)
}

// fence makes a request one that is about tokens as well.
func (k *Key) fence(t *tokens, req *protocol.Request, op protocol.Op) {
	req.Op, req.Counter, req.Slack = op, keys.Counter.Of(k.Name), k.Group.Slack
	req.Token, req.Block = t.first, t.size
}

// fenceRelease has the release of a claim let nodes accept none of its tokens any more. A claim that was held until
// now is released as any other, which costs a node less: an acquisition that comes late takes a token that nobody has.
func (k *Key) fenceRelease(c *Claim, req *protocol.Request) {
	if c.tokens != nil && (c.hold == nil || c.hold.Reason.IsLoss()) {
		k.fence(c.tokens, req, protocol.OpReleaseFenced)
	}
}

// hasNext reports whether the claim has a token for another holder, or needs none.
func (c *Claim) hasNext() bool { return c.tokens == nil || c.tokens.issued < c.tokens.size }

// next takes the next token.
func (t *tokens) next() int64 {
	t.issued++
	return t.first + t.issued - 1
}

// hasToken reports whether a quorum has accepted a token of the vote, which a quorum has granted. If not, it
// goes on: it waits for other answers, raises the token, or loses the vote.
func (k *Key) hasToken(now clock.Instant) bool {
	c := k.contest
	t, vote := c.claim.tokens, c.vote
	switch {
	case t == nil, t.raise == nil && vote.accepted() >= vote.tally.Quorum():
		return true
	case t.raise == nil:
		// Where the clocks of the first to answer are far off, only the others show which number a quorum
		// accepts.
		if vote.showsNext() {
			k.raiseVote(now)
		} else {
			c.until = min(c.until, now.Add(k.answerLimit(vote.Req.Timeout)))
		}
	case t.isRaised():
		return true
	case t.raise.isTokenRefused() && (t.isAgain || t.raise.showsNext()):
		k.raiseAgain(now)
	case t.raise.isTokenRefused():
		c.until = min(c.until, now.Add(k.answerLimit(vote.Req.Timeout)))
	}
	return false
}

// tokenOverdue goes on with a vote that a quorum has granted, but whose token was not accepted in time.
func (k *Key) tokenOverdue(now clock.Instant) {
	if k.contest.claim.tokens.raise == nil {
		k.raiseVote(now)
		return
	}
	k.raiseAgain(now)
}

// raiseVote raises the token of a vote above all that the nodes have told.
func (k *Key) raiseVote(now clock.Instant) {
	c := k.contest
	first, _ := c.vote.nextToken()
	k.Group.Propose() // or the next vote could propose the number of this raise, where the clock has not moved on
	k.remember().met = now
	k.raise(c.claim, first, c.claim.tokens.size, now)
	c.wait(voting, now.Add(c.vote.Req.Timeout))
}

// raiseAgain raises the token of a vote to another number, after one that was too far from the clocks of most nodes. If
// no quorum would accept another, or that is the second time, the vote is lost.
func (k *Key) raiseAgain(now clock.Instant) {
	c := k.contest
	t := c.claim.tokens
	first, agree := t.raise.nextToken()
	if t.isAgain || !t.raise.isTokenRefused() || agree < t.raise.tally.Quorum() {
		k.loseToken(now)
		return
	}
	t.isAgain = true
	k.raise(c.claim, first, t.size, now)
	c.wait(voting, now.Add(c.vote.Req.Timeout))
}

// reserve asks for another block if that of a claim is used up, and the next of the line could have the claim.
// If the nodes do not accept it, the claim is given back as if no caller waited.
func (k *Key) reserve(c *Claim, now clock.Instant) {
	if t := c.tokens; t.raise == nil && !c.hasNext() && k.couldHandOver(c, now) {
		k.raise(c, t.first+t.size, maxBlock, now)
	}
}

// raise asks the nodes that have the claim to accept a block of at most n numbers.
func (k *Key) raise(c *Claim, first, n int64, now clock.Instant) {
	t := c.tokens
	n = min(n, raisedBlock(now.Sub(t.since)))
	t.first, t.size, t.issued, t.since = first, n, n, now // none is issued yet
	t.raise = k.ballot(toRaise, protocol.OpRaise, c, now)
	t.raise.floors = &floors{}
	k.fence(t, &t.raise.Req, protocol.OpRaise)
	k.send(t.raise, k.Group.everyNode(), &t.raise.Req)
}

// isRaised reports whether a quorum has accepted the block of the raise, whose numbers can be issued then.
func (t *tokens) isRaised() bool {
	if t.raise.accepted() < t.raise.tally.Quorum() {
		return false
	}
	t.raise, t.issued = nil, 0
	return true
}

// raised is told of an answer to a raise.
func (k *Key) raised(b *Ballot, now clock.Instant) {
	switch c := k.contest; {
	case k.claim.isAsked(b):
		if t := k.claim.tokens; t != nil && t.raise == b {
			t.isRaised()
		}
	case c != nil && c.phase == voting && c.claim.tokens != nil && c.claim.tokens.raise == b:
		k.won(now)
	}
}

// loseToken gives up a vote that a quorum has granted, for want of a token.
func (k *Key) loseToken(now clock.Instant) {
	c := k.contest
	f := c.claim.tokens.raise.noToken(now)
	k.undo(k.Group.everyNode(), now)
	c.loses(f)
	k.judge(now)
}
