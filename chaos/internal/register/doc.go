// Package register is the resource that a lock protects: a value for each name,
// kept by a server that takes a write only if its fencing token is not below the
// highest that it has seen. It records every attempt, in the order in which it
// decided.
//
// This is what a lock alone cannot do. A client that is paused after it has looked
// at its lock writes when the lock is another's; only the resource can tell.
package register
