package serve

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/redquorum/redquorum/cmd/redlock/internal/rights"
	"github.com/redquorum/redquorum/cmd/redlock/internal/serve/api"
	"github.com/redquorum/redquorum/internal/slots"
	"github.com/redquorum/redquorum/redlock"
)

// lockNames reads the body of POST /v1/locks, and returns the names in it.
func (s *Server) lockNames(r *request) ([]string, error) {
	if err := api.Decode(r.Request, r.body, &r.lockRequest); err != nil {
		return nil, err
	}
	err := r.lockRequest.Check(s.config.TTL)
	return r.lockRequest.AllNames(), err
}

// acquire answers POST /v1/locks.
func (s *Server) acquire(w http.ResponseWriter, r *request) error {
	wanted := &r.lockRequest
	of, err := s.sessionOf(r, wanted)
	if err != nil {
		return err
	}
	defer of.leave()
	isNew := r.Header.Get(api.SessionHeader) == ""
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
	answered() // the client may read the answer slowly
	if err != nil {
		return err
	}
	if isNew {
		a.Session = of.id
	}
	w.Header().Set("Location", "/v1/locks/"+l.id)
	end := api.Begin(w, http.StatusCreated, a)
	// A client that has left has not read the end of the answer. With a key it can repeat the request.
	if r.Header.Get("Idempotency-Key") == "" && r.Context().Err() != nil && l.remove() == nil {
		l.release(context.WithoutCancel(r.Context()))
		return nil
	}
	end()
	return nil
}

// sessionOf returns the session of a request for a lock, or creates one that ends with the lock.
// The caller must call leave.
func (s *Server) sessionOf(r *request, wanted *api.LockRequest) (*session, error) {
	if id := r.Header.Get(api.SessionHeader); id != "" {
		of, err := s.table.session(id, r.client.Label)
		if err == nil && wanted.Owner == "" {
			wanted.Owner = of.owner
		}
		return of, err
	}
	ttl := min(max(wanted.TTL, leastTTL.Milliseconds()), mostTTL.Milliseconds())
	return s.openSession(r, api.SessionRequest{TTL: ttl, Owner: wanted.Owner}, true)
}

// lease returns a new lease, or the lease of an earlier request with the same key.
func (s *Server) lease(r *request, of *session, wanted *api.LockRequest) (*lease, error) {
	key := r.Header.Get("Idempotency-Key")
	if key == "" {
		return s.take(r, of, &attempt{lockRequest: wanted})
	}
	if len(key) > api.MaxKey {
		return nil, api.Bad("the header Idempotency-Key has %d bytes, at most %d are allowed", len(key), api.MaxKey)
	}
	if !utf8.ValidString(key) { // --state could not keep it
		return nil, api.Bad("the header Idempotency-Key must be text in UTF-8")
	}
	if r.Header.Get(api.SessionHeader) == "" {
		return nil, api.Bad("the header Idempotency-Key needs the header %s: make a session first", api.SessionHeader)
	}
	a, l, err := of.try(r.Context(), key, wanted)
	if err != nil || l != nil {
		return l, err
	}
	l, err = s.take(r, of, a)
	of.settle(a, l)
	return l, err
}

// take acquires a lock for the session.
func (s *Server) take(r *request, of *session, a *attempt) (*lease, error) {
	if s.isEnding() {
		return nil, api.ErrEnding
	}
	done, err := of.wait(a.lockRequest, r.client)
	if err != nil {
		return nil, err
	}
	defer done()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.waiting, cancel)()
	defer context.AfterFunc(of.waiting, cancel)()
	lock, err := s.ask(ctx, of, a)
	var vote *redlock.QuorumError
	switch {
	case err != nil && s.isEnding():
		return nil, api.ErrEnding
	case err != nil && of.waiting.Err() != nil:
		return nil, api.ErrNoSession
	case err != nil && r.Context().Err() != nil:
		return nil, api.ErrLeft
	case errors.As(err, &vote), errors.Is(err, redlock.ErrClosed), errors.Is(err, context.DeadlineExceeded):
		return nil, err
	case err != nil:
		return nil, api.Blame(err)
	}
	l, err := s.keep(r, of, a, lock) // keep checks again that there is room
	if err != nil {
		lock.Release(context.WithoutCancel(ctx))
		return nil, err
	}
	s.granted(r.client.Label)
	return l, nil
}

// keep creates a lease for a granted lock, or returns the reason the client can no longer have it.
func (s *Server) keep(r *request, of *session, a *attempt, lock *redlock.Lock) (*lease, error) {
	wanted, ticks := a.lockRequest, a.lockRequest.Ticks()
	if r.Context().Err() != nil {
		// The client left during the grant. It would not know about the lock, and would not run the
		// tick.
		return nil, api.ErrLeft
	}
	if wanted.Wait > 0 { // the right may have been revoked in the meantime
		if err := s.mayStill(r, rights.Lock, wanted.AllNames()); err != nil {
			return nil, err
		}
		if r.client.Label != of.client { // its token has another label now
			return nil, api.ErrNoSession
		}
	}
	if ticks == nil {
		return of.add(lock, wanted.Grant(lock, r.since), a, r.client)
	}
	var err error
	if r.reserved, err = of.reserve(r.client); err != nil {
		return nil, err
	}
	// The tick counts from the request's arrival: a run during the wait was the run of that tick.
	// The claim does not use the client's context, because a tick that is marked without its lease
	// is never run.
	first, err := ticks.Claim(context.WithoutCancel(r.Context()), lock, r.since)
	switch {
	case err == nil && !first && wanted.Apart != 0:
		err = api.ErrSoon
	case err == nil && !first:
		err = api.ErrDone
	case err == nil && a.key == "": // with a key the client can repeat the request
		err = r.Context().Err()
	}
	if err != nil {
		return nil, err
	}
	return r.reserved.add(lock, wanted.Grant(lock, r.since), a)
}

// ask requests the lock, once or for as long as the client waits.
func (s *Server) ask(ctx context.Context, of *session, a *attempt) (*redlock.Lock, error) {
	wanted := a.lockRequest
	a.risk = s.risk(wanted)
	opts := append(wanted.Options(), of.warning(a.risk))
	if len(wanted.Names) > 0 {
		return s.locker.AcquireAll(ctx, wanted.Names, opts...)
	}
	ask := func() (*redlock.Lock, error) { return s.locker.Acquire(ctx, wanted.Name, opts...) }
	if wanted.Ticks() != nil && wanted.Wait == 0 {
		return slots.Acquire(ctx, s.locker, []string{wanted.Name}, ask)
	}
	return ask()
}

// risk returns the remaining time at which the client of a lock is warned: half of the TTL, or less
// if a healthy lock can have so little left. Zero means that no warning is possible.
func (s *Server) risk(of *api.LockRequest) time.Duration {
	ttl := api.Duration(of.TTL)
	return min(ttl/2, s.locker.MostWarning(redlock.TTL(ttl)))
}

// warning returns the option that reports a lock at risk to the client of a session.
func (s *session) warning(risk time.Duration) redlock.Option {
	return redlock.WarnBefore(risk, func(*redlock.Lock) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.ended && !s.handedOver {
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
	return api.Write(w, http.StatusOK, a)
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

// release answers DELETE /v1/locks/{lease}. It releases the lock even if the client has left.
func (s *Server) release(w http.ResponseWriter, r *request, l *lease) error {
	if err := l.remove(); err != nil {
		return err
	}
	return writeReleased(w, l.release(r.Context()))
}
