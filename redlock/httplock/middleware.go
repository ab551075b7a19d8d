package httplock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// A middleware holds the settings shared by all handlers of one New. It never changes.
type middleware struct {
	locker *redlock.Locker
	key    func(*http.Request) (string, error)
	wait   time.Duration
	lock   []redlock.Option
	reader []redlock.Option // options for a request that reads
	answer func(http.ResponseWriter, *http.Request, error)
	lost   func(*http.Request, error)

	sharedReads bool
	failOpen    bool
}

// New returns a middleware: a function that wraps a handler. It panics if the handler is nil, as
// http.Handle does. The wrapped handler runs under the lock that key names for the request. One
// middleware may wrap many handlers, which then compete for the same names. The middleware is safe
// for concurrent use, and key and the hooks must be too.
//
// If key returns [ErrSkip], the request passes without a lock. If key returns another error, or a
// name that redlock refuses (empty, over 1024 bytes including the Locker's Prefix, or reserved),
// the request is refused with a [KeyError].
//
// New returns an error for an invalid locker, key or option, and sends nothing to the nodes. The
// caller still owns the Locker, and closes it after the server's Shutdown.
func New(locker *redlock.Locker, key func(*http.Request) (string, error), opts ...Option) (func(http.Handler) http.Handler, error) {
	if locker == nil {
		return nil, errors.New("httplock: the Locker is nil: make one with redlock.New")
	}
	if key == nil {
		return nil, errors.New("httplock: the key function is nil: pass one that returns the name of the lock that a request needs")
	}
	m := &middleware{locker: locker, key: key, answer: answer}
	for _, o := range opts {
		if o.apply == nil {
			return nil, errors.New("httplock: an Option was zero: make it with one of the package's functions")
		}
		if err := o.apply(m); err != nil {
			return nil, fmt.Errorf("httplock: option %w", err)
		}
	}
	m.reader = m.lock
	if m.sharedReads {
		m.reader = append(slices.Clone(m.lock), redlock.Exclusive(), redlock.Shared())
		m.lock = append(m.lock, redlock.Exclusive())
	}
	if err := cmp.Or(m.locker.Check(m.lock...), m.locker.Check(m.reader...)); err != nil {
		return nil, fmt.Errorf("httplock: %w", err)
	}
	return m.wrap, nil
}

func (m *middleware) wrap(next http.Handler) http.Handler {
	if next == nil {
		panic("httplock: the handler to wrap is nil")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lock, err := m.acquire(r)
		switch {
		case errors.Is(err, ErrSkip):
			next.ServeHTTP(w, r)
		case m.failOpen && isOutage(r, err):
			serve(context.WithValue(r.Context(), unlockedKey{}, err), w, r, next)
		case err != nil:
			m.answer(w, r, err)
		default:
			m.hold(w, r, next, lock)
		}
	})
}
