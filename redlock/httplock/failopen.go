package httplock

import (
	"context"
	"errors"
	"net/http"

	"github.com/redquorum/redquorum/redlock"
)

// FailOpen lets a request run without its lock while too few nodes answer, instead of failing with
// 503. It is for work that is better done twice than not at all. Default: no request runs without
// its lock.
//
// During the outage requests may run at the same time, even at the same time as requests that got a
// lock before the outage. [Unlocked] reports this to the handler, which can then skip work that
// must not be done twice. A request is still refused if its lock is held, or if waiting cannot help
// (redlock.QuorumError.Permanent). In an outage each request takes as long as without FailOpen: the
// node timeout, or Wait.
func FailOpen() Option {
	return Option{func(m *middleware) error { m.failOpen = true; return nil }}
}

type unlockedKey struct{}

// Unlocked returns the reason a handler runs without its lock: the error of the acquisition, for
// logs. It returns nil for a handler that has its lock or needs none. ctx is the request's context,
// or derived from it.
func Unlocked(ctx context.Context) error {
	err, _ := ctx.Value(unlockedKey{}).(error)
	return err
}

// isOutage reports whether an outage is the only reason the request did not get its lock.
func isOutage(r *http.Request, err error) bool {
	var vote *redlock.QuorumError
	return r.Context().Err() == nil && errors.As(err, &vote) && errors.Is(vote.Kind(), redlock.ErrNoQuorum) && !vote.Permanent()
}
