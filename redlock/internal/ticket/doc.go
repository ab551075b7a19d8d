// Package ticket is the order among processes that wait for one key. A quorum has no common order of
// arrival, so one node at a time keeps a queue of tickets for the key (protocol.OpQueue), each with the
// moment since when its owner waits.
//
//	Ask ──► first, with so many behind it      ──called when another comes behind it──┐
//	    ──► behind so many                     ──called when it becomes the first─────┴──► Ask again
//	    ──► failed: the node keeps no queue
//
// A ticket counts for Life after it was asked about last, so that a waiter that has died keeps nobody
// waiting for longer. The node is a guess: nothing here decides who holds a lock.
package ticket
