package httplock

import (
	"context"
	"errors"
	"net/http"

	"github.com/redquorum/redquorum/redlock"
)

type contextKey struct{}

// FromContext returns the lock under which a handler runs, from its request's context or one made
// of it. With two middlewares it is the inner one's. False means that there is no lock: the
// middleware does not wrap this handler, or [ErrSkip] let the request pass.
//
// The middleware releases the lock. A handler may release it early, but that ends the request's
// context, so pass context.WithoutCancel(r.Context()) to Release.
func FromContext(ctx context.Context) (*redlock.Lock, bool) {
	lock, ok := ctx.Value(contextKey{}).(*redlock.Lock)
	return lock, ok
}

// hold runs the handler under the lock.
func (m *middleware) hold(w http.ResponseWriter, r *http.Request, next http.Handler, lock *redlock.Lock) {
	ctx, cancel := lock.Bind(context.WithValue(r.Context(), contextKey{}, lock))
	// Deferred, since a handler that panics, or calls runtime.Goexit, must not keep
	// its lock.
	defer func() {
		cancel() // first: goroutines that the handler has left behind hold nothing from here on
		m.release(r.WithContext(ctx), lock)
	}()
	serve(ctx, w, r, next)
}

// serve runs the handler for the request with another context.
func serve(ctx context.Context, w http.ResponseWriter, received *http.Request, next http.Handler) {
	r := received.WithContext(ctx)
	// net/http removes the temporary files of the request that it made, and knows
	// nothing of copies (https://go.dev/issue/58809). A mux inside sets the pattern of
	// the copy, where a log outside does not look.
	defer func() { received.MultipartForm, received.Pattern = r.MultipartForm, r.Pattern }()
	next.ServeHTTP(w, r)
}

// release gives the lock up. The request's context has ended by now, and must
// not keep it from hearing what the nodes say: so they have confirmed it when the
// client gets the answer, and a loss is noticed.
func (m *middleware) release(r *http.Request, lock *redlock.Lock) {
	err := lock.Release(context.WithoutCancel(r.Context()))
	if m.lost != nil && (errors.Is(err, redlock.ErrLost) || errors.Is(err, redlock.ErrClosed)) {
		m.lost(r, err)
	}
}
