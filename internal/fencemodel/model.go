package fencemodel

// N is the number of nodes; all of them are alike.
const N = 3

// MaxAttempts and MaxTokens bound a Model, so that its states stay small.
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

	// Block is how many numbers a proposal reserves, at most MaxBlock; 0 for one. A holder
	// has the first, and hands the lock over with the next.
	Block int

	// Plain has an acquisition be two commands instead of a script: SET NX and ZADD GT. It is for
	// the Network Anyhow, which includes that they come one right after the other. The commands around
	// ZADD only make a counter's life longer, and are left out.
	Plain bool

	// Network says what may happen to a request on its way.
	Network Network

	// LocksLast keeps locks from expiring. By default a lock may expire on any
	// node at any time.
	LocksLast bool

	// Fault changes the protocol for the worse.
	Fault Fault
}

// A Network carries requests. What it may do to answers is always the same: they
// are late or lost as it likes, because a client may act on any of those that
// were given, at any time, or on none.
type Network int

const (
	// Anyhow lets a request that was sent be run never, at once or at any later
	// time, any number of times, before or after any other. This covers every
	// delay and loss, the retries of a transport, and the request that a broken
	// connection leaves behind and that the server runs after the release.
	Anyhow Network = iota

	// InOrder runs a request at most once, and never after a later one of the
	// same attempt to the same node. All that happens here may happen
	// Anyhow too. It is for faults: one that shows here needs no bad network.
	InOrder
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

func (n Network) String() string { return [...]string{"anyhow", "in order"}[n] }

// A Fault is one deliberate mistake in the protocol.
type Fault int

// The faults. The comments say how the faulty protocol differs; the tests say which
// faults break P2.
const (
	None Fault = iota

	// IncrAndMax is another protocol, often proposed: no proposals. Each node
	// that grants the lock increments its counter and answers it; the client
	// takes the highest answer of a quorum for its token.
	IncrAndMax

	// CountTogether counts acceptances of the first and of the second proposal
	// to one quorum.
	CountTogether

	// LowCounts counts "you have the lock, but the token is too low" as
	// acceptance.
	LowCounts

	// AcceptEqual accepts a token that the counter has already reached.
	AcceptEqual

	// RollBack makes a release undo its attempt's acceptance, as if the token
	// had never been used: a counter that stands at it goes back by one.
	RollBack

	// HalfIsQuorum asks N/2 nodes, not one more.
	HalfIsQuorum

	// CounterExpires keeps the counter in the lock's key, so that both expire
	// together.
	CounterExpires

	// Overwrite sets the counter to the proposal also where that lowers it.
	Overwrite

	// CounterAtBeginning sets the counter to the first number of an accepted block.
	CounterAtBeginning

	// CompareEnds accepts a block if its last number is above the counter, as a
	// command would that is given nothing but that number.
	CompareEnds

	// PastTheEnd hands over with one more number than the block has.
	PastTheEnd

	// SameAgain hands over with the number that the holder before had.
	SameAgain

	// RaiseAnyones accepts a second proposal also from an attempt that does not
	// have the lock on that node (any more).
	RaiseAnyones

	// EqualGetsLock gives the lock to an attempt whose token the counter has
	// already reached, as it does where the counter is above; the token is
	// not accepted.
	EqualGetsLock

	// ReleaseForgets deletes the lock and leaves the counter as it is.
	ReleaseForgets

	// NoLock accepts tokens without a look at the lock, which no attempt gets.
	NoLock
)

var faultNames = [...]string{"none", "INCR-and-max", "count together", "low counts", "accept equal", "roll back",
	"half is quorum", "counter expires", "overwrite", "counter at the beginning", "compare ends",
	"past the end", "same again", "raise anyone's", "equal gets lock", "release forgets", "no lock"}

func (f Fault) String() string { return faultNames[f] }
