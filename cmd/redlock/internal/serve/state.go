package serve

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redquorum/redquorum/redlock"

	"github.com/redquorum/redquorum/cmd/redlock/internal/rights"
	"github.com/redquorum/redquorum/cmd/redlock/internal/serve/api"
)

// A State is the data that a Server leaves to its successor: sessions, and the values of their
// locks, which let the successor adopt the locks. It is secret, because anyone who has it can
// release the locks and act for the sessions.
type State struct {
	Version  int            `json:"version"`
	Left     time.Time      `json:"left,omitzero"` // time of Leave by the machine's clock
	Sessions []savedSession `json:"sessions"`
}

// stateVersion increases when a Server can no longer read the State of an older one.
const stateVersion = 1

type savedSession struct {
	ID      string       `json:"id"`
	Client  string       `json:"client,omitempty"`
	TTL     int64        `json:"ttl_ms"`
	Owner   string       `json:"owner"`
	IsLone  bool         `json:"lone,omitempty"`
	Version int64        `json:"version,omitempty"` // the next server counts up from it, because clients have seen the numbers up to it
	Leases  []savedLease `json:"leases"`
	Over    []string     `json:"released_keys,omitempty"` // oldest first
}

type savedLease struct {
	ID    string           `json:"id"`
	Key   string           `json:"idempotency_key,omitempty"`
	Wish  *api.LockRequest `json:"wish"`
	Grant api.Grant        `json:"grant"`
	Value string           `json:"value,omitempty"` // empty if the lock cannot be adopted
	Hold  int64            `json:"hold_ms,omitempty"`
	Told  int64            `json:"told_ms,omitempty"` // remaining time of the last promise to the client
	Lost  string           `json:"lost,omitempty"`
}

// Check returns an error if no Server can have left this State.
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

// notCarried is the reason for the loss of a lease with several values, which no successor can
// adopt. noRoom is the reason for the loss of a lease if a limit is lower than before.
const (
	notCarried = "the server was restarted, and a lock of several names or permits does not survive that"
	noRoom     = "the server was restarted, and its limits have no room for the lock"
)

// Leave ends a Server that another one replaces at once, in a new process. It grants no more locks,
// and returns its State. It releases nothing but the office, and the office only if no program can
// believe that it leads. Leave waits for ticks that are being marked, so that the State has their
// leases: a few node timeouts at most. The Locker must not be closed.
func (s *Server) Leave() State {
	s.leaves.Store(true)
	s.table.finishClaims()
	all := State{Version: stateVersion, Left: time.Now(), Sessions: []savedSession{}}
	s.table.mu.Lock()
	s.table.isClosed = true
	released := map[*session][]string{}
	for _, o := range s.table.over {
		released[o.of] = append(released[o.of], o.key)
	}
	for _, of := range s.table.sessions {
		if of.ended { // by an operator: its locks expire
			for _, l := range of.leases {
				if l.lost == "" {
					l.audit(AuditLeft)
				}
			}
			continue
		}
		of.handedOver = true
		all.Sessions = append(all.Sessions, of.saved(released[of]))
	}
	s.table.mu.Unlock()
	s.end() // ended after the sessions, because their clients must not see an end
	s.office.end()
	now, cancel := context.WithCancel(context.Background())
	cancel()
	s.office.wait(now)
	return all
}

// Stay reverses Leave if its State could not be written: no other server takes over the sessions.
// The caller calls Close, which tells the clients.
func (s *Server) Stay() {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	for _, of := range s.table.sessions {
		of.handedOver = false
		of.rest()
		for _, l := range of.leases {
			if l.lock != nil {
				l.hold(l.lock) // it may have ended in the meantime
			}
		}
	}
	s.leaves.Store(false)
}

// saved returns a session, which is locked, with the keys of its released leases.
func (s *session) saved(released []string) savedSession {
	to := savedSession{ID: s.id, Client: s.client, TTL: s.ttl.Milliseconds(), Owner: s.owner, IsLone: s.singleLease, Version: s.version, Leases: []savedLease{}, Over: released}
	for _, l := range s.leases {
		at := savedLease{ID: l.id, Key: l.key, Wish: l.lockRequest, Grant: l.granted, Lost: l.lost, Told: max(0, time.Until(l.validUntil).Milliseconds()+1)}
		switch {
		case l.value != "":
			at.Value, at.Lost = l.value, ""
		case l.lost != "":
		case len(l.granted.Names) > 1 || len(l.granted.Permits) > 1: // the next server reports the loss
		default:
			at.Value = l.lock.Value()
		}
		if l.lockRequest.MaxHold > 0 {
			at.Hold = max(1, l.lockRequest.MaxHold-time.Since(l.taken).Milliseconds())
		}
		to.Leases = append(to.Leases, at)
	}
	return to
}

// Resume adopts the State of another Server, for a Config with Resumes. It returns the number of
// leases, and the number of leases that were lost in the meantime. Sessions of clients that do not
// return end after their TTL. In an outage Resume tries for the TTL of each lock; later the lock has
// expired. When ctx ends, the other leases are left to the next Server: the caller must call Leave or
// Close, and until then no client gets its state.
func (s *Server) Resume(ctx context.Context, left State) (kept, lost int) {
	began := time.Now()
	gap := time.Duration(0) // time without a server
	if !left.Left.IsZero() {
		gap = max(0, began.Round(0).Sub(left.Left.Round(0)))
	}
	var adoptions sync.WaitGroup
	slots := make(chan struct{}, 64) // limit of concurrent adoptions
	for _, from := range left.Sessions {
		of, err := s.table.open(from.ID, &rights.Client{Label: from.Client}, api.SessionRequest{TTL: from.TTL, Owner: from.Owner}, from.IsLone)
		if err != nil { // the limit is lower than before; the locks expire
			s.table.lose(from)
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
		of.version = from.Version + 1 // a client that has seen the last version is answered at once
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

// lose records the losses of a session without room.
func (t *table) lose(from savedSession) {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := &session{id: from.ID, client: from.Client, used: t.usedBy(from.Client), table: t}
	for _, l := range from.Leases {
		if l.Lost == "" {
			(&lease{id: l.ID, session: of, granted: l.Grant, lost: noRoom}).hasLost()
		}
	}
}

// resumeLease adopts a lease, or records it as lost if its lock is lost. A lease without room is
// not adopted, so its lock expires.
func (s *Server) resumeLease(ctx context.Context, began time.Time, of *session, from savedLease) {
	now := time.Now()
	l := &lease{
		id: from.ID, session: of, key: from.Key, risk: s.risk(from.Wish), lockRequest: from.Wish, granted: from.Grant, lost: from.Lost,
		taken: now, validUntil: now.Add(api.Duration(from.Told)),
	}
	if from.Hold > 0 {
		l.taken = now.Add(-api.Duration(from.Wish.MaxHold - from.Hold))
	}
	of.mu.Lock()
	hasRoom := s.table.hasRoom() == nil
	if hasRoom {
		of.put(l)
	}
	if hasRoom && l.key != "" {
		done := make(chan struct{})
		close(done)
		of.attempts[l.key] = &attempt{lockRequest: l.lockRequest, key: l.key, done: done, lease: l}
	}
	if l.lost == "" && (!hasRoom || from.Value == "") {
		if l.lost = notCarried; !hasRoom {
			l.lost = noRoom
		}
		l.hasLost()
	}
	isLost := l.lost != ""
	of.mu.Unlock()
	if isLost {
		return
	}
	w := *l.lockRequest
	w.MaxHold = from.Hold
	opts := append(w.Options(), of.warning(l.risk))
	var lock *redlock.Lock
	err := redlock.ErrNoQuorum
	for errors.Is(err, redlock.ErrNoQuorum) && time.Since(began) < api.Duration(l.granted.TTL) && ctx.Err() == nil {
		lock, err = s.locker.Adopt(context.WithoutCancel(ctx), l.granted.Names[0], from.Value, opts...)
		if errors.Is(err, redlock.ErrNoQuorum) {
			pause(ctx)
		}
	}
	of.mu.Lock()
	defer of.mu.Unlock()
	if err == nil {
		l.hold(lock)
		return
	}
	l.lost = "the server was restarted: " + api.Text(err)
	if errors.Is(err, redlock.ErrNoQuorum) && ctx.Err() != nil {
		l.value = from.Value
		return
	}
	l.hasLost()
}

// pause waits a moment, or until ctx ends.
func pause(ctx context.Context) {
	select {
	case <-time.After(200 * time.Millisecond):
	case <-ctx.Done():
	}
}
