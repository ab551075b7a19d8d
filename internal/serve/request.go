package serve

import (
	"net/http"
	"strconv"
	"time"
)

// A handler answers a request, or returns why it does not.
type handler func(http.ResponseWriter, *http.Request) error

// A request is one that is being answered, with when it came.
type request struct {
	*http.Request
	since time.Time
}

// validFor returns for how long after it sent the request the client may work under a lease.
func (r *request) validFor(l *lease) int64 {
	since := time.Since(r.since) // first: this process may be stopped between the two
	t := term{left: l.lock.Remaining(), ttl: millis(l.granted.TTL), session: l.session.table.left(l.session.ttl)}
	return validFor(t, since).Milliseconds()
}

// inSession has a handler called with the session of the request, which does not end meanwhile unless
// it is ended.
func (s *Server) inSession(f func(http.ResponseWriter, *request, *session) error) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		now := time.Now()
		id := r.Header.Get(sessionHeader)
		if id == "" {
			return bad("the header %s is missing: the session of the client, which POST /v1/sessions returns", sessionHeader)
		}
		of, err := s.table.session(id)
		if err != nil {
			return err
		}
		defer of.leave()
		return f(w, &request{r, now}, of)
	}
}

// withLease is inSession for the lease of the path, which names the session, too.
func (s *Server) withLease(f func(http.ResponseWriter, *request, *lease) error) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		now := time.Now()
		l, err := s.table.lease(r.PathValue("lease"))
		if err != nil {
			return err
		}
		defer l.session.leave()
		return f(w, &request{r, now}, l)
	}
}

// longPoll returns what a request says of how long it waits.
func longPoll(r *request) (seen int64, wait time.Duration, err error) {
	q := r.URL.Query()
	if text := q.Get("seen"); text != "" {
		if seen, err = strconv.ParseInt(text, 10, 64); err != nil {
			return 0, 0, bad("seen=%s: the version is wanted that the last answer had", text)
		}
	} else if q.Has("wait_ms") {
		return 0, 0, bad("wait_ms goes with seen=VERSION, which the last answer had")
	}
	if text := q.Get("wait_ms"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, 0, bad("wait_ms=%s: a whole number of milliseconds is wanted", text)
		}
		if wait, err = duration("wait_ms", n, 0, maxWait); err != nil {
			return 0, 0, err
		}
	}
	return seen, wait, nil
}
