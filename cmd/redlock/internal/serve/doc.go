// Package serve gives programs in any language the locks of a Locker over HTTP, for "redlock
// serve".
//
//	client ──request──▶ routes.go ──▶ session ──▶ lease ──▶ redlock.Lock
//	       ◀─answer, counted from the request's start┘    ◀──lost──┘
//
// Files use each other one way only: problem.go and wire.go know none of the others; session.go, office.go
// and page.go know them; server.go has all of it; handle_*.go and view.go answer for a Server; routes.go says
// which of them answers what, and which right that needs.
//
// A lease is a lock that a client has. It belongs to a session, which ends, and gives its leases back,
// when no request of the client has come for its TTL; so a client that dies keeps nobody out for long.
//
// # What a client is told
//
// Each answer says for how long a lease is good, counted from the moment at which the client sent the
// request that is answered (validFor). However late the answer is read, by a process that was stopped
// or through a slow pipe, the client knows an end that is not behind that of the lock. A client that
// wants a later end asks again. What is told in between, that a lock is lost, only comes sooner.
//
// # Rights
//
// All requests come by (*Server).handle, which finds the client, and asks cmd/redlock/internal/rights whether it may do
// what the route does with the names in the request. Sessions and leases have the label of their client, and
// the table has none of another's for it.
//
// # The office
//
// With Config.Office the server is a candidate, too, for the program beside it (office.go). What that is
// told of its term is as good as what is told of a lease. Those who only look for the leader, at the port
// of Probes, are told a status, which is good for no time.
package serve
