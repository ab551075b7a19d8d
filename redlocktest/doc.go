// Package redlocktest has servers within the test's own process, so that a program can test how it
// behaves while a lock is held by another process, when it loses a lock, and when servers are away:
//
//	servers := redlocktest.Start(t)
//	locker := servers.Locker()
//	release := servers.Hold("invoice:42")  // another process has the lock
//	servers.Lose("invoice:42")             // the lock is lost, whoever holds it
//	end := servers.Outage(2)               // two of three servers do not answer
//
// There is no socket, no waiting for quarantines, and nothing to install. The servers answer at once,
// and are those that redquorum itself is tested on; their answers are held to real servers' in redquorum's
// own tests. In a bubble of testing/synctest time is the bubble's, so that a test of a TTL of a minute
// takes no time.
package redlocktest
