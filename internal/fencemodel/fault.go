package fencemodel

// A Fault is one deliberate mistake in the protocol.
type Fault int

// The faults. The comments say what is done instead of the right thing; which
// of them break P2 is for the tests to say.
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

	// RaiseAnyones accepts a second proposal also from an attempt that does not
	// have the lock on that node (any more).
	RaiseAnyones

	// EqualGetsLock gives the lock to an attempt whose token the counter has
	// already reached, as it does where the counter is above; the token is
	// not accepted.
	EqualGetsLock

	// ReleaseForgets deletes the lock and leaves the counter as it is.
	ReleaseForgets
)

var faultNames = [...]string{"none", "INCR-and-max", "count together", "low counts", "accept equal", "roll back",
	"half is quorum", "counter expires", "overwrite", "raise anyone's", "equal gets lock", "release forgets"}

func (f Fault) String() string { return faultNames[f] }
