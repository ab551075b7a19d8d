package httplock

import (
	"context"
	"errors"
	"net/http"

	"github.com/redquorum/redquorum/redlock"
)

// FailOpen lets a request run without its lock while too few nodes answer, instead of 503. It is
// for work that is better done twice than not at all. Default: no request runs without its lock.
//
// Then nothing keeps requests apart, not even from those that got a lock before the outage.
// [Unlocked] tells the handler, so it can leave out what must not be done twice. A request whose
// lock is held is refused as ever, and so is one that waiting cannot help
// (redlock.QuorumError.Permanent). In an outage each request still takes as long as without
// FailOpen: the node timeout, or Wait.
func FailOpen() Option {
	return Option{func(m *middleware) error { m.failOpen = true; return nil }}
}

type unlockedKey struct{}

// Unlocked returns why a handler runs without its lock: the error of the acquisition, for logs. It
// is nil for a handler that has its lock, or needs none. ctx is the request's context, or made of
// it.
func Unlocked(ctx context.Context) error {
	err, _ := ctx.Value(unlockedKey{}).(error)
	return err
}

// isOutage reports whether only an outage keeps the request from its lock.
func isOutage(r *http.Request, err error) bool {
	var vote *redlock.QuorumError
	return r.Context().Err() == nil && errors.As(err, &vote) && errors.Is(vote.Kind(), redlock.ErrNoQuorum) && !vote.Permanent()
}
