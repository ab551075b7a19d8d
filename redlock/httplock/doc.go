// Package httplock runs HTTP requests one at a time. Its middleware wraps a handler, and the
// handler runs while it holds the lock that the request names. The lock works across all machines
// that receive requests.
//
//	locker, err := redlock.New(nodes)
//	serialise, err := httplock.New(locker, func(r *http.Request) (string, error) {
//		return "order:" + r.PathValue("id"), nil
//	})
//	mux.Handle("POST /orders/{id}/pay", serialise(http.HandlerFunc(pay)))
//
//	func pay(w http.ResponseWriter, r *http.Request) {
//		lock, _ := httplock.FromContext(r.Context()) // for example for lock.Fence
//		charge(r.Context(), ...)                     // ends if the lock is lost
//	}
//
// By default a request tries once to get the lock. [Wait] makes it wait, and [Lock] passes options
// of package redlock.
//
// # Answers to requests that do not get their lock
//
// The handler does not run, and the client gets problem details (RFC 9457). They name neither the
// lock nor a server, and must not be cached:
//
//	400 Bad Request          the key function failed, or returned a name that redlock refuses
//	423 Locked (RFC 4918)    another request holds the lock
//	500 Internal Server E.   retrying does not help: the key does not hold a lock, or the servers
//	                         lack rights or commands (redlock.QuorumError.Permanent)
//	503 Service Unavailable  too few nodes answer, or they are in quarantine; the
//	                         Locker was closed; the request's context has ended
//
// Every 503 has a Retry-After header (RFC 9110, section 10.2.3). A 423 has one if the remaining TTL
// of the lock is known. [Answer] replaces these answers.
//
// If the context of a waiting request ends, the request leaves no lock behind. It gets an answer
// even if its client has disconnected, because without an answer net/http would send 200 OK.
//
// # While the handler runs
//
// The request's context keeps its values. It ends at the usual time, or earlier if the lock ends.
// Then context.Cause matches redlock.ErrLost, or redlock.ErrClosed if the Locker was closed. The
// handler must stop, and must fence writes that it cannot undo (redlock.Fenced, package fence).
// redlock.Lock.Valid returns false slightly before the context ends. The middleware sends no answer
// when a lock is lost, because the handler may have started one. [OnLost] reports the loss.
//
// The handler gets the server's own ResponseWriter, so Flush, Hijack and http.ResponseController
// work. The lock is held until the handler returns, even while it streams or serves a hijacked
// connection. redlock.MaxHold limits that time.
//
// # Inside and outside of a mux
//
// The key function can use Request.Pattern and PathValue only if the middleware is inside the mux,
// as above. If the middleware wraps the mux, both are empty, and "order:" + r.PathValue("id") is
// one lock for all orders: take the name from the URL instead. After the answer, a middleware
// outside can see the Pattern that a mux inside has set, but no PathValue.
//
// # Other frameworks
//
// Do not use an adaptor that calls the handler after the middleware has returned, such as Fiber's
// adaptor.HTTPMiddleware. The lock is already released then, and protects nothing. If in doubt, let the
// handler check FromContext and redlock.Lock.Valid. docs/ADAPTERS.md covers chi, echo, gin and
// Fiber.
//
// A timeout handler, such as http.TimeoutHandler or echo's Timeout, can answer while the handler
// inside it is still running. Put it outside: http.TimeoutHandler(serialise(pay), ...). Inside, the
// lock would be released with the answer, and the next request would run at the same time as the
// old one. The same applies to any handler that starts the inner handler in a goroutine and does
// not wait for it.
//
// # The end
//
// The lock is released when the handler returns, panics or calls runtime.Goexit, even if the client
// has disconnected. A panic is passed on. Release waits for a quorum, for at most the node timeout.
//
// net/http ends the response after the release. A client that has read the whole answer therefore
// finds the lock free, unless the handler set a Content-Length.
//
// # Names
//
// The sender of the request chooses the name. Check that the sender may use it before the
// middleware runs. Begin the name with its kind, so that an order and an invoice with the same
// number do not share a lock. Locks are not reentrant: a handler that sends a request for its own
// name, and waits for the answer, waits for itself.
package httplock
