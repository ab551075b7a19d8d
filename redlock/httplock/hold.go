package httplock

import (
	"context"
	"errors"
	"net/http"

	"github.com/redquorum/redquorum/redlock"
)

type contextKey struct{}

// FromContext returns the lock under which a handler runs. ctx is the request's context, or derived
// from it. With nested middlewares it returns the innermost lock. False means that there is no
// lock: the middleware does not wrap this handler, or [ErrSkip] let the request pass.
//
// The middleware releases the lock. A handler may release it early. That ends the request's
// context, so pass context.WithoutCancel(r.Context()) to Release.
func FromContext(ctx context.Context) (*redlock.Lock, bool) {
	lock, ok := ctx.Value(contextKey{}).(*redlock.Lock)
	return lock, ok
}

// hold runs the handler under the lock.
func (m *middleware) hold(w http.ResponseWriter, r *http.Request, next http.Handler, lock *redlock.Lock) {
	ctx, cancel := lock.Bind(context.WithValue(r.Context(), contextKey{}, lock))
	// Deferred, because a handler that panics or calls runtime.Goexit must not keep its lock.
	defer func() {
		cancel() // first, so that goroutines left by the handler stop before the release
		m.release(r.WithContext(ctx), lock)
	}()
	serve(ctx, w, r, next)
}

// serve runs the handler for the request with another context.
func serve(ctx context.Context, w http.ResponseWriter, received *http.Request, next http.Handler) {
	r := received.WithContext(ctx)
	// net/http removes the temporary files of its own request, and ignores copies of the request
	// (https://go.dev/issue/58809). A mux inside sets the pattern of the copy, which a log outside
	// does not see.
	defer func() { received.MultipartForm, received.Pattern = r.MultipartForm, r.Pattern }()
	next.ServeHTTP(w, r)
}

// release releases the lock. The request's context has ended by now, and must not cancel the wait
// for the nodes. The wait ensures that a quorum has confirmed the release before the client gets
// its answer, and that a loss is noticed.
func (m *middleware) release(r *http.Request, lock *redlock.Lock) {
	err := lock.Release(context.WithoutCancel(r.Context()))
	if m.lost != nil && (errors.Is(err, redlock.ErrLost) || errors.Is(err, redlock.ErrClosed)) {
		m.lost(r, err)
	}
}
