package serve

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/once"
	"github.com/redquorum/redquorum/redlock"
)

// sessionHeader names the session of a request.
const sessionHeader = "Redlock-Session"

// A handler answers a request, or returns why it does not.
type handler func(http.ResponseWriter, *http.Request) error

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

// newMux returns a handler for the routes.
func newMux(routes map[string]handler) http.Handler {
	mux := http.NewServeMux()
	for pattern, f := range routes {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := f(w, r); err != nil {
				problemOf(err).write(w)
			}
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		newProblem(http.StatusNotFound, kindBad, fmt.Sprintf("there is no %s %s", r.Method, r.URL.Path)).write(w)
	})
	return mux
}

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

// The times that a session's TTL may have.
const (
	leastTTL = time.Second
	mostTTL  = time.Hour
)

// newSession answers POST /v1/sessions.
func (s *Server) newSession(w http.ResponseWriter, r *http.Request) error {
	now := time.Now()
	wanted := sessionWish{TTL: s.config.TTL.Milliseconds()}
	if err := decode(r, &wanted); err != nil {
		return err
	}
	of, err := s.openSession(&wanted)
	if err != nil {
		return err
	}
	defer of.leave()
	a := of.state(&request{r, now}, false)
	a.Session = of.id
	w.Header().Set("Location", "/v1/session")
	write(w, http.StatusCreated, a)
	return nil
}

func (s *Server) openSession(wanted *sessionWish) (*session, error) {
	ttl, err := duration("ttl_ms", wanted.TTL, leastTTL, mostTTL)
	if err != nil {
		return nil, err
	}
	if err := s.locker.Check(redlock.Owner(wanted.Owner)); err != nil {
		return nil, blame(err)
	}
	return s.table.open(ttl, wanted.Owner)
}

// state returns how the session is.
func (s *session) state(r *request, isEnding bool) sessionAnswer {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := sessionAnswer{TTL: s.ttl.Milliseconds(), Version: s.version, Ending: isEnding, Leases: []leaseAnswer{}}
	for _, l := range s.leases {
		a.Leases = append(a.Leases, l.answer(r))
	}
	slices.SortFunc(a.Leases, func(a, b leaseAnswer) int { return strings.Compare(a.Lease, b.Lease) })
	return a
}

// answer returns how a lease is, for the client to be told. Its session must be locked.
func (l *lease) answer(r *request) leaseAnswer {
	a := leaseAnswer{grant: l.granted, Held: l.lost == "", Lost: l.lost}
	a.Lease = l.id
	if a.Held {
		a.ValidFor = r.validFor(l)
		if end := r.since.Add(millis(a.ValidFor)); end.After(l.told) {
			l.told = end
		}
	}
	return a
}

// locked is answer for a session that is not locked.
func (l *lease) locked(r *request) leaseAnswer {
	l.session.mu.Lock()
	defer l.session.mu.Unlock()
	return l.answer(r)
}

// showSession answers GET /v1/session: at once, or when the state is not the one that the client has
// seen, or as a stream.
func (s *Server) showSession(w http.ResponseWriter, r *request, of *session) error {
	if strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
		return s.stream(w, r, of)
	}
	seen, wait, err := longPoll(r)
	if err != nil {
		return err
	}
	if wait > 0 {
		s.await(r, of, seen, min(wait, of.pace()))
	}
	if of.isEnded() {
		return errNoSession
	}
	write(w, http.StatusOK, of.state(r, s.isEnding()))
	return nil
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

// await returns when the state is not the one that the client has seen, or after a time.
func (s *Server) await(r *request, of *session, seen int64, limit time.Duration) {
	of.mu.Lock()
	version, changed := of.version, of.changed
	of.mu.Unlock()
	if version != seen {
		return
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-r.Context().Done():
	}
}

// pace is for how long what a client was told of its leases is left as it is: their ends have moved by
// then. It is a third of the shortest TTL, as for the renewals.
func (s *session) pace() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	least := s.ttl
	for _, l := range s.leases {
		if l.lost == "" {
			least = min(least, millis(l.granted.TTL))
		}
	}
	return least / 3
}

func (s *session) isEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// streamFor is for how long a stream lasts. What it tells counts from its beginning, by two clocks.
const streamFor = 5 * time.Minute

// stream answers with the session's state as server-sent events: now, at each change, and as often as
// pace says.
func (s *Server) stream(w http.ResponseWriter, r *request, of *session) error {
	text := r.URL.Query().Get("bound")
	bound, err := strconv.ParseBool(cmp.Or(text, "false"))
	if err != nil {
		return bad("bound=%s: must be true or false", text)
	}
	if bound && !isThisMachine(r) {
		return bad("bound=true: a connection over a network can break while the client works on; use a short ttl_ms for the session")
	}
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	for time.Since(r.since) < streamFor {
		state := of.state(r, s.isEnding())
		if of.isEnded() {
			fmt.Fprint(w, "event: end\ndata: {}\n\n")
			return nil
		}
		text, err := json.Marshal(state)
		if err != nil {
			return err
		}
		within(w, of.ttl) // a client that reads nothing is not there
		_, err = fmt.Fprintf(w, "event: state\ndata: %s\n\n", text)
		if err = errors.Join(err, out.Flush()); err != nil || r.Context().Err() != nil {
			break
		}
		s.await(r, of, state.Version, of.pace())
	}
	if bound && r.Context().Err() != nil {
		of.end()
	}
	return nil
}

// isThisMachine reports whether the request came from this machine.
func isThisMachine(r *request) bool {
	switch at := r.Context().Value(http.LocalAddrContextKey).(type) {
	case *net.UnixAddr:
		return true
	case *net.TCPAddr:
		return at.IP.IsLoopback()
	}
	return false
}

// endSession answers DELETE /v1/session, when its leases are released, as DELETE for each would.
func (s *Server) endSession(w http.ResponseWriter, _ *request, of *session) error {
	of.end()
	return writeReleased(w, of.released())
}

// acquire answers POST /v1/locks.
func (s *Server) acquire(w http.ResponseWriter, hr *http.Request) error {
	r := &request{hr, time.Now()}
	var wanted wish
	if err := decode(hr, &wanted); err != nil {
		return err
	}
	if err := wanted.check(s.config.TTL); err != nil {
		return err
	}
	of, err := s.sessionOf(r, &wanted)
	if err != nil {
		return err
	}
	defer of.leave()
	l, err := s.lease(r, of, &wanted)
	if err != nil {
		if isNew := r.Header.Get(sessionHeader) == ""; isNew {
			of.end()
		}
		return err
	}
	a := l.locked(r)
	if r.Header.Get(sessionHeader) == "" {
		a.Session = of.id
	}
	w.Header().Set("Location", "/v1/locks/"+l.id)
	write(w, http.StatusCreated, a)
	return nil
}

// sessionOf returns the session of a request for a lock, or makes one, which ends with the lock.
// The caller calls leave.
func (s *Server) sessionOf(r *request, wanted *wish) (*session, error) {
	if id := r.Header.Get(sessionHeader); id != "" {
		of, err := s.table.session(id)
		if err == nil && wanted.Owner == "" {
			wanted.Owner = of.owner
		}
		return of, err
	}
	ttl := min(max(wanted.TTL, leastTTL.Milliseconds()), mostTTL.Milliseconds())
	of, err := s.openSession(&sessionWish{TTL: ttl, Owner: wanted.Owner})
	if err == nil {
		of.isLone = true // before others know of it
	}
	return of, err
}

// lease returns the lease that is wanted: a new one, or that which an earlier request with the same key
// has got.
func (s *Server) lease(r *request, of *session, wanted *wish) (*lease, error) {
	key := r.Header.Get("Idempotency-Key")
	if key == "" {
		return s.take(r, of, &attempt{wish: wanted})
	}
	if len(key) > maxKey {
		return nil, bad("the header Idempotency-Key has %d bytes, at most %d are allowed", len(key), maxKey)
	}
	if r.Header.Get(sessionHeader) == "" {
		return nil, bad("the header Idempotency-Key goes with %s: a client that asks again must be known", sessionHeader)
	}
	a, isNew, err := of.try(r.Context(), key, wanted)
	if err != nil || !isNew {
		return a.leaseOf(), err
	}
	l, err := s.take(r, of, a)
	of.settle(a, l)
	return l, err
}

func (a *attempt) leaseOf() *lease {
	if a == nil {
		return nil
	}
	return a.lease
}

// take acquires a lock for the session.
func (s *Server) take(r *request, of *session, a *attempt) (*lease, error) {
	wanted := a.wish
	if s.isEnding() {
		return nil, errEnding
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.waiting, cancel)()
	tick := wanted.tick()
	lock, err := s.ask(ctx, wanted)
	var vote *redlock.QuorumError
	switch {
	case err != nil && s.isEnding():
		return nil, errEnding
	case errors.As(err, &vote), errors.Is(err, redlock.ErrClosed), errors.Is(err, redlock.ErrMap), ctx.Err() != nil && err != nil:
		return nil, err
	case err != nil:
		return nil, blame(err)
	case r.Context().Err() != nil: // it has left as the lock was granted, and would not know that it has it
		lock.Release(context.WithoutCancel(ctx))
		return nil, r.Context().Err()
	}
	if wanted.Every != 0 {
		first, err := once.Claim(ctx, lock, tick, millis(wanted.Every))
		if err == nil && !first {
			err = errDone
		}
		if err != nil {
			lock.Release(context.WithoutCancel(ctx))
			return nil, err
		}
	}
	l, err := of.add(lock, wanted.grant(lock, tick), a)
	if err != nil {
		lock.Release(context.WithoutCancel(ctx))
	}
	return l, err
}

// ask asks for the lock, once or for as long as the client waits.
func (s *Server) ask(ctx context.Context, wanted *wish) (*redlock.Lock, error) {
	if wanted.Wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, millis(wanted.Wait))
		defer cancel()
	}
	if len(wanted.Names) > 0 {
		return s.locker.AcquireAll(ctx, wanted.Names, wanted.options()...)
	}
	return s.locker.Acquire(ctx, wanted.Name, wanted.options()...)
}

// showLease answers GET /v1/locks/{lease}.
func (s *Server) showLease(w http.ResponseWriter, r *request, l *lease) error {
	write(w, http.StatusOK, l.locked(r))
	return nil
}

// extend answers POST /v1/locks/{lease}/extend.
func (s *Server) extend(w http.ResponseWriter, r *request, l *lease) error {
	if l.lock != nil {
		if err := l.lock.Extend(r.Context()); err != nil {
			return err
		}
	}
	return s.showLease(w, r, l)
}

// release answers DELETE /v1/locks/{lease}. A client that has left is not waited for, and its lock
// released all the same.
func (s *Server) release(w http.ResponseWriter, r *request, l *lease) error {
	if err := l.remove(); err != nil {
		return err
	}
	return writeReleased(w, l.release(r.Context()))
}

// writeReleased answers for what a release has returned.
func writeReleased(w http.ResponseWriter, err error) error {
	switch {
	case errors.Is(err, redlock.ErrLost):
		return err
	case err != nil: // it goes on, and the lock expires if it comes to nothing
		w.WriteHeader(http.StatusAccepted)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
	return nil
}

// inspect answers GET /v1/locks?name=NAME.
func (s *Server) inspect(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	name := q.Get("name")
	if name == "" {
		return bad("name=NAME is missing: the lock that is asked about")
	}
	permits := 1
	if text := q.Get("permits"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return bad("permits=%s: how many may hold it at the same time is wanted", text)
		}
		permits = n
	}
	found, err := s.locker.InspectPermits(r.Context(), name, permits)
	var vote *redlock.QuorumError
	if err != nil && !errors.As(err, &vote) && !errors.Is(err, redlock.ErrClosed) {
		return blame(err)
	} else if err != nil {
		return err
	}
	write(w, http.StatusOK, inspected(name, found))
	return nil
}

// inspected returns who holds a lock, of which each permit was looked at.
func inspected(name string, permits []*redlock.Inspection) inspection {
	a := inspection{Name: name, Holders: []holder{}, Servers: len(permits[0].Nodes)}
	for _, n := range permits[0].Nodes {
		if n.Err == nil {
			a.Votes++
		}
	}
	for i, p := range permits {
		value, left, ok := p.Holder()
		if !ok {
			continue
		}
		by := redlock.HolderOf(value)
		h := holder{Owner: by.Owner, Left: max(-1, left.Milliseconds())}
		if !by.Since.IsZero() {
			h.Since = by.Since.Format(time.RFC3339)
		}
		if len(permits) > 1 {
			h.Permit = &i
		}
		a.Holders = append(a.Holders, h)
	}
	a.Held = len(a.Holders) > 0
	return a
}
