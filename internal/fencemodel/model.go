package fencemodel

// N is the number of nodes; all of them are alike.
const N = 3

// MaxAttempts and MaxTokens bound a Model, so that its states stay small.
const (
	MaxAttempts = 3
	MaxTokens   = 7
)

// A Model says which of all worlds to explore.
type Model struct {
	// Attempts to take the one lock there is, 1 to MaxAttempts: A, B and C.
	Attempts int

	// Tokens: each proposal is any of 1 to Tokens, at most MaxTokens.
	Tokens int

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
	// Anyhow: a request that was sent may be run never, at once or at any later
	// time, any number of times, before or after any other. This covers every
	// delay and loss, the retries of a transport, and the request that a broken
	// connection leaves behind and that the server runs after the release.
	Anyhow Network = iota

	// InOrder: a request is run at most once, and never after a later one of the
	// same attempt to the same node. Everything that happens here may happen
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

func (n Network) String() string { return [...]string{"anyhow", "in order"}[n] }
