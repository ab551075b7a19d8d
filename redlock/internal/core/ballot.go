package core

import (
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A Ballot is one request to some nodes, with their answers.
type Ballot struct {
	Req   protocol.Request // unchanged after sending
	Start clock.Instant
	Ref   any // for the owner of the Key
	Tag   any // copied from the Terms

	// HadKey holds the nodes that are known to have the claim until HadUntil. Until then their
	// grants of an extension count, even if they may have forgotten other locks.
	HadKey   quorum.Set
	HadUntil clock.Instant

	purpose purpose
	decided bool  // the attempt has ended
	seq     int64 // number of the ballot, or the number that the queue gave its question
	tally   quorum.Tally
	asked   quorum.Set
	granted quorum.Set
	parked  quorum.Set // granted, but not judged by the guard yet
	answers []Answer   // of nodes that did not grant
	floors  *floors    // nil unless it proposes a token
}

// A purpose is the kind of a Ballot.
type purpose uint8

const (
	toAcquire purpose = iota
	toRaise           // raise the token of an attempt, or get the next block of a claim
	toExtend
	toRepair
	toRollBack // a lost attempt
	toRelease
	toLook      // ask whether the nodes hold the claim
	toJoinQueue // take or renew a ticket at the home
	toAskQueue  // ask for the number of waiting processes
	toWatch     // ask whether the key is free, and for a hint at its next change
	toJoin      // ask whether the nodes admit another reader
	toNothing   // for requests whose answers do not matter
)

// An Answer is a reply other than a grant.
type Answer struct {
	Node    int
	Outcome protocol.Outcome
	Err     error
	TTL     time.Duration // TTL of the key that blocks the request; may be protocol.NoTTL; zero if unknown
	Owner   string
	After   time.Duration // response time
	Others  int           // waiting processes, from the home
	Next    time.Duration // time that the next process has waited, if this one is the first; zero for none
	Readers bool          // the key has readers; in the answer to a writer's release
}

// IsRepair reports whether the request restores a claim on a node.
func (b *Ballot) IsRepair() bool { return b.purpose == toRepair }

// IsOfHeld reports whether the ballot is about a held claim.
func (b *Ballot) IsOfHeld() bool {
	switch b.purpose {
	case toExtend, toRepair, toRelease, toLook:
		return true
	}
	return false
}

// IsVote reports whether the nodes vote on a claim. No server may vote twice.
func (b *Ballot) IsVote() bool {
	return b.Req.Op.Acquires() || b.Req.Op.Extends() || b.Req.Op == protocol.OpRaise
}

// timeout returns the time at which the nodes should have answered.
func (b *Ballot) timeout() clock.Instant { return b.Start.Add(b.Req.Timeout) }

// overdue returns the time at which the ballot is given up. After an answer in time, the guard may
// need to read the node's record before the vote counts.
func (b *Ballot) overdue() clock.Instant {
	if b.parked != 0 {
		return b.Start.Add(2 * b.Req.Timeout)
	}
	return b.timeout()
}

// Deadline returns the end of the claim if a quorum grants the ballot.
func (b *Ballot) Deadline() clock.Instant { return quorum.Deadline(b.Start, b.Req.TTL) }

// IsFirst records an answer of a server by its number, and reports whether it is the first.
func (b *Ballot) IsFirst(server int) bool { return b.tally.IsFirst(server) }

// Votes returns the number of grants.
func (b *Ballot) Votes() int { return b.tally.Granted }

// count records an answer. It returns false for a second answer, so no node votes twice.
func (b *Ballot) count(node int, r *protocol.Reply) bool {
	if !b.open().Has(node) {
		return false
	}
	b.parked.Remove(node)
	b.tally.Add(r.Outcome)
	if r.Outcome == protocol.Granted && b.purpose != toJoinQueue && b.purpose != toAskQueue {
		b.granted.Add(node)
		if b.floors != nil {
			*b.floors = append(*b.floors, floor{node, r.Floor})
		}
		return true
	}
	b.answers = append(b.answers, Answer{Node: node, Outcome: r.Outcome, Err: r.Err, TTL: r.TTL, Owner: r.Owner, Others: r.Others, Next: r.Next, Readers: r.Readers})
	return true
}

// answerOf returns the answer of a node with its response time, or nil for a grant.
func (b *Ballot) answerOf(node int, now clock.Instant) *Answer {
	for i := range b.answers {
		if a := &b.answers[i]; a.Node == node {
			if a.After == 0 {
				a.After = now.Sub(b.Start)
			}
			return a
		}
	}
	return nil
}

// with returns the nodes whose answer had outcome o.
func (b *Ballot) with(o protocol.Outcome) (set quorum.Set) {
	for _, a := range b.answers {
		if a.Outcome == o {
			set.Add(a.Node)
		}
	}
	return set
}

// mayHold returns the nodes that may hold the claim, now or later. A node that failed to extend a
// claim may hold it.
func (b *Ballot) mayHold() quorum.Set {
	set := b.asked &^ b.with(protocol.Refused)
	if b.Req.Op.Extends() {
		return set
	}
	return set &^ b.with(protocol.Failed)
}

// open returns the nodes whose answer is outstanding.
func (b *Ballot) open() quorum.Set {
	set := b.asked &^ b.granted
	for _, a := range b.answers {
		set.Remove(a.Node)
	}
	return set
}

// silent returns the nodes without any answer.
func (b *Ballot) silent() quorum.Set { return b.open() &^ b.parked }

func (b *Ballot) isWon() bool { return b.tally.Verdict() == quorum.Won }

// isSettled reports whether a quorum has granted, a majority has refused, or all have answered.
func (b *Ballot) isSettled() bool { return b.isWon() || b.tally.Gone() || b.tally.Pending() == 0 }

// early returns the number of nodes without a vote because they first had to record the TTL.
func (b *Ballot) early() (n int) {
	for _, a := range b.answers {
		if q := a.quarantine(); q != nil && q.Left == 0 {
			n++
		}
	}
	return n
}

// unmet returns the failure of a release, an extension or a look.
func (b *Ballot) unmet(now clock.Instant) *Failure {
	if b.tally.Gone() {
		return b.failure(NotHeld, now)
	}
	return b.failure(NoQuorum, now)
}

// isLost reports whether a quorum has become impossible. Early nodes grant the next attempt, so the
// outcome stays open while they could make a quorum with the outstanding nodes.
func (b *Ballot) isLost() bool {
	t := b.tally
	early := b.early()
	return t.Verdict() == quorum.Lost && (early == 0 || t.Pending() == 0 || t.Granted+early+t.Pending() < t.Quorum())
}

// isSplit reports whether another client has won some nodes, and the outstanding answers cannot
// turn the loss into an outage. A long wait would only delay all contenders.
func (b *Ballot) isSplit() bool {
	t := b.tally
	return t.Refused > 0 && t.Faults+t.Pending() < t.Blocking() && b.parked == 0
}

// Fencing tokens.

// Floors hold the counters of the nodes that granted.
type floors []floor

type floor struct {
	node int
	at   int64 // zero if the node has accepted the token (protocol.Reply)
}

// accepted returns the number of nodes that have accepted the token.
func (b *Ballot) accepted() (n int) {
	for _, f := range *b.floors {
		if f.at == 0 {
			n++
		}
	}
	return n
}

// isTokenRefused reports whether a quorum for the token has become impossible.
func (b *Ballot) isTokenRefused() bool { return b.accepted()+b.open().Size() < b.tally.Quorum() }

// showsNext reports whether the answers determine which token a quorum would accept, if any.
func (b *Ballot) showsNext() bool {
	_, agree := b.nextToken()
	return agree >= b.tally.Quorum() || b.open() == 0
}

// noToken returns the failure of an attempt without an accepted token.
func (b *Ballot) noToken(now clock.Instant) *Failure {
	f := b.failure(NoToken, now)
	f.Votes = b.accepted()
	for _, of := range *b.floors {
		if of.at > 0 {
			f.Answers = append(f.Answers, Answer{Node: of.node, Outcome: protocol.Granted})
		}
	}
	return f
}

// nextToken returns the number that most nodes would accept, and the number of these nodes.
func (b *Ballot) nextToken() (token int64, agree int) {
	for _, of := range *b.floors {
		n, least := 0, b.leastOf(of)
		for _, f := range *b.floors {
			if b.wouldAccept(f, least+1) {
				n++
			}
		}
		if n > agree || n == agree && least >= token {
			token, agree = least+1, n
		}
	}
	return token, agree
}

// wouldAccept reports whether a node would accept a number in a raise. If a node has refused a
// raise to a number above its minimum, the number is too far from its clock. Before a raise, a node
// whose clock or counter is far away does not count.
func (b *Ballot) wouldAccept(f floor, token int64) bool {
	least := b.leastOf(f)
	if b.purpose == toRaise {
		isTooFar := f.at > 0 && f.at < b.Req.Token
		return token > least && !(isTooFar && token >= b.Req.Token)
	}
	return token > least && token-least <= 2*b.Req.Slack.Microseconds()+1
}

// leastOf returns the greatest number that the node does not accept.
func (b *Ballot) leastOf(f floor) int64 {
	if f.at == 0 {
		return b.Req.LastToken()
	}
	return f.at
}
