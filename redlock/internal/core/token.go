package core

import (
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
)

// Fencing tokens come from the quorum itself. An attempt proposes one number to all nodes, the wall
// clock in microseconds. A node accepts it together with the lock if the number is above all
// numbers accepted before. The lock is granted after a quorum has accepted the same number. Two
// quorums share a node, and a node never accepts a number twice, or a lower number later. So tokens
// are unique and increase, whatever the clocks show. The clocks only help the first proposal.
//
// A node that grants the lock but has accepted a higher number reports that number. Then a raise,
// one more request, asks the nodes of the claim to accept a number above theirs. The phase voting
// lasts until the end of the raise.
//
// A node accepts no number far from its own clock ([Group].Slack), so one client with a wrong clock
// cannot use up the numbers. This also bounds the numbers of a node that lost its counters.
//
// If other callers of the process wait, an attempt proposes a block of numbers. A node compares the
// first number, and its counter moves to the last. So no other claim gets a number of the block,
// and the holders of a claim take one each without a request. During the last of these holds, a
// raise asks for another block.
//
// Two simpler methods are wrong. One compares the last number of a block, so that blocks overlap.
// The other counts up at each node and takes the highest answer. Both can give two holders the same
// number. Package explore has the counter-examples.

// Tokens are the numbers of a claim, which a quorum has accepted or is asked to accept.
type tokens struct {
	first   int64
	size    int64
	issued  int64         // numbers in use; all of them during a raise
	since   clock.Instant // time of the proposal
	isAgain bool          // the attempt has raised its token twice
	raise   *Ballot       // raise that proposes the block; nil for a block of the attempt, or an accepted one

	counter string        // key of the nodes' counters
	slack   time.Duration // of the Group
}

// Bounds for the block of an attempt. The maximum has fewer numbers than the shortest turn has
// microseconds, so the clocks of other processes have passed the block at the end of the turn.
const (
	minBlock = 256
	maxBlock = 4000
)

// blockOf returns the size of a block if other callers wait. The size is the time of four
// acquisitions in microseconds, so the clocks soon pass the block. Otherwise an attempt proposes
// one number, because an unused number can cost the next holder a raise.
func blockOf(acquisition time.Duration) int64 {
	return min(max(minBlock, 4*acquisition.Microseconds()), maxBlock)
}

// raisedBlock bounds the block of a raise. Each raise starts at the end of the last block, so it
// must not reserve numbers faster than time passes. A node accepts a thousand in any case.
func raisedBlock(since time.Duration) int64 { return min(max(1, since.Microseconds()), 1000) }

// newTokens returns the block that an attempt proposes.
func newTokens(g *Group, key string, size int64, now clock.Instant) *tokens {
	return &tokens{first: g.Propose(), size: size, since: now, counter: keys.Counter.Of(key), slack: g.Slack}
}

// fence adds the tokens to a request.
func (t *tokens) fence(req *protocol.Request, op protocol.Op) {
	req.Op, req.Counter, req.Slack, req.Token, req.Block = op, t.counter, t.slack, t.first, t.size
}

// take issues the next number.
func (t *tokens) take() int64 {
	t.issued++
	return t.first + t.issued - 1
}

// hasNext reports whether a number is left. A claim without tokens needs no number.
func (t *tokens) hasNext() bool { return t == nil || t.issued < t.size }

// accept makes the numbers usable, because a quorum has accepted them.
func (t *tokens) accept() {
	if t != nil {
		t.raise, t.issued = nil, 0
	}
}

// raiseTo makes a raise propose a block of at most n numbers. They are not usable yet.
func (t *tokens) raiseTo(raise *Ballot, first, n int64) {
	n = min(n, raisedBlock(raise.Start.Sub(t.since)))
	t.isAgain = t.raise != nil
	t.first, t.size, t.issued, t.since, t.raise = first, n, n, raise.Start, raise
	raise.floors = &floors{}
	t.fence(&raise.Req, protocol.OpRaise)
}

// raised applies an answer to a raise of a held claim.
func (t *tokens) raised(b *Ballot) {
	if t != nil && t.raise == b && b.accepted() >= b.tally.Quorum() {
		t.accept()
	}
}

// A tokenStep is the continuation of an attempt that a quorum has granted.
type tokenStep uint8

const (
	tokenAccepted tokenStep = iota // a quorum has accepted: the attempt is won
	tokenWaits                     // wait for answers to the raise
	tokenHurries                   // like tokenWaits, but not for slow nodes
	tokenRaised                    // ask the nodes to accept first
	tokenRefused                   // too many nodes have refused: the attempt is lost
)

// step returns the continuation, by the answers to the attempt or to its raise. inTime is false
// after the time for answers. An attempt raises its token if the nodes do not accept it. It raises
// the token a second time, to the number first, if a quorum would accept that number.
func (t *tokens) step(vote *Ballot, inTime bool) (do tokenStep, first int64) {
	asked := vote
	if t != nil && t.raise != nil {
		asked = t.raise
	}
	switch {
	case t == nil, asked.accepted() >= asked.tally.Quorum():
		return tokenAccepted, 0
	case asked == vote && inTime && !vote.showsNext():
		// If the clocks of the first nodes differ much, the other nodes decide the number.
		return tokenHurries, 0
	case asked == vote:
		first, _ = vote.nextToken()
		return tokenRaised, first
	case inTime && !asked.isTokenRefused():
		return tokenWaits, 0
	case inTime && !t.isAgain && !asked.showsNext():
		return tokenHurries, 0
	}
	first, agree := asked.nextToken()
	if t.isAgain || !asked.isTokenRefused() || agree < asked.tally.Quorum() {
		return tokenRefused, 0
	}
	return tokenRaised, first
}
