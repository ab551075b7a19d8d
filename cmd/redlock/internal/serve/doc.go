// Package serve offers the locks of a Locker over HTTP to programs in any language, for "redlock
// serve".
//
//	client ──request──▶ routes.go ──▶ session ──▶ lease ──▶ redlock.Lock
//	       ◀─answer, counted from the request's start┘    ◀──lost──┘
//
// Files depend on each other in one direction only. Package api has the bodies of requests and
// answers, and package survey the contents of the page. session.go, office.go, page.go, watch.go
// and audit.go use these packages; server.go and request.go have the common types; handle_*.go,
// view.go, metrics.go and probes.go answer for a Server; routes.go maps requests to these, with the
// rights that they need; serve.go begins and ends a Server.
//
// A lease is a lock held by a client. It belongs to a session. If no request of the client arrives
// for the TTL of the session, the session ends and releases its leases, so a dead client does not
// block others for long.
//
// # Promises
//
// Each answer has the time for which a lease is valid, counted from the moment at which the client
// sent the request (validFor). Even if the client reads the answer late, because it was stopped or
// its pipe is slow, the end that it computes is not after the end of the lock. A client that needs
// a later end asks again. Other news, such as the loss of a lock, only make the end earlier.
//
// # Rights
//
// All requests pass through (*Server).handle, which finds the client, and asks
// cmd/redlock/internal/rights whether it may do what the route does with the names in the request.
// Sessions and leases have the label of their client, and no other client finds them in the table.
//
// # The office
//
// With Config.Office the server is also a candidate, for a program on the same machine (office.go).
// Its answers about a term are promises, like those about a lease. At the port of Probes programs
// that only look for the leader get a status, which promises nothing.
package serve
