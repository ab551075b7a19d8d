package serve

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/redquorum/redquorum/redlock"

	"github.com/redquorum/redquorum/cmd/redlock/internal/rights"
	"github.com/redquorum/redquorum/cmd/redlock/internal/serve/api"
)

// A session is one client, with its leases and its time limit. It lasts while a request of its
// client is in progress, and for its TTL after the last request.
type session struct {
	id     string
	client string // label of the client, unique among clients
	used   *usage // of the label; mu guards its fields
	ttl    time.Duration
	owner  string // default owner label of its leases
	table  *table

	singleLease bool // created for one lease; ends with that lease

	waiting context.Context // context of requests that wait for a lock; canceled when ended is set
	cancel  context.CancelFunc

	mu         *sync.Mutex // mu of the table; guards the fields below
	requests   int         // under way
	idle       *time.Timer // calls expire; runs while requests is zero
	until      time.Time   // time at which idle expires
	ended      bool        // requests no longer find the session
	operator   string      // label of the operator that ended it
	released   bool        // its leases are being released, after ended
	handedOver bool        // handed over to another server; no longer changes here
	leases     map[string]*lease
	reserved   int                            // leases whose ticks are being claimed
	attempts   map[string]*attempt            // by Idempotency-Key
	waits      map[*api.LockRequest]time.Time // start of each wait for a lock
	version    int64                          // version of the state; times alone do not change it
	changed    chan struct{}                  // closed and replaced when version increases
	failed     error                          // errors of the final releases; complete when releases is done

	releases sync.WaitGroup
}

// A lease is one lock held by a client.
type lease struct {
	id          string
	session     *session
	lock        *redlock.Lock // nil if the lock did not survive a restart of the server
	lockRequest *api.LockRequest
	granted     api.Grant
	taken       time.Time
	key         string        // Idempotency-Key of the attempt that acquired it
	risk        time.Duration // copied from the attempt
	lost        string        // reason the lease ended; empty while it is held; table.mu guards this and the fields below
	validUntil  time.Time     // end of the last promise sent to the client
	value       string        // value of a lock that this server did not adopt but the next one may
	hasEnd      bool          // its end was recorded in the audit
}

// An attempt is one request for a lock. Its Idempotency-Key lets the client repeat the request
// without taking a second lock.
type attempt struct {
	lockRequest *api.LockRequest // nil after the release of its lease
	key         string           // Idempotency-Key; empty if the client sent none
	risk        time.Duration    // a lock with less remaining time is at risk
	done        chan struct{}    // closed when the outcome is known
	lease       *lease           // nil without a lease, or after its release
	isOver      bool             // its lease was released
}

// An over is an attempt whose lease was released. Its key is kept for a while, because a copy of
// its request can arrive after the release, for example from a proxy. The copy would take a lock
// that no client knows.
type over struct {
	of    *session
	key   string
	since time.Time
}

// keepKeys is the minimum time for which the key of a released lease is kept, unless there are more
// keys than Limits.Total.
const keepKeys = time.Hour

// A table holds the sessions and leases of a server. It is safe for concurrent use. One mutex is
// enough for all of them, because no goroutine waits under it.
type table struct {
	limits Limits
	audit  Audit // nil: none

	mu       sync.Mutex // guards the fields below, and the changing fields of sessions and leases
	sessions map[string]*session
	leases   map[string]*lease
	byName   map[string][]*lease // by the names of their locks
	used     map[string]*usage   // by the labels of clients
	reserved int                 // leases whose ticks are being claimed
	over     []over              // oldest first
	isClosed bool                // no more sessions and leases, except reserved ones
	end      time.Time           // end of all sessions if the table is closed; zero if unknown
	ends     sync.WaitGroup      // releases of sessions that have ended

	isLeaving bool           // no more leases are reserved
	claims    sync.WaitGroup // requests with a reserved lease that have no answer yet
}

func newTable(limits Limits, audit Audit) *table {
	return &table{limits: limits, audit: audit, sessions: map[string]*session{}, leases: map[string]*lease{}, byName: map[string][]*lease{}, used: map[string]*usage{}}
}

// A usage has the numbers of sessions, leases and waits of a label, which its share limits.
type usage struct {
	sessions int
	leases   int // including reserved ones
	waits    int
	lost     int64 // number of lost leases since the start
}

// usedBy returns the usage of a label. The caller must hold mu.
func (t *table) usedBy(label string) *usage {
	if t.used[label] == nil {
		t.used[label] = &usage{}
	}
	return t.used[label]
}

// exceeds returns an error if a client that uses a number of a share has no room for another one.
func exceeds(by *rights.Client, share string, used int) error {
	if text := by.Exceeds(share, used); text != "" {
		return api.TooMany(text)
	}
	return nil
}

// open creates a session for a client with an ID. With singleLease the session ends with its only
// lease. The caller serves a request, and must call leave at its end.
func (t *table) open(id string, by *rights.Client, wanted api.SessionRequest, singleLease bool) (*session, error) {
	s := &session{
		id: id, client: by.Label, ttl: api.Duration(wanted.TTL), owner: wanted.Owner, singleLease: singleLease, table: t, mu: &t.mu, requests: 1,
		leases: map[string]*lease{}, attempts: map[string]*attempt{}, waits: map[*api.LockRequest]time.Time{}, changed: make(chan struct{}),
	}
	s.waiting, s.cancel = context.WithCancel(context.Background())
	s.idle = time.AfterFunc(s.ttl, s.expire)
	s.idle.Stop()
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.isClosed:
		return nil, api.ErrEnding
	case len(t.sessions) >= t.limits.Sessions:
		return nil, api.TooMany("too many sessions on this server (--max-sessions): end one first")
	}
	s.used = t.usedBy(by.Label)
	if err := exceeds(by, rights.Sessions, s.used.sessions); err != nil {
		return nil, err
	}
	t.sessions[s.id] = s
	s.used.sessions++
	return s, nil
}

// session returns the session of a client for a request in progress. The caller must call leave at
// the end of the request. session does not return sessions of other clients.
func (t *table) session(id, client string) (*session, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sessions[id]
	if s == nil || s.client != client {
		return nil, api.ErrNoSession
	}
	return s, s.enter()
}

// lease returns a lease of a client for a request in progress. The caller must call leave of the
// session at the end of the request.
func (t *table) lease(id, client string) (*lease, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.leases[id]
	if l == nil || l.session.client != client || l.session.ended {
		return nil, api.ErrNoLease
	}
	return l, l.session.enter()
}

// close rejects new sessions and leases, and notifies clients. The present sessions last until end,
// or without a limit if end is zero.
func (t *table) close(end time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.isClosed, t.end = true, end
	for _, s := range t.sessions {
		s.changes()
	}
}

// finishClaims rejects further reservations, and returns when all requests with a reserved lease
// are answered.
func (t *table) finishClaims() {
	t.mu.Lock()
	t.isLeaving = true
	t.mu.Unlock()
	t.claims.Wait()
}

// left returns the minimum remaining time of a session with this TTL, if no other request arrives.
// The caller must hold mu.
func (t *table) left(ttl time.Duration) time.Duration {
	if t.end.IsZero() {
		return ttl
	}
	return min(ttl, time.Until(t.end))
}

// all returns the sessions.
func (t *table) all() []*session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.sessions))
}

// held returns the number of leases that are not lost.
func (t *table) held() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.leases {
		if l.lost == "" {
			n++
		}
	}
	return n
}

// enter counts a request, or returns the reason to reject it. The caller must hold mu.
func (s *session) enter() error {
	switch {
	case s.handedOver:
		return api.ErrEnding
	case s.ended:
		return api.ErrNoSession
	}
	s.requests++
	s.idle.Stop()
	return nil
}

// retire keeps the key of a released lease. The caller must hold mu.
func (s *session) retire(key string) {
	a := s.attempts[key]
	if a == nil {
		return
	}
	a.lockRequest, a.lease, a.isOver = nil, nil, true
	t := s.table
	t.over = append(t.over, over{s, key, time.Now()})
	for len(t.over) > t.limits.Total || time.Since(t.over[0].since) > keepKeys {
		delete(t.over[0].of.attempts, t.over[0].key)
		t.over[0] = over{}
		t.over = t.over[1:]
	}
}

// leave records the end of a request.
func (s *session) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests--
	s.rest()
}

// rest starts the time after which a session without a request ends. The caller must hold mu.
func (s *session) rest() {
	if s.requests == 0 && !s.ended {
		s.until = time.Now().Add(s.ttl)
		s.idle.Reset(s.ttl)
	}
}

// evict ends the session with a public ID for an operator. Its leases are released when the last
// promise to the client has ended, because the client may work until then. evict reports whether
// that is now.
func (t *table) evict(public, operator string) (of *session, isNow bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.sessions {
		if api.PublicID(s.id) == public {
			of = s
		}
	}
	switch {
	case of == nil || of.ended:
		return nil, false, api.ErrNoSession
	case of.handedOver:
		return nil, false, api.ErrEnding
	}
	of.ended, of.operator = true, operator
	of.cancel()
	of.changes()
	if wait := of.promised(); wait > 0 {
		of.until = time.Now().Add(wait)
		of.idle.Reset(wait)
		return of, false, nil
	}
	of.endLocked()
	return of, true, nil
}

// whyEnded returns the reason for the end of leases whose session has ended. The caller must hold mu.
func (s *session) whyEnded() string {
	if s.operator != "" {
		return fmt.Sprintf("the operator %q has ended its session", s.operator)
	}
	return "its session has ended"
}

// promised returns the time until the last promise to the client about a lease ends. The caller must
// hold mu.
func (s *session) promised() (left time.Duration) {
	for _, l := range s.leases {
		if l.lost == "" {
			left = max(left, time.Until(l.validUntil))
		}
	}
	return left
}

// expire ends the session, unless a request is in progress. A timer that was set again after it had
// expired ends nothing.
func (s *session) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if (s.ended || s.requests == 0) && !time.Now().Before(s.until) {
		s.endLocked()
	}
}

// end ends the session and releases its leases, unless it was handed over to another server.
func (s *session) end() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked()
	if s.handedOver {
		return api.ErrEnding
	}
	return nil
}

// close ends the session at the end of the server. Locks whose last promise to the client has not
// ended are left to expire. close returns their number.
func (s *session) close() (left int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.leases {
		if l.lost == "" && time.Now().Before(l.validUntil) {
			left++
			l.lost = "the server has ended"
			l.audit(AuditLeft)
			s.drop(l)
		}
	}
	s.endLocked()
	return left
}

// endLocked is like end, for callers that hold mu. Locks are released in the background.
func (s *session) endLocked() {
	if s.released || s.handedOver {
		return
	}
	s.ended, s.released = true, true
	s.cancel()
	s.idle.Stop()
	s.changes()
	delete(s.table.sessions, s.id)
	s.used.sessions--
	for _, l := range s.leases {
		s.drop(l)
		l.finish(s.whyEnded())
		s.releases.Add(1)
		s.table.ends.Go(func() { s.release(l) })
	}
	s.leases, s.attempts = nil, nil
}

// release releases a lease of an ended session. If no quorum confirms the release, the lock
// expires.
func (s *session) release(l *lease) {
	defer s.releases.Done()
	err := l.release(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = errors.Join(s.failed, err)
}

// awaitReleases waits until the releases of an ended session have succeeded or failed.
func (s *session) awaitReleases() error {
	s.releases.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// changes wakes the requests that wait for a new version. The caller must hold mu.
func (s *session) changes() {
	s.version++
	close(s.changed)
	s.changed = make(chan struct{})
}

// try returns the lease of an earlier request with a client's key, or a new attempt, whose outcome
// the caller must report with settle. If the earlier attempt is in progress, try waits for it: as
// long as w allows, or for a vote.
func (s *session) try(ctx context.Context, key string, w *api.LockRequest) (a *attempt, earlier *lease, err error) {
	late := time.NewTimer(max(api.Duration(w.Wait), time.Second))
	defer late.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.ended {
		if a = s.attempts[key]; a == nil {
			a = &attempt{lockRequest: w, key: key, done: make(chan struct{})}
			s.attempts[key] = a
			return a, nil, nil
		}
		if a.isOver {
			return nil, nil, api.ErrOver
		}
		same := *w
		same.Wait = a.lockRequest.Wait // a repeated request waits only for the remaining time
		if !reflect.DeepEqual(a.lockRequest, &same) {
			return nil, nil, api.ErrOtherRequest
		}
		s.mu.Unlock()
		select {
		case <-a.done:
		case <-late.C:
			err = api.ErrUnderWay
		case <-ctx.Done():
			err = ctx.Err()
		}
		s.mu.Lock()
		switch {
		case err != nil:
			return nil, nil, err
		case s.attempts[key] != a: // it failed
		case a.isOver:
		case a.lease.lost != "":
			return nil, nil, api.NewProblem(http.StatusGone, api.KindLost, a.lease.lost)
		default:
			return a, a.lease, nil
		}
	}
	return nil, nil, api.ErrNoSession
}

// settle records the outcome of an attempt, and forgets a failed attempt.
func (s *session) settle(a *attempt, l *lease) {
	s.mu.Lock()
	switch {
	case l == nil && s.attempts[a.key] == a:
		delete(s.attempts, a.key)
	case !a.isOver:
		a.lease = l
	}
	s.mu.Unlock()
	close(a.done)
}

// add creates a lease for a lock that was acquired for the session, by an attempt with a key if
// there was one. On error, because it is too late or there are too many leases, the caller still
// owns the lock.
func (s *session) add(lock *redlock.Lock, g api.Grant, of *attempt, by *rights.Client) (*lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.hasRoom(by); err != nil {
		return nil, err
	}
	return s.addLocked(lock, g, of), nil
}

// addLocked is like add, for a locked session with room.
func (s *session) addLocked(lock *redlock.Lock, g api.Grant, of *attempt) *lease {
	l := &lease{id: rand.Text(), session: s, lockRequest: of.lockRequest, granted: g, key: of.key, risk: of.risk, taken: time.Now()}
	s.put(l)
	l.audit(AuditGranted)
	l.hold(lock)
	return l
}

// A reservation keeps room for one lease while its request marks a tick. A marked tick without a
// lease would never be run. The reservation prevents the table from filling up, or the server from
// ending, between the mark and the lease.
type reservation struct {
	session *session
	isUsed  bool // used for a lease, or not needed; guarded by table.mu
}

// reserve returns a reservation. The caller must call done when the request is answered.
func (s *session) reserve(by *rights.Client) (*reservation, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.table.isLeaving {
		return nil, api.ErrEnding
	}
	if err := s.hasRoom(by); err != nil {
		return nil, err
	}
	s.reserved++
	s.table.reserved++
	s.used.leases++
	s.table.claims.Add(1)
	return &reservation{session: s}, nil
}

// add is like session.add. The session may have ended in the meantime.
func (r *reservation) add(lock *redlock.Lock, g api.Grant, of *attempt) (*lease, error) {
	s := r.session
	s.mu.Lock()
	defer s.mu.Unlock()
	r.use()
	if s.ended {
		return nil, api.ErrNoSession
	}
	return s.addLocked(lock, g, of), nil
}

// use ends the reservation of the room. The caller must hold mu.
func (r *reservation) use() {
	if !r.isUsed {
		r.isUsed = true
		r.session.reserved--
		r.session.used.leases--
		r.session.table.reserved--
	}
}

// done records that the request is answered. A nil reservation belongs to a request that marks no
// tick.
func (r *reservation) done() {
	if r == nil {
		return
	}
	r.session.mu.Lock()
	defer r.session.mu.Unlock()
	r.use()
	r.session.table.claims.Done()
}

// wait records that a request waits for a lock, until the caller calls done. It returns an error if
// the client's share has no room for the wait or for a lease, so that the request costs the Redis
// servers nothing.
func (s *session) wait(w *api.LockRequest, by *rights.Client) (done func(), err error) {
	s.mu.Lock()
	err = exceeds(by, rights.Leases, s.used.leases)
	s.mu.Unlock()
	if err != nil || w.Wait == 0 {
		return func() {}, err
	}
	counted, err := s.table.wait(by)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits[w] = time.Now()
	return func() {
		counted()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.waits, w)
	}, nil
}

// wait records that a request of a client waits for a lock or for its next holder, until the caller calls done. It
// returns an error if the client has too many waits.
func (t *table) wait(by *rights.Client) (done func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	used := t.usedBy(by.Label)
	if err := exceeds(by, rights.Waits, used.waits); err != nil {
		return nil, err
	}
	used.waits++
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		used.waits--
	}, nil
}

// hasRoom returns an error if the session cannot take another lease for its client. The caller must
// hold mu.
func (s *session) hasRoom(by *rights.Client) error {
	switch {
	case s.ended:
		return api.ErrNoSession
	case len(s.leases)+s.reserved >= s.table.limits.Leases:
		return api.TooMany("too many leases in this session (--max-leases): release one first")
	}
	return cmp.Or(exceeds(by, rights.Leases, s.used.leases), s.table.hasRoom())
}

// hasRoom returns an error if the table cannot take another lease. The caller must hold mu.
func (t *table) hasRoom() error {
	switch {
	case t.isClosed:
		return api.ErrEnding
	case len(t.leases)+t.reserved >= t.limits.Total:
		return api.TooMany("too many leases on this server: release some, or run another server")
	}
	return nil
}

// put adds a lease, for which there is room. The caller must hold mu.
func (s *session) put(l *lease) {
	s.leases[l.id], s.table.leases[l.id] = l, l
	for _, name := range l.granted.Names {
		s.table.byName[name] = append(s.table.byName[name], l)
	}
	s.used.leases++
	s.changes()
}

// drop removes a lease from the table. The caller must hold mu.
func (s *session) drop(l *lease) {
	delete(s.leases, l.id)
	delete(s.table.leases, l.id)
	for _, name := range l.granted.Names {
		of := s.table.byName
		if of[name] = slices.DeleteFunc(of[name], func(other *lease) bool { return other == l }); len(of[name]) == 0 {
			delete(of, name)
		}
	}
	s.used.leases--
}

// hold attaches a lock to its lease. The caller must hold mu.
func (l *lease) hold(lock *redlock.Lock) {
	l.lock = lock
	context.AfterFunc(lock.Context(), func() { l.end(context.Cause(lock.Context())) })
}

// release releases the lock of a lease.
func (l *lease) release(ctx context.Context) error {
	if l.lock == nil {
		return fmt.Errorf("%s: %w", l.lost, redlock.ErrLost)
	}
	return l.lock.Release(ctx)
}

// finish records the end of a released lease, with the reason unless its client released it. A lock
// whose validity has ended is lost: this process may have been stopped, and not yet noticed it. The
// caller must hold mu.
func (l *lease) finish(why string) {
	switch {
	case l.value != "": // no other server adopts it now, and it expires
		l.audit(AuditLeft)
	case l.lost != "":
	case l.lock != nil && l.lock.Remaining() <= 0: // nil while the lock is being taken over
		l.lost = api.Text(redlock.ErrLost)
		l.hasLost()
	default:
		l.lost = why
		l.audit(AuditReleased)
	}
}

// audit records an event of a lease, with the reason for the lease's end. A lease has only one end.
// The caller must hold mu of the session.
func (l *lease) audit(event string) {
	a, g := l.session.table.audit, &l.granted
	if a == nil || l.hasEnd {
		return
	}
	l.hasEnd = event != AuditGranted
	a.Record(AuditEntry{
		Time: time.Now().UTC(), Event: event, Client: l.session.client, Names: g.Names, Kind: g.Kind, Owner: g.Owner,
		Session: api.PublicID(l.session.id), Lease: api.PublicID(l.id), Fence: g.Fence, Fences: g.Fences, Reason: l.lost,
	})
}

// hasLost records and counts the loss of a lease. The caller must hold mu of the session.
func (l *lease) hasLost() {
	l.session.used.lost++
	l.audit(AuditLost)
}

// end records the end of the lease's lock. A lost lease stays visible to the client until its
// release or the end of the session. The next server records the end of a lock that was handed over.
func (l *lease) end(why error) {
	s := l.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leases[l.id] == l && l.lost == "" && !s.handedOver {
		l.lost = api.Text(why)
		l.hasLost()
		s.changes()
	}
}

// remove takes a lease out of its session; the caller then releases it. It returns an error if
// another request removed the lease first.
func (l *lease) remove() error {
	s := l.session
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.handedOver:
		return api.ErrEnding
	case s.leases[l.id] != l:
		return api.ErrNoLease
	}
	l.finish("")
	l.lost = cmp.Or(l.lost, "it was released")
	s.drop(l)
	s.retire(l.key)
	s.changes()
	if s.singleLease && len(s.leases) == 0 {
		s.endLocked()
	}
	return nil
}

// Limits bound the resources of clients. A zero field means its default.
type Limits struct {
	Sessions int // default 10,000
	Leases   int // per session, including lost leases; default 1,000
	Total    int // leases of all sessions, 5 kB each; default 100,000
}
