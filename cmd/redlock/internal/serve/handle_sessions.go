package serve

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// What answers requests for sessions.

// The times that a session's TTL may have.
const (
	leastTTL = time.Second
	mostTTL  = time.Hour
)

// newSession answers POST /v1/sessions.
func (s *Server) newSession(w http.ResponseWriter, r *request) error {
	var wanted sessionWish
	if err := decode(r, &wanted); err != nil {
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
	return write(w, http.StatusCreated, a)
}

func (s *Server) openSession(r *request, wanted sessionWish, isLone bool) (*session, error) {
	if err := between("ttl_ms", wanted.TTL, leastTTL, mostTTL); err != nil {
		return nil, err
	}
	if err := checkOwner(wanted.Owner); err != nil {
		return nil, err
	}
	if err := s.locker.Check(redlock.Owner(wanted.Owner)); err != nil {
		return nil, blame(err)
	}
	return s.table.open(rand.Text(), r.client.Label, wanted, isLone)
}

// state returns how the session is, unless it has ended, or was left to another server, which does not know
// what is told from then on.
func (s *session) state(r *request) (sessionAnswer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.isLeft:
		return sessionAnswer{}, errEnding
	case s.ended:
		return sessionAnswer{}, errNoSession
	}
	a := sessionAnswer{TTL: s.ttl.Milliseconds(), Version: s.version, Ending: s.table.isClosed, Leases: []leaseAnswer{}}
	for _, l := range s.leases {
		a.Leases = append(a.Leases, l.answer(r))
	}
	slices.SortFunc(a.Leases, func(a, b leaseAnswer) int { return strings.Compare(a.Lease, b.Lease) })
	return a, nil
}

// answer returns how a lease is, for the client to be told. Its session must be locked.
func (l *lease) answer(r *request) leaseAnswer {
	a := leaseAnswer{grant: l.granted, Held: l.lost == "", Lost: l.lost}
	a.Lease = l.id
	if a.Held {
		a.ValidFor, a.AtRisk = r.validFor(l), l.lock.Remaining() <= l.wish.risk
		if end := r.since.Add(millis(a.ValidFor)); end.After(l.told) {
			l.told = end
		}
	}
	return a
}

// locked is answer for a session that is not locked, and may have been left to another server.
func (l *lease) locked(r *request) (leaseAnswer, error) {
	l.session.mu.Lock()
	defer l.session.mu.Unlock()
	if l.session.isLeft {
		return leaseAnswer{}, errEnding
	}
	return l.answer(r), nil
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
		of.await(r, seen, min(wait, of.pace()))
	}
	state, err := of.state(r)
	if err != nil {
		return err
	}
	return write(w, http.StatusOK, state)
}

// await returns when the state is not the one that the client has seen, or after a time.
func (s *session) await(r *request, seen int64, limit time.Duration) {
	s.mu.Lock()
	version, changed := s.version, s.changed
	s.mu.Unlock()
	if version == seen {
		r.await(changed, limit)
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

// streamFor is for how long a stream lasts. What it tells counts from its beginning, by two clocks, and it
// keeps the session of a client that is stopped.
const streamFor = time.Minute

// mostSilence is the longest pause between two events. Proxies cut a connection that is silent for a minute.
const mostSilence = streamFor / 3

// stream answers with the session's state as server-sent events: now, at each change, and as often as
// pace says.
func (s *Server) stream(w http.ResponseWriter, r *request, of *session) error {
	text := r.URL.Query().Get("bound")
	bound, err := strconv.ParseBool(cmp.Or(text, "false"))
	if err != nil {
		return bad("bound=%s: must be true or false", text)
	}
	if bound && !isThisMachine(r) {
		return bad("bound=true is for clients on the same machine: over a network, or through a proxy, use a session with a short ttl_ms")
	}
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would keep it until it has some kilobytes
	for time.Since(r.since) < streamFor {
		state, err := of.state(r)
		if errors.Is(err, errNoSession) {
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
		within(w, of.ttl) // a client that reads nothing is not there
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

// isThisMachine reports whether the request came from this machine, and not through a proxy, whose client may be on
// another.
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

// endSession answers DELETE /v1/session, when its leases are released, as DELETE for each would.
func (s *Server) endSession(w http.ResponseWriter, _ *request, of *session) error {
	if err := of.end(); err != nil {
		return err
	}
	return writeReleased(w, of.released())
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
