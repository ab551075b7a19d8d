// Package relay is a network between clients and one server that can fail in one
// direction only: requests arrive and the replies do not, or the other way round.
//
// A relay fails as TCP fails. Bytes that were lost are never followed by later
// ones, since a stream has no holes: a connection that lost some is silent in that
// direction until the fault is over, and is then reset. Bytes that are held or
// late arrive in order, and even if their sender has left by then.
package relay
