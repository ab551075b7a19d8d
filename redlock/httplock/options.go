package httplock

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// An Option changes a default of New. A later Option overrides an earlier one of the same kind,
// except that the options of Lock accumulate.
type Option struct{ apply func(*middleware) error }

// Wait lets a request wait up to d for a held lock, in line with other requests of the Locker.
// Default 0: one try. The wait ends early when the request's context ends, when an outage exceeds
// the lock's redlock.Patience, or after the redlock.Retries passed to Lock. The answer then
// distinguishes contention from an outage.
//
// A waiting request occupies a connection and a goroutine, so keep d below the timeouts of clients,
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

// Lock sets options of the locks, such as redlock.TTL, redlock.Fenced or redlock.MaxHold. Without
// Wait, redlock.Retries(n) and redlock.RetryInterval set the number and interval of the tries, and
// redlock.Retries(redlock.Forever) waits until the request's context ends.
func Lock(opts ...redlock.Option) Option {
	return Option{func(m *middleware) error {
		m.lock = append(m.lock, opts...)
		return nil
	}}
}

// SharedReads makes GET and HEAD requests readers (see redlock.Shared): any number of them run
// together, and other requests run alone. Default: each request runs alone. SharedReads cannot be
// combined with redlock.Fenced.
func SharedReads() Option {
	return Option{func(m *middleware) error { m.sharedReads = true; return nil }}
}

// Answer lets f answer the requests that do not get their lock. f must write an answer, because
// otherwise net/http sends 200 OK. Default: ProblemOf(err).ServeHTTP(w, r).
//
// The error matches redlock.ErrHeld, redlock.ErrNoQuorum or redlock.ErrClosed, is a *KeyError, or
// matches the error of the request's context. Its text contains lock names and node addresses: log
// it, and do not send it to clients.
func Answer(f func(w http.ResponseWriter, r *http.Request, err error)) Option {
	return Option{func(m *middleware) error {
		if f == nil {
			return errors.New("Answer(nil): omit the option for the default")
		}
		m.answer = f
		return nil
	}}
}

// OnLost calls f if the lock was lost before its handler ended. f runs after the handler has
// returned or panicked, in the same goroutine, and gets the handler's request. The error matches
// redlock.ErrLost, or redlock.ErrClosed if the Locker was closed. Default: only the handler's
// context reports a loss.
func OnLost(f func(r *http.Request, err error)) Option {
	return Option{func(m *middleware) error {
		if f == nil {
			return errors.New("OnLost(nil): omit the option")
		}
		m.lost = f
		return nil
	}}
}
