// Package quorum contains the arithmetic of the algorithm: the outcome of votes, the validity of a
// lock, and the bounds of a server's clock. It is pure: it imports no time, I/O or locks, which a
// test checks.
//
// A Tally counts the replies to one request. Its three outcomes follow from q = N/2+1 alone:
//
//	Pending ──q grants──────────────────────────► Won
//	   └─────too many refusals or faults:────────► Lost
//	         q nodes can no longer grant
//
// A decision is final, whatever replies follow, and each node counts once. Any two quorums share a
// node, so no two requests for one name are both Won as long as each node grants to one. A refusal
// is not a fault. If no quorum can hold the name because of refusals, the Tally is Gone. If faults
// alone prevent a quorum, it is an Outage. A fault contains no information about the keys of a
// node.
//
// A deadline is the start of the request plus the TTL, less Drift. It relies on one property of
// clocks: during the TTL, the rates of the clocks of client and servers differ by at most one per
// cent. The readings of the clocks do not matter. An Offset detects that a server's clock violates
// this, or was set: it checks each reading against bounds from the earlier ones, and rejects a
// reading outside of them. A Set contains nodes by their index.
package quorum
