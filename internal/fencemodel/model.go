package fencemodel

import "github.com/redquorum/redquorum/internal/explore"

// N is the number of nodes; all of them are alike.
const N = 3

// These bound a Model, so that its states stay small.
const (
	MaxAttempts = 3
	MaxTokens   = 7 // of proposals, and of the last number of a block
	MaxBlock    = 3
)

// A Model says which of all worlds to explore.
type Model struct {
	// Attempts to take the one lock there is, 1 to MaxAttempts: A, B and C.
	Attempts int

	// Tokens: each proposal is any of 1 to Tokens, at most MaxTokens.
	Tokens int

	// Block is how many numbers a proposal reserves, at most MaxBlock; 0 for one. A holder has the
	// first, and hands the lock over with the next.
	Block int

	// Plain has an acquisition be two commands instead of a script: SET NX and ZADD GT. It is for
	// the Network Anyhow, which includes that they come one right after the other. The commands
	// around ZADD only make a counter's life longer, and are left out.
	Plain bool

	// Network says what may happen to a request on its way.
	Network Network

	// LocksLast keeps locks from expiring. By default a lock may expire on any node at any time.
	LocksLast bool

	// Fault changes the protocol for the worse, if there is one.
	Fault Fault
}

// A Network carries requests. What it may do to answers is always the same: they are late or lost
// as it likes, because a client may act on any of those that were given, at any time, or on none.
type Network string

const (
	// Anyhow lets a request that was sent be run never, at once or at any later time, any number of
	// times, before or after any other. This covers every delay and loss, the retries of a
	// transport, and the request that a broken connection leaves behind and that the server runs
	// after the release.
	Anyhow Network = ""

	// InOrder runs a request at most once, and never after a later one of the same attempt to the
	// same node. All that happens here may happen Anyhow too. It is for faults: one that shows here
	// needs no bad network.
	InOrder Network = "in order"
)

// A Fault is one deliberate change of the protocol. The tests say which of them break P2.
type Fault string

// The faults. The comments say what the faulty protocol does.
const (
	IncrAndMax         Fault = "INCR-and-max"             // has nodes count, and takes the highest count of a quorum for the token
	CountTogether      Fault = "count together"           // counts acceptances of the first and the second proposal to one quorum
	LowCounts          Fault = "low counts"               // counts "you have the lock, but the token is too low" as acceptance
	AcceptEqual        Fault = "accept equal"             // accepts a token that the counter has already reached
	RollBack           Fault = "roll back"                // has a release undo its attempt's acceptance: the counter goes back by one
	HalfIsQuorum       Fault = "half is quorum"           // asks N/2 nodes, not one more
	CounterExpires     Fault = "counter expires"          // keeps the counter in the lock's key, so that both expire together
	Overwrite          Fault = "overwrite"                // sets the counter to the proposal also where that lowers it
	CounterAtBeginning Fault = "counter at the beginning" // sets the counter to the first number of an accepted block
	CompareEnds        Fault = "compare ends"             // accepts a block if its last number is above the counter
	PastTheEnd         Fault = "past the end"             // hands over with one more number than the block has
	SameAgain          Fault = "same again"               // hands over with the number that the holder before had
	RaiseAnyones       Fault = "raise anyone's"           // accepts a second proposal also of an attempt that has lost the lock
	EqualGetsLock      Fault = "equal gets lock"          // gives the lock, and no token, where the counter has reached the token
	ReleaseForgets     Fault = "release forgets"          // deletes the lock and leaves the counter as it is
	NoLock             Fault = "no lock"                  // accepts tokens without a look at the lock, which no attempt gets
)

// quorum is how many nodes must accept a token.
func (m Model) quorum() int {
	if m.Fault == HalfIsQuorum {
		return N / 2
	}
	return N/2 + 1
}

// last is the last number of the block that begins with a proposal.
func (m Model) last(proposal uint8) uint8 { return proposal + uint8(max(1, m.Block)) - 1 }

// Explore tries all steps that can happen, breadth first, until P2 is broken or no step is left
// that could break it. States that differ in nothing but the order of nodes or attempts count once.
func (m Model) Explore() explore.Result { return m.explore(func(step, *state) {}) }

// explore shows each step to visit, and the state after it.
func (m Model) explore(visit func(step, *state)) explore.Result {
	return explore.Space[state, state, step]{
		Key:   (*state).key,
		State: func(k state) state { return k },
		Steps: func(s *state, do func(step, *state)) {
			if !s.over(m) {
				m.steps(s, do)
			}
		},
		Describe: func(did step, _, _ *state) string { return did.describe(m) },
	}.Explore(func(did step, s *state, _ bool) string {
		visit(did, s)
		return did.breaks
	})
}
