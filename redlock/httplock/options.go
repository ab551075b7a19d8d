package httplock

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// An Option changes a default of New. Of two of a kind the later one counts;
// those of Lock add up.
type Option struct{ apply func(*middleware) error }

// Wait lets a request wait up to d for a lock that is held, in line with others
// of the same Locker. It ends earlier if the request's context does, if too few
// nodes have answered for longer than the redlock.Patience of the lock, or if a redlock.Retries
// given by Lock is used up. When d is over the answer tells contention from an outage.
// Default 0: one try.
//
// A request that waits takes a connection and a goroutine of the server: keep d
// below the timeouts of clients, proxies and the server (http.Server.WriteTimeout).
func Wait(d time.Duration) Option {
	return Option{func(m *middleware) error {
		if d < 0 {
			return fmt.Errorf("Wait(%v): must not be negative; 0 tries once", d)
		}
		m.wait = d
		return nil
	}}
}

// Lock gives options to the locks, such as redlock.TTL, redlock.Fenced or
// redlock.MaxHold. Without Wait, redlock.Retries(n) and redlock.RetryInterval
// set how often to try, and redlock.Retries(redlock.Forever) waits for as long
// as the request's context lets it.
func Lock(opts ...redlock.Option) Option {
	return Option{func(m *middleware) error {
		m.lock = append(m.lock, opts...)
		return nil
	}}
}

// SharedReads makes requests with the methods GET and HEAD readers (see redlock.Shared): any
// number of them run together, and a request with another method alone. Default: each request
// runs alone. It cannot go with redlock.Fenced.
func SharedReads() Option {
	return Option{func(m *middleware) error { m.sharedReads = true; return nil }}
}

// Answer has f answer the requests that do not get their lock. It must write an
// answer, or net/http makes it 200 OK, which says that the work was done.
// Default: ProblemOf(err).ServeHTTP(w, r).
//
// The error matches redlock.ErrHeld, redlock.ErrNoQuorum or redlock.ErrClosed,
// is a *KeyError, or matches the error of the request's context: the client has
// mostly left then, and sees no answer. Its text has lock names and node
// addresses, which are for logs and not for clients.
func Answer(f func(w http.ResponseWriter, r *http.Request, err error)) Option {
	return Option{func(m *middleware) error {
		if f == nil {
			return errors.New("Answer(nil): leave the option out for the default")
		}
		m.answer = f
		return nil
	}}
}

// OnLost has f told that a handler ran, for a time at its end, without its lock:
// after it has returned or panicked, on its goroutine, with the request that it
// had. The error matches redlock.ErrLost, or redlock.ErrClosed if the Locker was
// closed meanwhile. Default: only the handler's context tells.
func OnLost(f func(r *http.Request, err error)) Option {
	return Option{func(m *middleware) error {
		if f == nil {
			return errors.New("OnLost(nil): leave the option out")
		}
		m.lost = f
		return nil
	}}
}
