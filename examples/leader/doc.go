// Command leader keeps one of several processes at work, and another one ready
// to take over.
//
// All candidates wait for the same lock. Who gets it leads, in a context that ends
// with the lock: when the leader is told to stop, when it is cut off from its
// servers, or when its machine hangs for longer than the TTL. It steps down, and
// the next one leads.
//
// candidate.go is what to copy.
package main
