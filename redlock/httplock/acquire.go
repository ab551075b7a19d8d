package httplock

import (
	"context"
	"errors"
	"net/http"

	"github.com/redquorum/redquorum/redlock"
)

// acquire returns the lock that the request needs; an error that matches ErrSkip
// if that is none.
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
	return nil, &KeyError{err} // New has seen that the options are right, which leaves the name
}

// ask asks for the lock once, or waits.
func (m *middleware) ask(ctx context.Context, name string, opts []redlock.Option) (*redlock.Lock, error) {
	if m.wait == 0 {
		once := append([]redlock.Option{redlock.Retries(0)}, opts...) // which may say otherwise
		return m.locker.Acquire(ctx, name, once...)
	}
	waiting, cancel := context.WithTimeout(ctx, m.wait)
	defer cancel()
	return m.locker.Acquire(waiting, name, opts...)
}
