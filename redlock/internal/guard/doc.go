// Package guard judges what a node's vote is worth: it is the memory guard.
//
// A node that forgot its keys (a restart without persistence, a FLUSHALL, a failover to a replica
// that lags) would grant a lock that another client still holds by the node's earlier vote. So each
// node carries an epoch record, a key that goes when its other keys go, and that names the process
// and the data set that had them (package internal/record). This package promises that a vote
// counts only if every lock that the node may have granted before its record was born has expired.
//
// What a node's memory goes through, as one client knows it:
//
//	no record ──► read ──► open ──► asked or proven ──► votes count from votesFrom on
//	    ▲                                                          │
//	    └────────── the record is gone, or another server's ◄──────┘
//
// A record that was just born does not tell how long the locks before it were. The other nodes'
// records do: they list the TTLs of locks (their steps). If enough of them remember the whole time,
// they prove what the node can have forgotten (proven). Else the client writes what they say into
// the new record (asked). While too few have answered (open), it assumes its own longest TTL, and
// at least a second. Until the wait is over, the node is in quarantine.
//
// While all is well this costs no packet. With each acquisition and extension, a node tells how
// long its record has left to live. This shows whether the record is there; whether it is the same,
// because its lifetime is partly random and drawn anew with each change; and what the server's
// clock shows. A clock that was set ahead expires keys too early, so its node has no vote for the
// longest TTL either. A record that is older than one that was read before shows a server with older
// keys, restored from a snapshot: it gets a new record, with a quarantine. So the record is read again
// on each new connection.
//
// A vote counts only if its TTL was on the node's record before, because the record tells others
// how long to wait. An entry can cost others a quarantine, so votes for a lock that may still be
// refused wait until a quorum of nodes has promised theirs.
//
//	a reply that grants ──► Judged: it counts, or is void
//	          └► Parked ─┬─► the record is read ──► judged again ──► Settled
//	                     └─► a quorum has promised ──► the TTL is entered ──► judged again ──► Settled
//
// A Guard has the memories of all nodes, because the others tell what one node forgot. Its owner
// calls one method at a time, passes the time, and takes the Effects afterwards. A Guard sets no
// timer: a question ends with its answer, or when a later vote needs the record and the answer is
// overdue (ask). It is plain data, so that a test can try every order of events.
//
// What is trusted: that a server's clock runs as ours does but for quorum.DriftRate, unless a
// reading shows that it was set; that a key's PTTL is what the server goes by; that a record's text
// and lifetime are not written by others. What is rejected: a record that names another process or
// data set, one without a lifetime (after a PERSIST), one of clients with another number of nodes.
package guard
