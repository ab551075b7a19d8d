// Package redlocktest runs lock servers inside the process of a test. With it a program can test
// its behavior when another process holds a lock, when a lock is lost, and when servers are down:
//
//	servers := redlocktest.Start(t)
//	locker := servers.Locker()
//	release := servers.Hold("invoice:42")  // another process has the lock
//	servers.Lose("invoice:42")             // the lock is lost, whoever holds it
//	end := servers.Outage(2)               // two of three servers do not answer
//
// The servers need no sockets, no quarantine and no installation, and answer at once. redquorum's
// own tests use the same servers, and compare their answers with real servers. In a bubble of
// testing/synctest the servers use the time of the bubble, so the test of a TTL of a minute takes
// no time.
package redlocktest
