package serve

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// A State is what a Server leaves to the one that comes after it: sessions, and the values of their
// locks, by which that one adopts them. It is a secret, because who has it can release the locks and act
// for the sessions.
type State struct {
	Version  int            `json:"version"`
	Left     time.Time      `json:"left,omitzero"` // when, by the machine's clock
	Sessions []savedSession `json:"sessions"`
}

// stateVersion goes up when a Server can no longer read what the one before has left.
const stateVersion = 1

type savedSession struct {
	ID      string       `json:"id"`
	Client  string       `json:"client,omitempty"`
	TTL     int64        `json:"ttl_ms"`
	Owner   string       `json:"owner"`
	IsLone  bool         `json:"lone,omitempty"`
	Version int64        `json:"version,omitempty"` // the next server's rises from there: clients have seen those before
	Leases  []savedLease `json:"leases"`
	Over    []string     `json:"released_keys,omitempty"` // oldest first
}

type savedLease struct {
	ID    string `json:"id"`
	Key   string `json:"idempotency_key,omitempty"`
	Wish  *wish  `json:"wish"`
	Grant grant  `json:"grant"`
	Value string `json:"value,omitempty"` // empty: it cannot be adopted
	Hold  int64  `json:"hold_ms,omitempty"`
	Told  int64  `json:"told_ms,omitempty"` // for how much longer the client may work by what it was told
	Lost  string `json:"lost,omitempty"`
}

// Check returns why a State that was read is not one that a Server has left, or nil.
func (s State) Check() error {
	if s.Version != stateVersion {
		return fmt.Errorf("the state has version %d, and this redlock reads version %d", s.Version, stateVersion)
	}
	for _, of := range s.Sessions {
		for _, l := range of.Leases {
			if l.Wish == nil || len(l.Grant.Names) == 0 || l.ID == "" || of.ID == "" {
				return errors.New("the state has an incomplete lease")
			}
		}
	}
	return nil
}

// notCarried is why a lease is lost that the next server cannot adopt, because it has several values.
const notCarried = "the server was restarted, and a lock of several names or permits does not survive that"

// Leave is the end of a Server whose place another one takes at once, in a new process. It grants no more,
// and returns what it has. It releases nothing but the office, and that only if no program can believe that
// it leads. Leave waits for ticks that are being marked, so that the State has their leases: a few node
// timeouts at most. The Locker must not be closed.
func (s *Server) Leave() State {
	s.leaves.Store(true)
	s.table.finishClaims()
	all := State{Version: stateVersion, Left: time.Now(), Sessions: []savedSession{}}
	s.table.mu.Lock()
	s.table.isClosed = true
	for _, of := range s.table.sessions {
		of.isLeft = true
		all.Sessions = append(all.Sessions, of.saved())
	}
	s.table.mu.Unlock()
	s.end() // behind the sessions, whose clients must not be told that they end
	s.office.end()
	now, cancel := context.WithCancel(context.Background())
	cancel()
	s.office.wait(now)
	return all
}

// Stay takes Leave back, of which the State could not be written: no other server goes on with the sessions. The
// caller calls Close, which tells the clients.
func (s *Server) Stay() {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	for _, of := range s.table.sessions {
		of.isLeft = false
	}
	s.leaves.Store(false)
}

// saved returns a session, which is locked.
func (s *session) saved() savedSession {
	to := savedSession{ID: s.id, Client: s.client, TTL: s.ttl.Milliseconds(), Owner: s.owner, IsLone: s.isLone, Version: s.version, Leases: []savedLease{}}
	for _, l := range s.leases {
		at := savedLease{ID: l.id, Key: l.key, Wish: l.wish, Grant: l.granted, Lost: l.lost, Told: max(0, time.Until(l.told).Milliseconds()+1)}
		switch {
		case l.value != "":
			at.Value, at.Lost = l.value, ""
		case l.lost != "":
		case len(l.granted.Names) > 1 || len(l.granted.Permits) > 1:
			at.Lost = notCarried
		default:
			at.Value = l.lock.Value()
		}
		if l.wish.MaxHold > 0 {
			at.Hold = max(1, l.wish.MaxHold-time.Since(l.taken).Milliseconds())
		}
		to.Leases = append(to.Leases, at)
	}
	for _, o := range s.table.over {
		if o.of == s {
			to.Over = append(to.Over, o.key)
		}
	}
	return to
}

// Resume takes over what another Server has left, for a Config with Resumes. It returns how many leases it has,
// and how many were lost in the meantime, which their clients are told. The sessions of clients that do not come
// back end after their TTL. In an outage it tries for the TTL of each lock. When ctx ends, the rest is for the next
// Server: the caller calls Leave or Close, and until then no client is told what it has.
func (s *Server) Resume(ctx context.Context, left State) (kept, lost int) {
	began := time.Now()
	gap := time.Duration(0) // in which no server served
	if !left.Left.IsZero() {
		gap = max(0, began.Round(0).Sub(left.Left.Round(0)))
	}
	var adoptions sync.WaitGroup
	slots := make(chan struct{}, 64) // adoptions at a time
	for _, from := range left.Sessions {
		of, err := s.table.open(from.ID, from.Client, sessionWish{TTL: from.TTL, Owner: from.Owner}, from.IsLone)
		if err != nil { // there are fewer than before; the locks expire
			continue
		}
		defer of.leave()
		of.mu.Lock()
		for _, key := range from.Over {
			done := make(chan struct{})
			close(done)
			of.attempts[key] = &attempt{key: key, done: done}
			of.retire(key)
		}
		of.version = from.Version + 1 // who has seen the last one is answered at once
		of.mu.Unlock()
		for _, each := range from.Leases {
			if each.Hold > 0 {
				each.Hold = max(1, each.Hold-gap.Milliseconds())
			}
			slots <- struct{}{}
			adoptions.Go(func() {
				s.resumeLease(ctx, began, of, each)
				<-slots
			})
		}
	}
	adoptions.Wait()
	kept = s.table.held()
	for _, from := range left.Sessions {
		lost += len(from.Leases)
	}
	if s.config.Resumes && ctx.Err() == nil {
		close(s.resumed)
	}
	return kept, lost - kept
}

// resumeLease takes over a lease, as one that is lost if it is. One that there is no room for is not
// adopted, so that it expires.
func (s *Server) resumeLease(ctx context.Context, began time.Time, of *session, from savedLease) {
	from.Wish.risk = s.risk(from.Wish)
	now := time.Now()
	l := &lease{
		id: from.ID, session: of, key: from.Key, wish: from.Wish, granted: from.Grant, lost: from.Lost,
		taken: now, told: now.Add(millis(from.Told)),
	}
	if from.Hold > 0 {
		l.taken = now.Add(-millis(from.Wish.MaxHold - from.Hold))
	}
	of.mu.Lock()
	hasRoom := s.table.hasRoom() == nil
	if hasRoom {
		of.put(l)
	}
	if hasRoom && l.key != "" {
		done := make(chan struct{})
		close(done)
		of.attempts[l.key] = &attempt{wish: l.wish, key: l.key, done: done, lease: l}
	}
	of.mu.Unlock()
	if !hasRoom || l.lost != "" {
		return
	}
	w := *l.wish
	w.MaxHold = from.Hold
	opts := append(w.options(), of.warning(w.risk))
	adopt := func() (*redlock.Lock, error) {
		return s.locker.Adopt(context.WithoutCancel(ctx), l.granted.Names[0], from.Value, opts...)
	}
	lock, err := adopt()
	for errors.Is(err, redlock.ErrNoQuorum) && time.Since(began) < millis(l.granted.TTL) && pause(ctx) {
		lock, err = adopt()
	}
	of.mu.Lock()
	defer of.mu.Unlock()
	if err == nil {
		l.hold(lock)
		return
	}
	l.lost = "the server was restarted: " + err.Error()
	if errors.Is(err, redlock.ErrNoQuorum) && ctx.Err() != nil {
		l.value = from.Value
	}
}

// pause waits a moment, and reports whether ctx goes on.
func pause(ctx context.Context) bool {
	select {
	case <-time.After(200 * time.Millisecond):
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
