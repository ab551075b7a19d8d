// Package ballot asks N nodes one question, and counts what they say.
//
// A Ballot is one request to the nodes (the Voters), and knows who has answered it, what, and after
// how long. Whoever asks waits for a Goal; the answers of slower nodes go on being counted, and are
// handed on to whatever the ballot was for:
//
//	Begin ──► Run or Ask ──► Wait for a goal ──► State: what was said by then
//	                │
//	                └► each reply ──► (judged elsewhere) ──► Count ──► State, and whoever listens
//
// A vote that is Unknown or Failed is a fault, never a refusal. A node votes once, and a server once
// whatever it is called. Between its answer and its Count a vote may be examined or promised (package
// trust): it is not counted yet, but the node is not silent either.
//
// The Voters know how long each node usually takes to answer, so that a node which is late can be
// passed over. That decides only whom to wait for, never who holds a lock.
//
// The package knows nothing of locks, leases or tokens. Goals and States are pure; what they say is
// in tables of cases.
//
// Locks: the order of a key (Voters.Order) is held while requests are queued, and a node's own locks
// are taken under it. A Ballot's mutex is taken last of all: a Goal that is called under it looks at
// the State only, and no node is.
package ballot
