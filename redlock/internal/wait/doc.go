// Package wait is how the caller that is the first of its process waits for a lock that others hold.
//
// With its first refusal it takes a place in the order among processes (package ticket), which one node
// keeps. All choose the same node (ballot.First). The first of the order watches the key, and the others
// only their place, so that a release wakes one waiter however many there are:
//
//	LineUp ──► Await: ask for the place ──behind──► called, or a while has passed ──► ask again
//	                   │
//	                   └──first──► the key has changed, or a timer is over ──► leave the queue and try
//
// The first leaves the queue when it tries, which calls the next. What a view of all this leads to is
// decided by one function (view.next), which a table tests. Where no node keeps a queue, each waiter takes
// itself for the first, and asks one node before the others, so that those that wake together do not split
// the nodes among them.
//
// Every node is a guess, never a gate. One that leaves a question unanswered for a few of its usual round
// trips is passed over, a second node is watched where the wait is long, and the timer tries at all nodes.
// Nothing here decides who holds a lock.
package wait
