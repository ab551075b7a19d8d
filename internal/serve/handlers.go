package serve

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"

	"github.com/redquorum/redquorum/redlock"
)

// New returns a Server for the locks of locker, which stays the caller's.
func New(locker *redlock.Locker, c Config) *Server {
	if c.Limits.Sessions == 0 {
		c.Limits.Sessions = 10_000
	}
	if c.Limits.Leases == 0 {
		c.Limits.Leases = 1_000
	}
	if c.Limits.Total == 0 {
		c.Limits.Total = 100_000
	}
	s := &Server{locker: locker, config: c, table: newTable(c.Limits)}
	s.waiting, s.end = context.WithCancel(context.Background())
	if c.Page != nil {
		c.Page.start(s.waiting, s.table)
	}
	s.office = newOffice(locker, &s.config)
	s.mux = s.newMux(s.routes())
	return s
}

// routes returns what answers requests, by method and path. openapi.json describes each.
func (s *Server) routes() map[string]handler {
	all := map[string]handler{
		"POST /v1/sessions":             s.newSession,
		"GET /v1/session":               s.inSession(s.showSession),
		"DELETE /v1/session":            s.inSession(s.endSession),
		"POST /v1/locks":                s.acquire,
		"GET /v1/locks":                 s.inspect,
		"GET /v1/locks/{lease}":         s.withLease(s.showLease),
		"POST /v1/locks/{lease}/extend": s.withLease(s.extend),
		"DELETE /v1/locks/{lease}":      s.withLease(s.release),
		"GET /leader":                   s.showLeader,
		"DELETE /leader":                s.resign,
		"GET /readyz":                   s.showReady,
		"GET /healthz":                  fixed("text/plain; charset=utf-8", []byte("ok\n")),
		"GET /openapi.json":             fixed("application/json", openAPI),
	}
	maps.Copy(all, s.pageRoutes())
	return all
}

// openAPI is the description of all this for programs, in OpenAPI 3.1.
//
//go:embed openapi.json
var openAPI []byte

// fixed returns a handler whose answer is always the same.
func fixed(kind string, body []byte) handler {
	return func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("Content-Type", kind)
		within(w, answerWithin)
		w.Write(body) // an error is the client's, who has left
		return nil
	}
}

// newMux returns a handler for the routes. What another server goes on with has no answer from this one:
// the connection is cut, and the client asks again.
func (s *Server) newMux(routes map[string]handler) http.Handler {
	mux := http.NewServeMux()
	for pattern, f := range routes {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			err := f(w, r)
			if errors.Is(err, errEnding) && s.leaves.Load() {
				panic(http.ErrAbortHandler)
			}
			if err != nil {
				problemOf(err).write(w)
			}
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if methods := methodsOf(mux, r); len(methods) > 0 {
			w.Header().Set("Allow", strings.Join(methods, ", "))
			newProblem(http.StatusMethodNotAllowed, kindBad, fmt.Sprintf("%s is for %s, not for %s", r.URL.Path, strings.Join(methods, ", "), r.Method)).write(w)
			return
		}
		newProblem(http.StatusNotFound, kindBad, fmt.Sprintf("there is no %s %s", r.Method, r.URL.Path)).write(w)
	})
	return mux
}

// methodsOf returns those that there is an answer for, at the path of a request. A ServeMux would say so itself
// if it had no handler for all other paths.
func methodsOf(mux *http.ServeMux, r *http.Request) (methods []string) {
	for _, m := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if _, pattern := mux.Handler(&http.Request{Method: m, URL: r.URL, Host: r.Host}); pattern != "/" {
			methods = append(methods, m)
		}
	}
	return methods
}
