package serve

import (
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"
)

// A handler answers a request, or returns why it does not.
type handler func(http.ResponseWriter, *request) error

// A request is one that is being answered.
type request struct {
	*http.Request
	since time.Time // when it came
	by    *caller
}

// await returns when something has changed, after a time, or when the client sends no more.
func (r *request) await(changed <-chan struct{}, limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-r.by.sending.Done():
	}
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
	if s.config.Page != nil {
		maps.Copy(all, s.pageRoutes())
	}
	return all
}

// openAPI is the description of all this for programs, in OpenAPI 3.1.
//
//go:embed openapi.json
var openAPI []byte

// fixed returns a handler whose answer is always the same.
func fixed(kind string, body []byte) handler {
	return func(w http.ResponseWriter, _ *request) error {
		w.Header().Set("Content-Type", kind)
		within(w, answerWithin)
		w.Write(body) // an error is the client's, who has left
		return nil
	}
}

// newMux returns a handler for the routes. What another server goes on with has no answer from this one:
// the connection is cut, and the client asks again.
func (s *Server) newMux() http.Handler {
	mux := http.NewServeMux()
	for pattern, answer := range s.routes() {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			err := answer(w, &request{Request: r, since: time.Now(), by: callerOf(r)})
			if errors.Is(err, errEnding) && s.leaves.Load() {
				panic(http.ErrAbortHandler)
			}
			if err != nil {
				problemOf(err).write(w)
			}
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if methods := methodsOf(mux, r); methods != "" {
			w.Header().Set("Allow", methods)
			newProblem(http.StatusMethodNotAllowed, kindBad, fmt.Sprintf("%s is for %s, not for %s", r.URL.Path, methods, r.Method)).write(w)
			return
		}
		newProblem(http.StatusNotFound, kindBad, fmt.Sprintf("there is no %s %s", r.Method, r.URL.Path)).write(w)
	})
	return mux
}

// methodsOf returns those that there is an answer for, at the path of a request. A ServeMux would say so itself
// if it had no handler for all other paths.
func methodsOf(mux *http.ServeMux, r *http.Request) string {
	var methods []string
	for _, m := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if _, pattern := mux.Handler(&http.Request{Method: m, URL: r.URL, Host: r.Host}); pattern != "/" {
			methods = append(methods, m)
		}
	}
	return strings.Join(methods, ", ")
}

// inSession has a handler called with the session of the request, which does not end meanwhile unless
// it is ended.
func (s *Server) inSession(f func(http.ResponseWriter, *request, *session) error) handler {
	return func(w http.ResponseWriter, r *request) error {
		id := r.Header.Get(sessionHeader)
		if id == "" {
			return bad("the header %s is missing: the session of the client, which POST /v1/sessions returns", sessionHeader)
		}
		of, err := s.table.session(id)
		if err != nil {
			return err
		}
		defer of.leave()
		return f(w, r, of)
	}
}

// withLease is inSession for the lease of the path, which names the session, too.
func (s *Server) withLease(f func(http.ResponseWriter, *request, *lease) error) handler {
	return func(w http.ResponseWriter, r *request) error {
		l, err := s.table.lease(r.PathValue("lease"))
		if err != nil {
			return err
		}
		defer l.session.leave()
		return f(w, r, l)
	}
}
