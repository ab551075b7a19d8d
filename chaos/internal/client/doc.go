// Package client is a program that needs locks, as a process of its own: a
// redlock.Locker, and some goroutines that acquire, work, write to the register
// and release, until standard input ends. It tells its history on standard output.
//
// It does what its lock allows, and no more, with the flaw that every program has:
// between its last look at the lock and the write some time passes.
package client
