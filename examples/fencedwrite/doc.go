// Command fencedwrite lets a holder write after its lock has ended, and the
// resource refuse it.
//
// Alice has the lock and is paused: by a garbage collection, a hypervisor, a
// disk. Her lock expires, Bob gets it and writes. Alice wakes up and writes,
// too, because she has not looked yet. No lock can prevent that; but each lock
// comes with a higher token, and a resource that remembers the highest tells who is
// late.
//
// register.go is what to copy.
package main
