package httplock

import (
	"context"
	"errors"
	"net/http"

	"github.com/redquorum/redquorum/redlock"
)

// acquire returns the lock that the request needs. The error matches ErrSkip if the request needs
// no lock.
func (m *middleware) acquire(r *http.Request) (*redlock.Lock, error) {
	name, err := m.key(r)
	if err != nil {
		return nil, &KeyError{err}
	}
	opts := m.lock
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		opts = m.reader
	}
	lock, err := m.ask(r.Context(), name, opts)
	var vote *redlock.QuorumError
	if err == nil || errors.As(err, &vote) || errors.Is(err, redlock.ErrClosed) {
		return lock, err
	}
	return nil, &KeyError{err} // New has checked the options, so the name is invalid
}

// ask requests the lock once, or waits for the lock if Wait is set. opts can override both.
func (m *middleware) ask(ctx context.Context, name string, opts []redlock.Option) (*redlock.Lock, error) {
	wait := redlock.Retries(0)
	if m.wait > 0 {
		wait = redlock.Wait(m.wait)
	}
	return m.locker.Acquire(ctx, name, append([]redlock.Option{wait}, opts...)...)
}
