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
	"github.com/redquorum/redquorum/cmd/redlock/internal/serve/api"
)

// routes returns the routes by method and path. openapi.json describes each.
func (s *Server) routes() map[string]route {
	all := map[string]route{
		"POST /v1/sessions":             {answer: s.newSession},
		"GET /v1/sessions":              {answer: s.listSessions},
		"GET /v1/session":               {answer: s.inSession(s.showSession)},
		"DELETE /v1/session":            {answer: s.evictOr(s.inSession(s.endSession))},
		"POST /v1/locks":                {answer: s.acquire, do: rights.Lock, with: s.lockNames},
		"GET /v1/locks":                 {answer: s.inspect, do: rights.Look, with: inspectedName},
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

// newMux returns a handler for the routes, and for all other paths.
func (s *Server) newMux() http.Handler {
	mux := http.NewServeMux()
	for pattern, of := range s.routes() {
		mux.HandleFunc(pattern, s.answerBy(of))
	}
	mux.HandleFunc("/", s.answerBy(route{answer: func(w http.ResponseWriter, r *request) error {
		if methods := methodsOf(mux, r.Request); methods != "" {
			w.Header().Set("Allow", methods)
			return api.NewProblem(http.StatusMethodNotAllowed, api.KindBad, fmt.Sprintf("%s does not allow %s: use %s", r.URL.Path, r.Method, methods))
		}
		return api.NewProblem(http.StatusNotFound, api.KindBad, fmt.Sprintf("%s %s does not exist: see GET /openapi.json", r.Method, r.URL.Path))
	}}))
	return mux
}

// answerBy answers requests by a route, or with the problem. If the sessions are handed over to
// another server, answerBy cuts the connection instead, and the client asks again.
func (s *Server) answerBy(of route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		asked := &request{Request: r}
		err := s.handle(w, asked, of)
		if errors.Is(err, api.ErrEnding) && s.leaves.Load() {
			panic(http.ErrAbortHandler)
		}
		if err != nil {
			p := api.ProblemOf(err)
			s.refused(asked, p)
			s.auditRefusal(asked, p)
			p.Write(w)
		}
	}
}

// handle answers a request by its route, unless the client is unknown or lacks the right. All
// requests pass through it. It checks the token before it reads the body, so that strangers cost
// little.
func (s *Server) handle(w http.ResponseWriter, r *request, of route) (err error) {
	if !of.isOpen {
		if r.client, err = s.clientOf(r.Request); err != nil {
			return err
		}
	}
	if r.body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, api.MaxBody)); err != nil {
		return api.BadBody(err)
	}
	if err := api.CheckText(r.Request); err != nil {
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
		r.names, err = of.with(r)
		r.body = nil // a request can wait for an hour
		if err != nil {
			return err
		}
		if err := s.may(r, of.do, r.names); err != nil {
			return err
		}
	}
	return of.answer(w, r)
}

// auditRefusal records the refusal of a request.
func (s *Server) auditRefusal(r *request, p *api.Problem) {
	if s.config.Audit == nil || !isRefusal(r, p) {
		return
	}
	s.config.Audit.Record(AuditEntry{
		Time: time.Now().UTC(), Event: AuditRefused, Client: r.client.Label, Names: r.names, Kind: r.lockRequest.Kind, Owner: r.lockRequest.Owner, Reason: p.Kind,
	})
}

// isRefusal reports whether a problem refuses a lock, a right or a share to a known client. A
// malformed request, for example, is not a refusal, because no lock was decided on.
func isRefusal(r *request, p *api.Problem) bool {
	switch {
	case r.client == nil:
		return false
	case p.Kind == api.KindForbidden, p.Kind == api.KindLimit:
		return true
	}
	return r.lockRequest.Kind != "" && p.Kind != api.KindBad
}

// awaitResumed returns an error for a request for locks if some sessions of the previous server are
// not present yet. A request for a session waits for these sessions, as if no server were
// listening, because clients would take an error for the end of the session.
func (s *Server) awaitResumed(r *request) error {
	select {
	case <-s.resumed:
		return nil
	default:
	}
	switch {
	case !strings.HasPrefix(r.URL.Path, "/v1/"):
		return nil
	case r.Header.Get(api.SessionHeader) == "" && r.PathValue("lease") == "":
		return api.ErrResuming
	}
	select {
	case <-s.resumed:
		return nil
	case <-s.waiting.Done():
		return api.ErrEnding
	case <-r.Context().Done():
		return api.ErrLeft
	}
}

// methodsOf returns the methods that the path of a request supports. A ServeMux would report them
// itself if it had no handler for all other paths.
func methodsOf(mux *http.ServeMux, r *http.Request) string {
	var methods []string
	for _, m := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if _, pattern := mux.Handler(&http.Request{Method: m, URL: r.URL, Host: r.Host}); pattern != "/" {
			methods = append(methods, m)
		}
	}
	return strings.Join(methods, ", ")
}

// inSession calls a handler with the session of the request, which does not expire in the meantime.
func (s *Server) inSession(f func(http.ResponseWriter, *request, *session) error) handler {
	return func(w http.ResponseWriter, r *request) error {
		id := r.Header.Get(api.SessionHeader)
		if id == "" {
			return api.Bad("the header %s is missing: send the session that POST /v1/sessions returned", api.SessionHeader)
		}
		of, err := s.table.session(id, r.client.Label)
		if err != nil {
			return err
		}
		defer of.leave()
		return f(w, r, of)
	}
}

// evictOr calls a handler, unless the request has the public ID of a session: then it is the request
// of an operator.
func (s *Server) evictOr(own handler) handler {
	return func(w http.ResponseWriter, r *request) error {
		if api.IsPublic(r.Header.Get(api.SessionHeader)) {
			return s.evict(w, r)
		}
		return own(w, r)
	}
}

// withLease is like inSession, for the lease in the path, which also names the session.
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
