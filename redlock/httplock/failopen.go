package httplock

import (
	"context"
	"errors"
	"net/http"

	"github.com/redquorum/redquorum/redlock"
)

// FailOpen lets a request pass without its lock while too few nodes answer, in place of 503: for work
// that is better done twice than not at all. Default: no request passes without its lock.
//
// Nothing excludes requests from each other then, also those that have a lock from before the outage. The
// handler learns of it by [Unlocked], so that it can leave out what must not be done twice. A request
// whose lock is held, or which no patience helps (redlock.QuorumError.Permanent), is refused as
// without FailOpen. An outage costs each request the wait that it has without: the node timeout, or Wait.
func FailOpen() Option {
	return Option{func(m *middleware) error { m.failOpen = true; return nil }}
}

type unlockedKey struct{}

// Unlocked returns why a handler runs without its lock, from its request's context or one made of it: the
// error of the acquisition, for logs. It is nil for a handler that has its lock, or needs none.
func Unlocked(ctx context.Context) error {
	err, _ := ctx.Value(unlockedKey{}).(error)
	return err
}

// isOutage reports whether nothing but an outage keeps the request from its lock.
func isOutage(r *http.Request, err error) bool {
	var vote *redlock.QuorumError
	return r.Context().Err() == nil && errors.As(err, &vote) && errors.Is(vote.Kind(), redlock.ErrNoQuorum) && !vote.Permanent()
}

// pass runs the handler without a lock.
func pass(w http.ResponseWriter, received *http.Request, next http.Handler, why error) {
	r := received.WithContext(context.WithValue(received.Context(), unlockedKey{}, why))
	defer func() { received.MultipartForm = r.MultipartForm }() // see hold
	next.ServeHTTP(w, r)
}
