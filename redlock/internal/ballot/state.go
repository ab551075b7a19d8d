package ballot

import (
	"slices"
	"time"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A State is what the nodes have said by a moment. A copy is the caller's own.
type State struct {
	Tally quorum.Tally

	// Promised are the nodes whose grant counts, now or when its TTL is on record.
	Promised quorum.Set

	// Judging are the nodes whose vote waits for their epoch record.
	Judging quorum.Set

	atOnce  bool // what is promised is entered without a quorum of promises
	isOver  bool // it was lost, and what comes now is of no use
	isHeard bool // see Ballot.Listen

	few  [5]slot // of each node, if that will do
	many []slot  // else
}

// A slot is one node's part of a ballot.
type slot struct {
	reply *protocol.Reply // never nil, and never changed, because ballots share it; noReply until the node has replied
	after time.Duration   // from start to the reply
}

// noReply is that of a node which has not replied. Its Outcome is zero.
var noReply = &protocol.Reply{}

func (s *State) begin(nodes int) {
	s.Tally.Nodes = nodes
	if nodes > len(s.few) {
		s.many = make([]slot, nodes)
	}
	slots := s.slots()
	for i := range slots {
		slots[i].reply = noReply
	}
}

func (s *State) slots() []slot {
	if s.many != nil {
		return s.many
	}
	return s.few[:s.Tally.Nodes]
}

func (s *State) clone() State {
	c := *s
	c.many = slices.Clone(s.many)
	return c
}

// Len returns the number of nodes.
func (s *State) Len() int { return s.Tally.Nodes }

// Reply returns what node i has replied. Its Outcome is zero if it has not. It must not be changed.
func (s *State) Reply(i int) *protocol.Reply { return s.slots()[i].reply }

// After returns how long node i took to reply, zero if it has not, or where that was not of interest.
func (s *State) After(i int) time.Duration { return s.slots()[i].after }

// Replace puts another reply in the place of node i's, for what is made of the state. It does not
// change the tally.
func (s *State) Replace(i int, reply *protocol.Reply) { s.slots()[i].reply = reply }

// With returns the nodes with one of the outcomes; zero is that of a node that has not replied.
func (s *State) With(outcomes ...protocol.Outcome) (set quorum.Set) {
	for i, slot := range s.slots() {
		if slices.Contains(outcomes, slot.reply.Outcome) {
			set.Add(i)
		}
	}
	return set
}

// Caused returns the nodes whose reply has the error err itself.
func (s *State) Caused(err error) (set quorum.Set) {
	for i, slot := range s.slots() {
		if slot.reply.Err == err {
			set.Add(i)
		}
	}
	return set
}

// IsPromised reports whether what was promised is to be entered now: because a quorum of nodes has
// promised, or at once. A lock that may still be refused enters nothing, because what is on record
// costs others a quarantine.
func (s *State) IsPromised() bool {
	return s.atOnce || !s.isOver && s.Promised.Size() >= s.Tally.Quorum()
}

// enter notes which votes are being entered.
func (s *State) enter() {
	if s.IsPromised() {
		s.Judging |= s.Promised & s.With(0)
	}
}

// Unjudged returns the nodes that have given a vote which does not count yet.
func (s *State) Unjudged() quorum.Set { return s.With(0) & (s.Judging | s.Promised) }

// IsSplit reports whether others are in the way, and the nodes that have yet to
// answer decide, but cannot make an outage of it: too few have failed. To wait long for
// them would keep all contenders waiting for one node.
func (s *State) IsSplit() bool {
	t := s.Tally
	return !Decided(s) && t.Refused > 0 && t.Faults+t.Pending() < t.Blocking() && s.Judging == 0
}

// A Goal is what a wait is for. It looks at the state and does nothing else.
type Goal func(*State) bool

// Decided: the vote can go only one way.
func Decided(s *State) bool { return s.Tally.Verdict() != quorum.Pending }

// IsWon: a quorum has granted.
func IsWon(s *State) bool { return s.Tally.Verdict() == quorum.Won }

// DecidedOrSplit: decided, or split (see State.IsSplit).
func DecidedOrSplit(s *State) bool { return Decided(s) || s.IsSplit() }

// Settled: won, or a majority says that our value is gone, or all have replied.
// A fault decides nothing about a lock that is held, so it is waited out.
func Settled(s *State) bool {
	return s.Tally.Verdict() == quorum.Won || s.Tally.Gone() || s.Tally.Pending() == 0
}

// Complete: every node has replied.
func Complete(s *State) bool { return s.Tally.Pending() == 0 }

// Answered: a quorum has said yes or no, or cannot any more.
func Answered(s *State) bool {
	t := s.Tally
	return t.Granted+t.Refused >= t.Quorum() || t.Faults >= t.Blocking()
}

// Replied is the goal that all the nodes of a set have replied, or granted what is not on record yet.
func Replied(set quorum.Set) Goal {
	return func(s *State) bool { return set&s.With(0)&^s.Promised == 0 }
}

// RepliedMost is the goal that those of a set that have not replied are a minority of all nodes.
func RepliedMost(set quorum.Set) Goal {
	return func(s *State) bool { return (set & s.With(0)).Size() < s.Tally.Blocking() }
}
