package serve

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/redlock"

	"github.com/redquorum/redquorum/cmd/redlock/internal/serve/api"
)

// The limits of a session's TTL.
const (
	leastTTL = time.Second
	mostTTL  = time.Hour
)

// newSession answers POST /v1/sessions.
func (s *Server) newSession(w http.ResponseWriter, r *request) error {
	var wanted api.SessionRequest
	if err := api.Decode(r.Request, r.body, &wanted); err != nil {
		return err
	}
	wanted.TTL = cmp.Or(wanted.TTL, s.config.TTL.Milliseconds())
	of, err := s.openSession(r, wanted, false)
	if err != nil {
		return err
	}
	defer of.leave()
	a, err := of.state(r)
	if err != nil {
		return err
	}
	a.Session = of.id
	w.Header().Set("Location", "/v1/session")
	end := api.Begin(w, http.StatusCreated, a)
	if r.Context().Err() != nil { // the client has left, and does not know its id
		of.end()
		return nil
	}
	end()
	return nil
}

func (s *Server) openSession(r *request, wanted api.SessionRequest, singleLease bool) (*session, error) {
	if err := api.Between("ttl_ms", wanted.TTL, leastTTL, mostTTL); err != nil {
		return nil, err
	}
	if err := api.CheckOwner(wanted.Owner); err != nil {
		return nil, err
	}
	if err := s.locker.Check(redlock.Owner(wanted.Owner)); err != nil {
		return nil, api.Blame(err)
	}
	return s.table.open(rand.Text(), r.client, wanted, singleLease)
}

// state returns the state of the session. It returns an error if the session has ended or was
// handed over to another server, because the other server would not know about this answer.
func (s *session) state(r *request) (api.SessionAnswer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.handedOver:
		return api.SessionAnswer{}, api.ErrEnding
	case s.ended:
		return api.SessionAnswer{}, api.ErrNoSession
	}
	a := api.SessionAnswer{TTL: s.ttl.Milliseconds(), Version: s.version, Ending: s.table.isClosed, Leases: []api.LeaseAnswer{}}
	for _, l := range s.leases {
		a.Leases = append(a.Leases, l.answer(r))
	}
	slices.SortFunc(a.Leases, func(a, b api.LeaseAnswer) int { return strings.Compare(a.Lease, b.Lease) })
	return a, nil
}

// answer returns the state of a lease for its client. The caller must hold mu of the session.
func (l *lease) answer(r *request) api.LeaseAnswer {
	lost := l.lost
	if lost == "" && l.session.ended {
		lost = l.session.whyEnded()
	}
	a := api.LeaseAnswer{Grant: l.granted, Held: lost == "", Lost: lost}
	a.Lease = l.id
	if a.Held {
		a.ValidFor, a.AtRisk = r.validFor(l), l.lock.Remaining() <= l.risk
		if end := r.since.Add(api.Duration(a.ValidFor)); end.After(l.validUntil) {
			l.validUntil = end
		}
	}
	return a
}

// validFor returns the time for which the client may work under a lease, counted from the sending
// of its request.
func (r *request) validFor(l *lease) int64 {
	since := time.Since(r.since) // read first, because this process may be stopped between the two readings
	t := term{left: l.lock.Remaining(), ttl: api.Duration(l.granted.TTL), session: l.session.table.left(l.session.ttl)}
	return validFor(t, since).Milliseconds()
}

// locked is like answer, for a session that is not locked, and may have been handed over to another
// server.
func (l *lease) locked(r *request) (api.LeaseAnswer, error) {
	l.session.mu.Lock()
	defer l.session.mu.Unlock()
	if l.session.handedOver {
		return api.LeaseAnswer{}, api.ErrEnding
	}
	return l.answer(r), nil
}

// showSession answers GET /v1/session: at once, or when the state differs from the state that the
// client has seen, or as a stream.
func (s *Server) showSession(w http.ResponseWriter, r *request, of *session) error {
	if strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
		return s.stream(w, r, of)
	}
	seen, wait, err := api.LongPoll(r.Request)
	if err != nil {
		return err
	}
	if wait > 0 {
		of.await(r, seen, min(wait, of.pace()))
	}
	state, err := of.state(r)
	if err != nil {
		return err
	}
	return api.Write(w, http.StatusOK, state)
}

// await returns when the state differs from the state that the client has seen, or after a time.
func (s *session) await(r *request, seen int64, limit time.Duration) {
	s.mu.Lock()
	version, changed := s.version, s.changed
	s.mu.Unlock()
	if version == seen {
		r.await(changed, limit)
	}
}

// pace is the time after which a client gets new ends of its leases, because they have been renewed
// in that time: a third of the shortest TTL.
func (s *session) pace() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	least := s.ttl
	for _, l := range s.leases {
		if l.lost == "" {
			least = min(least, api.Duration(l.granted.TTL))
		}
	}
	return least / 3
}

// streamFor is the length of a stream. It is limited because the times in a stream count from its
// start, by two clocks, and because a stream keeps the session of a stopped client alive.
const streamFor = time.Minute

// mostSilence is the longest pause between two events. Proxies cut a connection that is silent for
// a minute.
const mostSilence = streamFor / 3

// stream answers with the session's state as server-sent events: now, at each change, and at the
// interval of pace.
func (s *Server) stream(w http.ResponseWriter, r *request, of *session) error {
	text := r.URL.Query().Get("bound")
	bound, err := strconv.ParseBool(cmp.Or(text, "false"))
	if err != nil {
		return api.Bad("bound=%s: must be true or false", text)
	}
	if bound && !isThisMachine(r) {
		return api.Bad("bound=true is for clients on the same machine: over a network, or through a proxy, use a session with a short ttl_ms")
	}
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would buffer kilobytes before it sends
	for time.Since(r.since) < streamFor {
		state, err := of.state(r)
		if errors.Is(err, api.ErrNoSession) {
			fmt.Fprint(w, "event: end\ndata: {}\n\n")
			return nil
		}
		if err != nil {
			return err
		}
		text, err := json.Marshal(state)
		if err != nil {
			return err
		}
		api.ReadWithin(w, of.ttl) // a client that does not read counts as gone
		_, err = fmt.Fprintf(w, "event: state\ndata: %s\n\n", text)
		if err = errors.Join(err, out.Flush()); err != nil || r.Context().Err() != nil {
			break
		}
		of.await(r, state.Version, min(of.pace(), mostSilence))
	}
	if bound && r.Context().Err() != nil {
		of.end()
	}
	return nil
}

// isThisMachine reports whether the request came from this machine. It returns false for a proxy,
// because the proxy's client may be on another machine.
func isThisMachine(r *request) bool {
	for _, header := range []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via"} {
		if r.Header.Get(header) != "" {
			return false
		}
	}
	switch at := r.Context().Value(http.LocalAddrContextKey).(type) {
	case *net.UnixAddr:
		return true
	case *net.TCPAddr:
		return at.IP.IsLoopback()
	}
	return false
}

// listSessions answers GET /v1/sessions, for an operator: the sessions of all clients, or of the
// client with a label.
func (s *Server) listSessions(w http.ResponseWriter, r *request) error {
	if err := s.mayOperate(r); err != nil {
		return err
	}
	from, err := api.Number(r.Request, "from", 0, "the number of sessions to skip")
	if err == nil && from < 0 {
		err = api.Bad("from=%d: must not be negative", from)
	}
	if err != nil {
		return err
	}
	label, isOne := r.URL.Query().Get("client"), r.URL.Query().Has("client")
	return api.Write(w, http.StatusOK, s.table.list(listing{
		from: int(min(from, math.MaxInt32)), leases: s.config.Limits.Leases, since: r.since,
		mayShow: func(of *session) bool { return !isOne || of.client == label },
	}))
}

// endSession answers DELETE /v1/session after the release of its leases, like DELETE for each of
// them.
func (s *Server) endSession(w http.ResponseWriter, _ *request, of *session) error {
	if err := of.end(); err != nil {
		return err
	}
	return writeReleased(w, of.awaitReleases())
}

// evict ends the session of any client for an operator. Its leases are released now, or when the
// last promise to the client has ended.
func (s *Server) evict(w http.ResponseWriter, r *request) error {
	if err := s.mayOperate(r); err != nil {
		return err
	}
	of, isNow, err := s.table.evict(r.Header.Get(api.SessionHeader), r.client.Label)
	if err != nil {
		return err
	}
	s.config.Log(fmt.Sprintf("%q ended session %s of %q", r.client.Label, api.PublicID(of.id), of.client))
	if !isNow {
		w.WriteHeader(http.StatusAccepted)
		return nil
	}
	return writeReleased(w, of.awaitReleases())
}

// writeReleased answers a release that returned err.
func writeReleased(w http.ResponseWriter, err error) error {
	switch {
	case errors.Is(err, redlock.ErrLost):
		return err
	case err != nil: // the release continues, and the lock expires if it fails
		w.WriteHeader(http.StatusAccepted)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
	return nil
}
