package serve

import (
	"context"
	"errors"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/redquorum/redquorum/cmd/redlock/internal/rights"
	"github.com/redquorum/redquorum/once"
	"github.com/redquorum/redquorum/redlock"
)

// What answers requests for locks.

// wished reads the body of POST /v1/locks, and returns the names in it.
func (s *Server) wished(r *request) ([]string, error) {
	if err := decode(r, &r.wish); err != nil {
		return nil, err
	}
	err := r.wish.check(s.config.TTL)
	r.wish.risk = s.risk(&r.wish)
	return r.wish.names(), err
}

// acquire answers POST /v1/locks.
func (s *Server) acquire(w http.ResponseWriter, r *request) error {
	wanted := &r.wish
	of, err := s.sessionOf(r, wanted)
	if err != nil {
		return err
	}
	defer of.leave()
	isNew := r.Header.Get(sessionHeader) == ""
	answered := sync.OnceFunc(func() { r.reserved.done() })
	defer answered()
	l, err := s.lease(r, of, wanted)
	if err != nil {
		if isNew {
			of.end()
		}
		return err
	}
	a, err := l.locked(r)
	answered() // the client may be slow to read it
	if err != nil {
		return err
	}
	if isNew {
		a.Session = of.id
	}
	w.Header().Set("Location", "/v1/locks/"+l.id)
	write(w, http.StatusCreated, a)
	// A client that has left before the handler returned has not read the end of the answer. With a key it can ask again.
	if r.Header.Get("Idempotency-Key") == "" && r.Context().Err() != nil && l.remove() == nil {
		l.release(context.WithoutCancel(r.Context()))
	}
	return nil
}

// sessionOf returns the session of a request for a lock, or makes one, which ends with the lock.
// The caller calls leave.
func (s *Server) sessionOf(r *request, wanted *wish) (*session, error) {
	if id := r.Header.Get(sessionHeader); id != "" {
		of, err := s.table.session(id, r.client.Label)
		if err == nil && wanted.Owner == "" {
			wanted.Owner = of.owner
		}
		return of, err
	}
	ttl := min(max(wanted.TTL, leastTTL.Milliseconds()), mostTTL.Milliseconds())
	return s.openSession(r, sessionWish{TTL: ttl, Owner: wanted.Owner}, true)
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
		return nil, bad("the header Idempotency-Key needs the header %s: make a session first", sessionHeader)
	}
	a, isNew, err := of.try(r.Context(), key, wanted)
	if err != nil {
		return nil, err
	}
	if !isNew {
		return a.lease, nil
	}
	l, err := s.take(r, of, a)
	of.settle(a, l)
	return l, err
}

// take acquires a lock for the session.
func (s *Server) take(r *request, of *session, a *attempt) (*lease, error) {
	if s.isEnding() {
		return nil, errEnding
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.waiting, cancel)()
	lock, err := s.ask(ctx, of, a)
	var vote *redlock.QuorumError
	switch {
	case err != nil && s.isEnding():
		return nil, errEnding
	case err != nil && r.Context().Err() != nil:
		return nil, errLeft
	case errors.As(err, &vote), errors.Is(err, redlock.ErrClosed), errors.Is(err, context.DeadlineExceeded):
		return nil, err
	case err != nil:
		return nil, blame(err)
	}
	l, err := s.keep(r, of, a, lock)
	if err != nil {
		lock.Release(context.WithoutCancel(ctx))
		return nil, err
	}
	s.granted(r.client.Label)
	return l, nil
}

// keep makes a lease of a lock that was granted, or returns why the client cannot have it any more.
func (s *Server) keep(r *request, of *session, a *attempt, lock *redlock.Lock) (*lease, error) {
	wanted, ticks := a.wish, a.wish.ticks()
	if r.Context().Err() != nil {
		// It has left as the lock was granted, would not know that it has it, and would not run the tick.
		return nil, errLeft
	}
	if wanted.Wait > 0 { // the right may have been taken away meanwhile
		if err := s.mayStill(r, rights.Lock, wanted.names()); err != nil {
			return nil, err
		}
	}
	if ticks == nil {
		return of.add(lock, wanted.grant(lock, r.since), a)
	}
	var err error
	if r.reserved, err = of.reserve(); err != nil {
		return nil, err
	}
	// The tick is that of the request's arrival: what ran while it waited was the run of that tick. Not
	// under the client's context: a tick that is marked without its lease is never run.
	first, err := ticks.Claim(context.WithoutCancel(r.Context()), lock, r.since)
	switch {
	case err == nil && !first && wanted.Apart != 0:
		err = errSoon
	case err == nil && !first:
		err = errDone
	case err == nil && a.key == "": // with a key the client can still ask again
		err = r.Context().Err()
	}
	if err != nil {
		return nil, err
	}
	return r.reserved.add(lock, wanted.grant(lock, r.since), a)
}

// ask asks for the lock, once or for as long as the client waits.
func (s *Server) ask(ctx context.Context, of *session, a *attempt) (*redlock.Lock, error) {
	wanted := a.wish
	if wanted.Wait > 0 {
		defer of.wait(wanted)()
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, millis(wanted.Wait))
		defer cancel()
	}
	opts := append(wanted.options(), of.warning(wanted.risk))
	if len(wanted.Names) > 0 {
		return s.locker.AcquireAll(ctx, wanted.Names, opts...)
	}
	ask := func() (*redlock.Lock, error) { return s.locker.Acquire(ctx, wanted.Name, opts...) }
	if wanted.ticks() != nil && wanted.Wait == 0 {
		return once.Acquire(ctx, s.locker, []string{wanted.Name}, ask)
	}
	return ask()
}

// risk returns how much is left of a lock of which its client is to be warned: half of its TTL, or less if a lock
// that is well can have so little. Zero: it cannot be warned.
func (s *Server) risk(of *wish) time.Duration {
	ttl := millis(of.TTL)
	return min(ttl/2, s.locker.MostWarning(redlock.TTL(ttl)))
}

// warning is the option that tells a session's client that a lock of it is at risk.
func (s *session) warning(risk time.Duration) redlock.Option {
	return redlock.WarnBefore(risk, func(*redlock.Lock) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.ended && !s.isLeft {
			s.changes()
		}
	})
}

// showLease answers GET /v1/locks/{lease}.
func (s *Server) showLease(w http.ResponseWriter, r *request, l *lease) error {
	a, err := l.locked(r)
	if err != nil {
		return err
	}
	return write(w, http.StatusOK, a)
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

// inspected returns the name in GET /v1/locks?name=NAME.
func inspected(r *request) ([]string, error) {
	names, err := surveyed(r)
	if names == nil {
		err = bad("name=NAME is missing: specify the lock")
	}
	return names, err
}

// inspect answers GET /v1/locks?name=NAME.
func (s *Server) inspect(w http.ResponseWriter, r *request) error {
	name := r.URL.Query().Get("name")
	permits, err := r.number("permits", 1, "the number of its permits")
	if err != nil {
		return err
	}
	found, err := s.locker.InspectPermits(r.Context(), name, int(min(permits, math.MaxInt32)))
	var vote *redlock.QuorumError
	if err != nil && !errors.As(err, &vote) && !errors.Is(err, redlock.ErrClosed) {
		return blame(err)
	} else if err != nil {
		return err
	}
	return write(w, http.StatusOK, inspectionOf(name, found))
}

// inspectionOf returns who holds a lock, of which each permit was looked at.
func inspectionOf(name string, permits []*redlock.Inspection) inspection {
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
