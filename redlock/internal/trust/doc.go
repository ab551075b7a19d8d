// Package trust judges what a node's vote is worth. It is the memory guard.
//
// A node that forgot its keys (a restart without persistence, a FLUSHALL, a failover to a replica
// that lags) would grant a lock that another client still holds by the node's earlier vote. So each
// node carries an epoch record, a key that goes when its other keys go, and that names the process
// and the data set that had them (package internal/record). This package promises that a vote counts
// only if every lock that the node may have granted before its record was born has expired.
//
// What a node's memory goes through, as one client knows it:
//
//	no record ──► read ──► open ──► asked or proven ──► votes count from votesFrom on
//	    ▲                                                          │
//	    └────────── the record is gone, or another server's ◄──────┘
//
// A record that was just born says nothing of how long the locks before it were. The other nodes'
// records do: they tell which TTLs locks have had (their steps), so the client asks them, and
// writes what they say into the new record (asked), or can do without because a majority remembers
// all the time (proven). While too few answer (open) the longest TTL of this client's own settings is
// assumed, and the wait is at least a second. Until then the node is in quarantine.
//
// While all is well this costs no packet. Behind each acquisition and extension a node tells how
// long its record has left to live. That number says three things: whether the record is there;
// whether it is still the same, for its lifetime is partly random, and drawn anew with each change;
// and what the time is on the server. A clock that was set ahead expires keys too early, which is
// forgetting as well: such a node has no vote for the longest TTL on record.
//
// A TTL is entered into a node's record before a vote for such a lock counts there, because the
// record is what tells others how long to wait. What is on record costs others a quarantine, so a
// lock that may still be refused enters nothing: its votes wait until a quorum of nodes has promised
// theirs. A vote that was given before the entry does not count (the node could forget both), but the
// node votes as soon as it is asked again.
//
// What becomes of a vote:
//
//	a reply that grants ──► counts | void
//	          │
//	          └► not yet ─┬─► the record is read ──► judged again
//	                      └─► a quorum has promised ──► the TTL is entered ──► judged again
//
// A Trial judges the votes of one ballot. One that is not judged yet is parked here and nowhere else:
// in its Trial while it waits for promises, then in the memory of its node while the record is read or
// changed. A Guard has the memories of all nodes.
//
// What is trusted: that a server's clock runs as ours does but for quorum.DriftRate, unless a reading
// shows that it was set; that a key's PTTL is what the server goes by; that a record's text and
// lifetime are not written by others. What is rejected: a record that names another process or data
// set, one without a lifetime (after a PERSIST), one of clients with another number of nodes.
//
// Locks: a memory's mutex may be held when a Trial's or a ballot's is taken, not the other way
// round. Nothing is sent to a node, and no vote is counted, under any of them.
package trust
