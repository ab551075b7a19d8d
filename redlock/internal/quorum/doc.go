// Package quorum is the arithmetic of the algorithm: what votes decide, how long a lock
// lasts, and what a reading says of a server's clock. It is pure. It imports nothing that
// tells time, does I/O or locks, which a test checks.
//
// A Tally counts the replies to one request. Its three outcomes follow from q = N/2+1 alone:
//
//	Pending ──q grants──────────────────────────► Won
//	   └─────so many refuse or fail that q───────► Lost
//	         nodes can grant no more
//
// What is decided stays decided, whatever comes later, and each node counts once. Any two
// quorums share a node, so no two requests for one name are both Won while each node grants
// to one. A refusal and a fault are told apart: so many refusals that no quorum holds the
// name is Gone, so many faults is an Outage, and a fault says nothing of what a node holds.
//
// A deadline is the start of the request and the TTL, less Drift. It trusts that the clocks
// of client and servers differ in rate by one per cent at most, for as long as the TTL, and
// nothing of what they show. An Offset tells when a server's clock does not keep to that, or
// was set: its bounds hold each reading to those before, and reject one that is outside.
// A Set names nodes by their index.
package quorum
