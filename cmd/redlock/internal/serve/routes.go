package serve

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/redquorum/redquorum/cmd/redlock/internal/rights"
)

// A handler answers a request, or returns why it does not.
type handler func(http.ResponseWriter, *request) error

// A request is one that is being answered.
type request struct {
	*http.Request
	since  time.Time      // when it came
	client *rights.Client // whose it is
	body   []byte
	wish   wish // of POST /v1/locks

	reserved *reservation // of a lease whose tick is marked first
}

// A route is what answers a request, and which right its client needs.
type route struct {
	answer handler
	isOpen bool                             // to anybody; otherwise to clients that are known
	do     rights.Right                     // what the client must be allowed to do
	with   func(*request) ([]string, error) // with these locks; nil: the answer is about what is its own
}

// await returns when something has changed, after a time, or when the client has left.
func (r *request) await(changed <-chan struct{}, limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-r.Context().Done():
	}
}

// routes returns what answers requests, by method and path. openapi.json describes each.
func (s *Server) routes() map[string]route {
	all := map[string]route{
		"POST /v1/sessions":             {answer: s.newSession},
		"GET /v1/session":               {answer: s.inSession(s.showSession)},
		"DELETE /v1/session":            {answer: s.inSession(s.endSession)},
		"POST /v1/locks":                {answer: s.acquire, do: rights.Lock, with: s.wished},
		"GET /v1/locks":                 {answer: s.inspect, do: rights.Look, with: inspected},
		"GET /v1/locks/{lease}":         {answer: s.withLease(s.showLease)},
		"POST /v1/locks/{lease}/extend": {answer: s.withLease(s.extend)},
		"DELETE /v1/locks/{lease}":      {answer: s.withLease(s.release)},
		"GET /leader":                   {answer: s.showLeader, do: rights.Lock, with: s.ofOffice},
		"DELETE /leader":                {answer: s.resign, do: rights.Lock, with: s.ofOffice},
		"GET /readyz":                   {answer: s.showReady},
		"GET /healthz":                  {answer: fixed("text/plain; charset=utf-8", []byte("ok\n"))},
		"GET /metrics":                  {answer: s.showMetrics},
		"GET /openapi.json":             {answer: fixed("application/json", openAPI)},
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

// newMux returns a handler for the routes, and for paths that are none.
func (s *Server) newMux() http.Handler {
	mux := http.NewServeMux()
	for pattern, of := range s.routes() {
		mux.HandleFunc(pattern, s.answerBy(of))
	}
	mux.HandleFunc("/", s.answerBy(route{answer: func(w http.ResponseWriter, r *request) error {
		if methods := methodsOf(mux, r.Request); methods != "" {
			w.Header().Set("Allow", methods)
			return newProblem(http.StatusMethodNotAllowed, kindBad, fmt.Sprintf("%s does not allow %s: use %s", r.URL.Path, r.Method, methods))
		}
		return newProblem(http.StatusNotFound, kindBad, fmt.Sprintf("%s %s does not exist: see GET /openapi.json", r.Method, r.URL.Path))
	}}))
	return mux
}

// answerBy answers requests by a route, or with the problem. If another server goes on with the sessions, the
// connection is cut instead, and the client asks again.
func (s *Server) answerBy(of route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := s.handle(w, r, of)
		if errors.Is(err, errEnding) && s.leaves.Load() {
			panic(http.ErrAbortHandler)
		}
		if err != nil {
			problemOf(err).write(w)
		}
	}
}

// handle has the route answer a request, unless its client is not known or has not the right. All requests come
// by here. The body is read behind the look at the token, so that strangers cost little.
func (s *Server) handle(w http.ResponseWriter, hr *http.Request, of route) (err error) {
	r := &request{Request: hr}
	if !of.isOpen {
		if r.client, err = s.clientOf(hr); err != nil {
			return err
		}
	}
	if r.body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody)); err != nil {
		return badBody(err)
	}
	if err := checkText(hr); err != nil {
		return err
	}
	if r.ContentLength != 0 {
		http.NewResponseController(w).SetReadDeadline(time.Time{})
	}
	r.since = time.Now()
	if err := s.awaitResumed(r); err != nil {
		return err
	}
	if of.with != nil {
		names, err := of.with(r)
		r.body = nil // a request can wait for an hour
		if err != nil {
			return err
		}
		if err := s.may(r, of.do, names); err != nil {
			return err
		}
	}
	return of.answer(w, r)
}

// awaitResumed returns an error for a request for locks if the sessions of the server before are not all there yet.
// One for a session waits for them, as it has to while no server listens: clients take an error for its end.
func (s *Server) awaitResumed(r *request) error {
	select {
	case <-s.resumed:
		return nil
	default:
	}
	switch {
	case !strings.HasPrefix(r.URL.Path, "/v1/"):
		return nil
	case r.Header.Get(sessionHeader) == "" && r.PathValue("lease") == "":
		return errResuming
	}
	select {
	case <-s.resumed:
		return nil
	case <-s.waiting.Done():
		return errEnding
	case <-r.Context().Done():
		return errLeft
	}
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
			return bad("the header %s is missing: send the session that POST /v1/sessions returned", sessionHeader)
		}
		of, err := s.table.session(id, r.client.Label)
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
		l, err := s.table.lease(r.PathValue("lease"), r.client.Label)
		if err != nil {
			return err
		}
		defer l.session.leave()
		return f(w, r, l)
	}
}
