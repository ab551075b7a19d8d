// Package agenda looks at many things in time, each at its own moment, and has one goroutine do what
// they want done. A goroutine for each would cost its stack besides: a process may hold a million locks.
//
// Many items can be due at one moment, and one's deadline must not wait for another's requests to
// servers. So there are two goroutines, and each lives only while it has something to do:
//
//	timer ──► Item.Due, which ends what is over ──► works ──► Item.Do, which asks servers
//
// It promises that Due is called at an item's moment or as soon after as the processor allows, never
// twice for one Put, and by one goroutine at a time; that works are done in the order in which they
// were added, but looks behind all others and at most batchSize in a timeSlice; and that none is
// forgotten, but for those that are in vain when the nodes are about to be closed.
package agenda
