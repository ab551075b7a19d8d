// Package lease is one claim that a quorum of nodes has granted, from that vote on until it has ended:
// until when it holds, which nodes have it, what is to be asked of them next, and why it ended.
//
// A Lease is a state machine. Each of its methods is one event (an answer of a node, a moment, a hint,
// a handover), changes nothing but the Lease, and returns what the caller is to do (Todo). It knows no
// Locker, nodes, goroutines or clock: the moment comes with the event. So a test tries every order of
// answers, losses of messages, hints, looks, repairs, renewals and the release (explore_test.go);
// handovers, readers and what a Lease is held within are for the simulation of the whole.
//
//	            a quorum grants an extension
//	              ┌────────────────────────┐
//	              ▼                        │
//	granted ──► held ──renewal is due──► asked ──too few, or too late──► held, to be asked again soon
//	              │ any event
//	              └──► ended: Released, Closed, Overdue, MaxHold, Absent, Gone, Missing, Along
//
// It promises that a Lease is held only before its deadline, which counts from the start of a request
// that a quorum granted before the deadline of before; that it ends once, for one reason, and that
// nothing brings it back; and that it ends as soon as a majority has said that it does not hold the
// claim, in answer to one extension (Gone), or to looks (Missing).
//
// A grant is trusted for the TTL less drift from when its request was made (quorum.Deadline). A node
// that has refused an extension holds nothing, and is given the claim again (a repair). That adds to
// the margin only: it never counts for the extension that found the gap, because another client may
// have had the node meanwhile, and for the next only as a vote that was there before.
//
// A hint that a key has changed (package pool) proves nothing. It has the node looked at, soon, but
// not in a row without end: see firstLookGap.
//
// What is rejected: grants that come after the deadline, or of requests that are older than the one
// that the deadline counts from; and what nodes refuse of a writer's request when the claim has become
// a reader's since (Downgrade), for they may hold it all the same.
//
// A Lease is not safe for concurrent use. Its owner has one mutex for it and for what goes with it.
// What only leases need whose nodes differ is behind a pointer, because there may be a million.
package lease
