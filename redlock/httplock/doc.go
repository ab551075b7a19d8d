// Package httplock runs HTTP requests one at a time. A handler behind its middleware runs while it
// holds the lock that the request names, on whichever machine received the request.
//
//	locker, err := redlock.New(nodes)
//	serialise, err := httplock.New(locker, func(r *http.Request) (string, error) {
//		return "order:" + r.PathValue("id"), nil
//	})
//	mux.Handle("POST /orders/{id}/pay", serialise(http.HandlerFunc(pay)))
//
//	func pay(w http.ResponseWriter, r *http.Request) {
//		lock, _ := httplock.FromContext(r.Context()) // for lock.Fence and the like
//		charge(r.Context(), ...)                     // ends if the lock is lost
//	}
//
// By default a request asks for the lock once. [Wait] makes it wait, and [Lock] gives options of
// package redlock.
//
// # Answers to requests that do not get their lock
//
// The handler does not run, and the client gets problem details (RFC 9457), which name neither the
// lock nor a server, and are not to be cached:
//
//	400 Bad Request          the key function failed, or made a name that redlock refuses
//	423 Locked (RFC 4918)    another request holds the lock
//	500 Internal Server E.   no try later helps: the key is no lock's, or the servers lack
//	                         rights or commands (redlock.QuorumError.Permanent)
//	503 Service Unavailable  too few nodes answer, or they are in quarantine; the
//	                         Locker was closed; the request's context has ended
//
// Retry-After (RFC 9110, section 10.2.3) comes with every 503, and with 423 if it is known how long
// the lock lives unless it is renewed. [Answer] replaces all of that.
//
// A request whose context ends while it waits leaves no lock behind. It is answered even if its
// client has left, because without an answer net/http would send 200 OK.
//
// # While the handler runs
//
// The request's context keeps its values. It ends as before, and also when the lock ends. Then
// context.Cause matches redlock.ErrLost, or redlock.ErrClosed if the Locker was closed. The handler
// must stop, and fence what it cannot undo (redlock.Fenced, package fence). redlock.Lock.Valid knows
// of the end a little before the context. The middleware answers nothing when a lock is lost, because
// the handler may have written already; [OnLost] is told.
//
// The ResponseWriter is the server's own: Flush, Hijack and http.ResponseController work. The lock is
// held until the handler returns, also while it streams or serves a hijacked connection.
// redlock.MaxHold limits that.
//
// # Inside and outside of a mux
//
// The key function finds Request.Pattern and PathValue only if the mux is outside, as above. Where the
// middleware wraps the mux they are empty, and "order:" + r.PathValue("id") is one lock for all orders:
// take the name from the URL there. A middleware outside sees the Pattern that a mux inside has set,
// when the request is answered, but no PathValue.
//
// # Other frameworks
//
// Do not use an adaptor that calls the handler after the middleware has returned, such as Fiber's
// adaptor.HTTPMiddleware: the lock is released by then, and nothing is protected. If in doubt, let the
// handler check FromContext and redlock.Lock.Valid. docs/ADAPTERS.md has chi, echo, gin and Fiber.
//
// A handler of time-outs, such as http.TimeoutHandler and echo's Timeout, answers while the handler
// within it runs on. Put it outside: http.TimeoutHandler(serialise(pay), ...). Inside, the lock is
// released with the answer, and the next request runs beside the one that works on. The same is true
// of all else that starts the handler in a goroutine and does not wait for it.
//
// # The end
//
// The lock is released when the handler returns, panics or calls runtime.Goexit, even if the client
// has gone; a panic goes on. Release waits for a quorum, for the node timeout at most.
//
// net/http ends the response after that. So a client that has read an answer to its end finds the lock
// free, unless the handler set a Content-Length.
//
// # What the user must do
//
// The sender of the request chooses the name. Check that the sender may use it before the middleware
// runs, and begin the name with the kind of thing, so that an order and an invoice with one number do
// not meet. Locks are not reentrant: a handler that sends a request for its own name, and waits for
// the answer, waits for itself.
package httplock
