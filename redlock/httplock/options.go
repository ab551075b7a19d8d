package httplock

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// An Option changes a default of New. A later one overrides an earlier one of its kind; those of
// Lock add up.
type Option struct{ apply func(*middleware) error }

// Wait lets a request wait up to d for a lock that is held, in line with others of the Locker.
// Default 0: one try. The wait ends early with the request's context, with the redlock.Patience of
// the lock in an outage, or with a redlock.Retries given by Lock. Then the answer tells contention
// from an outage.
//
// A waiting request takes a connection and a goroutine, so keep d below the timeouts of clients,
// proxies and the server (http.Server.WriteTimeout).
func Wait(d time.Duration) Option {
	return Option{func(m *middleware) error {
		if d < 0 {
			return fmt.Errorf("Wait(%v): must not be negative: 0 tries once", d)
		}
		m.wait = d
		return nil
	}}
}

// Lock gives options to the locks, such as redlock.TTL, redlock.Fenced or redlock.MaxHold. Without
// Wait, redlock.Retries(n) and redlock.RetryInterval set how often to try, and
// redlock.Retries(redlock.Forever) waits until the request's context ends.
func Lock(opts ...redlock.Option) Option {
	return Option{func(m *middleware) error {
		m.lock = append(m.lock, opts...)
		return nil
	}}
}

// SharedReads makes requests with the methods GET and HEAD readers (see redlock.Shared): any number
// of them run together, and other requests run alone. Default: each request runs alone. It is an
// error with redlock.Fenced.
func SharedReads() Option {
	return Option{func(m *middleware) error { m.sharedReads = true; return nil }}
}

// Answer lets f answer the requests that do not get their lock. f must write an answer, or net/http
// sends 200 OK. Default: ProblemOf(err).ServeHTTP(w, r).
//
// The error matches redlock.ErrHeld, redlock.ErrNoQuorum or redlock.ErrClosed, is a *KeyError, or
// matches the error of the request's context. Its text has lock names and node addresses: log it,
// and do not send it to clients.
func Answer(f func(w http.ResponseWriter, r *http.Request, err error)) Option {
	return Option{func(m *middleware) error {
		if f == nil {
			return errors.New("Answer(nil): omit the option for the default")
		}
		m.answer = f
		return nil
	}}
}

// OnLost calls f when a handler ran without its lock at its end: after it has returned or panicked,
// on its goroutine, with its request. The error matches redlock.ErrLost, or redlock.ErrClosed if
// the Locker was closed. Default: only the handler's context tells.
func OnLost(f func(r *http.Request, err error)) Option {
	return Option{func(m *middleware) error {
		if f == nil {
			return errors.New("OnLost(nil): omit the option")
		}
		m.lost = f
		return nil
	}}
}
