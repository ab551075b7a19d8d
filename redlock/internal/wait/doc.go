// Package wait is how the caller that is the first of its process waits for a lock that others hold.
//
// With its first refusal, or before its first try where others are known to wait, it takes a place in the
// order among processes (package ticket), which one node keeps. All choose the same node (ballot.First). The
// first of the order watches the key, and the others only their place, so that a release wakes one waiter
// however many there are:
//
//	LineUp ──► Await: ask for the place ──behind──► called, or a while has passed ──► ask again
//	                   │
//	                   └──first──► the key has changed ──► leave the order and try
//	                           └─► a timer is over ──────► try
//
// The first leaves the order when it tries at a hint, which calls the next; Fair keeps its place until it
// has the lock. What a view of all this leads to is decided by one function (view.next), which a table
// tests; Await has how that is done. Where no node keeps an order, each waiter takes itself for the first,
// and asks one node before the others, so that those that wake together do not split the nodes among them.
//
// Every node is a guess, never a gate. One that leaves a question unanswered for a few of its usual round
// trips is passed over, a second node is watched where the wait is long, and the timer tries at all nodes.
// Nothing here decides who holds a lock.
package wait
