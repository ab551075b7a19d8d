// Package guard is the memory guard: it decides whether a node's vote counts.
//
// A node can forget its keys, by a restart without persistence, a FLUSHALL, or a failover to a
// replica that lags. It would then grant a lock that another client still holds by the node's
// earlier vote. So each node has an epoch record, a key that disappears when the other keys of the
// node do. The record names the process and the data set that it was written for (package
// internal/record). This package promises that a vote counts only if every lock that the node may
// have granted before the birth of its record has expired.
//
// The states of a node's memory, as one client knows them:
//
//	no record ──► read ──► open ──► asked or proven ──► votes count from votesFrom on
//	    ▲                                                          │
//	    └────────── the record is gone, or another server's ◄──────┘
//
// A new record does not show the TTLs of earlier locks. The records of the other nodes do, because
// they list the TTLs of locks (their steps). If enough nodes have kept their records for the whole
// time, they prove which locks the node can have forgotten (proven). Otherwise the client writes
// the answers of the other nodes into the new record (asked). While too few have answered (open),
// the client assumes its own longest TTL, and at least a second. Until the wait ends, the node is
// in quarantine.
//
// Without faults, the guard sends no request of its own. With each acquisition and extension, a
// node reports the remaining lifetime of its record. This shows three things: whether the node has
// a record; whether the record is the same, because its lifetime is partly random and drawn again
// with each change; and the time of the server's clock. A clock that was set ahead expires keys too
// early, so its node, too, has no vote for the longest TTL. A record that is older than one read
// before shows a server with older keys, restored from a snapshot: the node gets a new record, with
// a quarantine. So the client reads the record again on each new connection.
//
// A vote counts only if its TTL was on the node's record before, because other clients learn from
// the record how long to wait. An entry can cost other clients a quarantine. So votes for a lock
// that may still be refused wait until a quorum of nodes has promised their votes.
//
//	a reply that grants ──► Judged: it counts, or is void
//	          └► Parked ─┬─► the record is read ──► judged again ──► Settled
//	                     └─► a quorum has promised ──► the TTL is entered ──► judged again ──► Settled
//
// A Guard has the memories of all nodes, because it judges one node's loss by the records of the
// others. Its owner calls one method at a time, passes the time, and takes the Effects afterwards.
// A Guard sets no timer: a question ends with its answer, or when a later vote needs the record and
// the answer is overdue (ask). A Guard is plain data, so that a test can try every order of events.
//
// The guard relies on these assumptions:
//
//   - A server's clock runs as ours does, within quorum.DriftRate, unless a reading shows that it
//     was set.
//   - A server expires a key when its PTTL has passed.
//   - No other program changes the text or the lifetime of a record.
//
// It rejects a record that names another process or data set, a record without a lifetime (after a
// PERSIST), and a record of clients with another number of nodes.
package guard
