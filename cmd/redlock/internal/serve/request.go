package serve

import (
	"net/http"
	"time"

	"github.com/redquorum/redquorum/cmd/redlock/internal/rights"
	"github.com/redquorum/redquorum/cmd/redlock/internal/serve/api"
)

// A handler answers a request, or returns the reason it does not.
type handler func(http.ResponseWriter, *request) error

// A request is an HTTP request in progress.
type request struct {
	*http.Request
	since       time.Time      // time of arrival
	client      *rights.Client // its sender
	body        []byte
	lockRequest api.LockRequest // body of POST /v1/locks
	names       []string        // names for which the client needs the right

	reserved *reservation // reservation for a lease whose tick is marked first
}

// A route is a handler, with the right that its clients need.
type route struct {
	answer handler
	isOpen bool                             // open to any client; otherwise only to known clients
	do     rights.Right                     // right that the client needs
	with   func(*request) ([]string, error) // names for which it needs the right; nil if the answer is only about the client itself
}

// await returns when changed is closed, after a time, or when the client has left.
func (r *request) await(changed <-chan struct{}, limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-r.Context().Done():
	}
}

// fixed returns a handler whose answer is always the same.
func fixed(kind string, body []byte) handler {
	return func(w http.ResponseWriter, _ *request) error {
		w.Header().Set("Content-Type", kind)
		api.ReadWithin(w, api.AnswerWithin)
		w.Write(body) // a write fails only if the client has left
		return nil
	}
}
