package core

import (
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A Ballot is one request to some nodes, and what they have answered.
type Ballot struct {
	Req   protocol.Request // it is not changed after it was sent
	Start clock.Instant
	Shell any // the owner's
	Tag   any // that of the Terms

	// HadKey are the nodes that are known to have the claim until HadUntil. Until then their grants of an
	// extension count, even if they may have forgotten other locks.
	HadKey   quorum.Set
	HadUntil clock.Instant

	purpose purpose
	decided bool // the vote is over
	seq     int64
	tally   quorum.Tally
	asked   quorum.Set
	granted quorum.Set
	parked  quorum.Set // granted, but the guard has not judged it yet
	answers []Answer   // of nodes that did not grant
	floors  *floors    // nil: it proposes no token
}

// A purpose is what a Ballot is for.
type purpose uint8

const (
	toAcquire purpose = iota
	toRaise           // the token of a vote
	toExtend
	toRepair
	toUndo // a vote that was lost
	toRelease
	toLook    // whether the nodes have the claim
	toLineUp  // at the node that keeps the order
	toProbe   // that node, whether other processes wait
	toWatch   // whether the key is free, and have the node hint at its next change
	toJoin    // whether nodes let another reader in
	toNothing // no answer is needed
)

// An Answer is that of a node that did not grant.
type Answer struct {
	Node    int
	Outcome protocol.Outcome
	Err     error
	TTL     time.Duration // of what is in the way; protocol.NoTTL; zero: not told
	Owner   string
	After   time.Duration // from the start of the request
	Others  int           // waiters, in an answer about the order
	Next    time.Duration // how long the next of the order has waited, if this process is the first; zero: there is none
	Readers bool          // the key has readers, in the answer to a writer's release
}

// IsRepair reports whether the request gives a claim back to a node that has lost it.
func (b *Ballot) IsRepair() bool { return b.purpose == toRepair }

// IsOfHeld reports whether the ballot is about a claim that is held. Otherwise it is about one that is wanted.
func (b *Ballot) IsOfHeld() bool {
	switch b.purpose {
	case toExtend, toRepair, toRelease, toLook:
		return true
	}
	return false
}

// IsVote reports whether the nodes vote on a claim, so no server may have two votes.
func (b *Ballot) IsVote() bool {
	return b.Req.Op.Acquires() || b.Req.Op.Extends() || b.Req.Op == protocol.OpRaise
}

// timeout is when the nodes should have answered.
func (b *Ballot) timeout() clock.Instant { return b.Start.Add(b.Req.Timeout) }

// overdue is when the ballot is given up. A node that has answered in time may have to be asked for its record
// before its vote counts.
func (b *Ballot) overdue() clock.Instant {
	if b.parked != 0 {
		return b.Start.Add(2 * b.Req.Timeout)
	}
	return b.timeout()
}

// Deadline is until when what the ballot asks for is held, if a quorum grants it.
func (b *Ballot) Deadline() clock.Instant { return quorum.Deadline(b.Start, b.Req.TTL) }

// IsFirst reports whether a server has not answered yet, and notes that it has. The owner knows which nodes are one
// server.
func (b *Ballot) IsFirst(server int) bool { return b.tally.IsFirst(server) }

// Votes is how many nodes have granted.
func (b *Ballot) Votes() int { return b.tally.Granted }

// count takes an answer. It returns false if the node was not asked or has already answered, so no node
// votes twice.
func (b *Ballot) count(node int, r *protocol.Reply) bool {
	if !b.open().Has(node) {
		return false
	}
	b.parked.Remove(node)
	b.tally.Add(r.Outcome)
	if r.Outcome == protocol.Granted && b.purpose != toLineUp && b.purpose != toProbe {
		b.granted.Add(node)
		if b.floors != nil {
			*b.floors = append(*b.floors, floor{node, r.Floor})
		}
		return true
	}
	b.answers = append(b.answers, Answer{Node: node, Outcome: r.Outcome, Err: r.Err, TTL: r.TTL, Owner: r.Owner, Others: r.Others, Next: r.Next, Readers: r.Readers})
	return true
}

// answerOf returns what the node said, with the time that it took. Nil: it granted.
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

// with returns the nodes whose answer had that outcome.
func (b *Ballot) with(o protocol.Outcome) (set quorum.Set) {
	for _, a := range b.answers {
		if a.Outcome == o {
			set.Add(a.Node)
		}
	}
	return set
}

// maybe returns the nodes that may have the claim that was asked for, now or later. A node that could not
// extend the claim of another may have it nevertheless.
func (b *Ballot) maybe() quorum.Set {
	set := b.asked &^ b.with(protocol.Refused)
	if b.Req.Op.Extends() {
		return set
	}
	return set &^ b.with(protocol.Failed)
}

// open returns the nodes whose answer is still to come.
func (b *Ballot) open() quorum.Set {
	set := b.asked &^ b.granted
	for _, a := range b.answers {
		set.Remove(a.Node)
	}
	return set
}

// silent returns the nodes that have not answered at all.
func (b *Ballot) silent() quorum.Set { return b.open() &^ b.parked }

func (b *Ballot) isWon() bool { return b.tally.Verdict() == quorum.Won }

// isSettled reports whether a quorum has granted, a majority has refused, or all have answered. Failed nodes
// do not count as refusals.
func (b *Ballot) isSettled() bool { return b.isWon() || b.tally.Gone() || b.tally.Pending() == 0 }

// early returns how many nodes have no vote because they first had to record the TTL.
func (b *Ballot) early() (n int) {
	for _, a := range b.answers {
		if q := a.quarantine(); q != nil && q.Left == 0 {
			n++
		}
	}
	return n
}

// isLost reports whether no quorum can grant any more. Nodes that were early will vote when they are asked again,
// so the vote waits for the answers of all that can make a quorum with these.
func (b *Ballot) isLost() bool {
	t := b.tally
	early := b.early()
	return t.Verdict() == quorum.Lost && (early == 0 || t.Pending() == 0 || t.Granted+early+t.Pending() < t.Quorum())
}

// isSplit reports whether another client has won some nodes, and the missing answers can no longer make an
// outage of the vote. Then a long wait would only hold up all contenders.
func (b *Ballot) isSplit() bool {
	t := b.tally
	return t.Refused > 0 && t.Faults+t.Pending() < t.Blocking() && b.parked == 0
}

// Fencing tokens.

// Floors are those of the nodes that granted.
type floors []floor

type floor struct {
	node int
	at   int64 // zero: it has accepted the token (protocol.Reply)
}

// accepted is how many nodes have accepted the token.
func (b *Ballot) accepted() (n int) {
	for _, f := range *b.floors {
		if f.at == 0 {
			n++
		}
	}
	return n
}

// isTokenRefused reports whether no quorum can accept the token any more.
func (b *Ballot) isTokenRefused() bool { return b.accepted()+b.open().Size() < b.tally.Quorum() }

// showsNext reports whether it is known which token a quorum would accept, or will not be.
func (b *Ballot) showsNext() bool {
	_, agree := b.nextToken()
	return agree >= b.tally.Quorum() || b.open() == 0
}

// noToken says that no quorum has accepted the token.
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

// nextToken is the number that most of the nodes that have the claim would accept, as far as they have told, and how
// many those are.
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

// wouldAccept reports whether a node would accept a number in a raise. A node that refuses a raise to a number above
// its least finds that too far from its clock. Before, a node whose clock or numbers are far from the number is left
// out.
func (b *Ballot) wouldAccept(f floor, token int64) bool {
	least := b.leastOf(f)
	if b.purpose == toRaise {
		isTooFar := f.at > 0 && f.at < b.Req.Token
		return token > least && !(isTooFar && token >= b.Req.Token)
	}
	return token > least && token-least <= 2*b.Req.Slack.Microseconds()+1
}

// leastOf is what the node's numbers must be above.
func (b *Ballot) leastOf(f floor) int64 {
	if f.at == 0 {
		return b.Req.LastToken()
	}
	return f.at
}
