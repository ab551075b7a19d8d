// Package httplock has HTTP requests run one at a time: a handler behind its
// middleware runs while it holds the lock that the request names, on whichever
// machine it was received.
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
// # Answers to requests that do not get their lock
//
// The handler does not run, and the client gets problem details (RFC 9457),
// which name neither the lock nor a server, and are not to be cached:
//
//	400 Bad Request          the key function failed, or made a name that redlock refuses
//	423 Locked (RFC 4918)    another request holds the lock
//	500 Internal Server E.   no try later helps: the key is no lock's, or the servers lack
//	                         rights or commands (redlock.QuorumError.Permanent)
//	503 Service Unavailable  too few nodes answer, or they are in quarantine; the
//	                         Locker was closed; the request's context has ended
//
// Retry-After (RFC 9110, section 10.2.3) comes with 423 if it is known how long
// the lock lives unless it is renewed, and with every 503. [Answer] replaces all
// of that.
//
// A request whose context ends while it waits leaves no lock behind. It is
// answered, too, though its client has mostly left: where something else than
// the client ended the context, net/http would make no answer 200 OK.
//
// By default the lock is asked for once. See [Wait] for a wait, and [Lock] for
// the options of package redlock.
//
// # While the handler runs
//
// The request's context has the values that it came with, and ends when it did,
// and also when the lock ends: context.Cause is then one that matches
// redlock.ErrLost, or redlock.ErrClosed if the Locker was closed. What the
// handler does to the outside must stop then, and what cannot be undone should
// be fenced (redlock.Fenced, package fence). redlock.Lock.Valid knows of the end
// a little before the context. The middleware cannot take back
// what the handler has written, so it answers nothing by itself when a lock is
// lost; [OnLost] is told.
//
// The ResponseWriter is the server's own: Flush, Hijack and
// http.ResponseController work as without the middleware. The lock is held
// until the handler returns, so also for as long as it streams or serves a
// connection that it hijacked. redlock.MaxHold caps that.
//
// # Other frameworks
//
// Never use the middleware with an adaptor that calls the handler after the middleware has returned,
// as Fiber's adaptor.HTTPMiddleware does. The lock is released by then, and requests that seem to be
// protected run side by side. In doubt have the handler look at FromContext and redlock.Lock.Valid.
// The folder examples/web has chi, echo, gin and Fiber.
//
// # The end
//
// The lock is released when the handler returns, panics or calls
// runtime.Goexit; a panic goes on. A client that goes away in the meantime does
// not keep it from being released. Release waits for a quorum, for no longer
// than the node timeout.
//
// net/http sends the end of a response when the handler has returned, which is
// after the release. So a client that has read an answer to its end finds the
// lock free. Where the handler sets a Content-Length, the last byte can be on its
// way before.
//
// # What the user owes
//
// A name is chosen by the sender of the request. Check whether they may before
// the middleware runs, and have the key function begin the name with what kind
// of thing it is, so that an order and an invoice with one number do not meet.
// Locks are not reentrant: a handler that sends a request for the name that it
// holds, and waits for the answer, waits in vain.
package httplock
