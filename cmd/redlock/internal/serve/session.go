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
)

// A session is one client: what it holds, and for how long it is waited for. It lasts while a request of
// its client is under way, and for its TTL after the last.
type session struct {
	id     string
	client string // its label, which no other client has
	ttl    time.Duration
	owner  string // of its leases that have none of their own
	table  *table

	isLone bool // it was made for one lease, and ends with it

	mu       *sync.Mutex // the table's, which guards what follows
	requests int         // under way
	idle     *time.Timer // runs while there are none
	until    time.Time   // when it has run out
	ended    bool
	isLeft   bool // to another server, and nothing of it changes any more
	leases   map[string]*lease
	reserved int                 // leases whose ticks are being claimed
	attempts map[string]*attempt // by the client's key
	waits    map[*wish]time.Time // of the requests that wait for a lock: since when
	version  int64               // of what state tells, but for the times
	changed  chan struct{}       // closed when the version rises
	failed   error               // of the releases when it ended; complete when those have ended

	releases sync.WaitGroup
}

// A lease is one lock that a client has.
type lease struct {
	id      string
	session *session
	lock    *redlock.Lock // nil for one that did not outlive the server before
	wish    *wish
	granted grant
	taken   time.Time
	key     string    // the client's, of the attempt that got it
	lost    string    // why it is held no more; guarded by the table, as what follows
	told    time.Time // until when the client may work by what it was told
	value   string    // of a lock that the server has not adopted, and the next one may
}

// An attempt is a wish that a client gave a key, so that asking again takes no second lock.
type attempt struct {
	wish   *wish         // nil if it is over
	key    string        // empty: the client gave none
	done   chan struct{} // closed when it is known what has become of it
	lease  *lease        // nil: nothing, or it is over
	isOver bool          // its lease was released
}

// An over is an attempt whose lease was released. Its key is kept for a while, because a copy of its request
// can come later than the release: a proxy may send one. It would take a lock that no client knows of.
type over struct {
	of    *session
	key   string
	since time.Time
}

// keepKeys is how long the key of a released lease is kept at least, unless there are more than Limits.Total.
const keepKeys = time.Hour

// A table has the sessions and leases of a server. It is safe for concurrent use. One mutex is enough for
// all of them, because nothing waits under it.
type table struct {
	limits Limits

	mu       sync.Mutex // guards what follows, and what changes of the sessions and leases
	sessions map[string]*session
	leases   map[string]*lease
	reserved int            // leases whose ticks are being claimed
	over     []over         // oldest first
	isClosed bool           // nothing is taken in any more, but reserved leases
	end      time.Time      // of all sessions, if it is closed and that is known
	ends     sync.WaitGroup // releases of sessions that have ended

	isLeaving bool           // no more leases are reserved
	claims    sync.WaitGroup // requests with a reserved lease that have no answer yet
}

func newTable(limits Limits) *table {
	return &table{limits: limits, sessions: map[string]*session{}, leases: map[string]*lease{}}
}

// open makes a session of a client with an ID, which may be for one lease. It is for a request that is under way:
// the caller calls leave.
func (t *table) open(id, client string, wanted sessionWish, isLone bool) (*session, error) {
	s := &session{
		id: id, client: client, ttl: millis(wanted.TTL), owner: wanted.Owner, isLone: isLone, table: t, mu: &t.mu, requests: 1,
		leases: map[string]*lease{}, attempts: map[string]*attempt{}, waits: map[*wish]time.Time{}, changed: make(chan struct{}),
	}
	s.idle = time.AfterFunc(s.ttl, s.expire)
	s.idle.Stop()
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.isClosed:
		return nil, errEnding
	case len(t.sessions) >= t.limits.Sessions:
		return nil, tooMany("too many sessions on this server (--max-sessions): end one first")
	}
	t.sessions[s.id] = s
	return s, nil
}

// session returns the session of a client for a request that is under way: the caller calls leave. One of another
// client is not there.
func (t *table) session(id, client string) (*session, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sessions[id]
	if s == nil || s.client != client {
		return nil, errNoSession
	}
	return s, s.enter()
}

// lease returns a lease of a client for a request that is under way: the caller calls leave of its session.
func (t *table) lease(id, client string) (*lease, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.leases[id]
	if l == nil || l.session.client != client {
		return nil, errNoLease
	}
	return l, l.session.enter()
}

// close lets nothing in from now on, and tells clients so. The sessions that are there last until end, or for
// as long as they like if it is zero.
func (t *table) close(end time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.isClosed, t.end = true, end
	for _, s := range t.sessions {
		s.changes()
	}
}

// finishClaims reserves no more leases, and returns when each request with a reserved lease has its answer.
func (t *table) finishClaims() {
	t.mu.Lock()
	t.isLeaving = true
	t.mu.Unlock()
	t.claims.Wait()
}

// left returns for how long a session with a TTL lasts at least, if no other request comes. The table must be
// locked.
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

// held returns how many leases there are that are not lost.
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

// enter notes that a request has come, or returns why it cannot be served. The session must be locked.
func (s *session) enter() error {
	switch {
	case s.isLeft:
		return errEnding
	case s.ended:
		return errNoSession
	}
	s.requests++
	s.idle.Stop()
	return nil
}

// retire keeps the key of a lease that was released. The session must be locked.
func (s *session) retire(key string) {
	if s.attempts[key] == nil {
		return
	}
	*s.attempts[key] = attempt{key: key, done: s.attempts[key].done, isOver: true}
	t := s.table
	t.over = append(t.over, over{s, key, time.Now()})
	for len(t.over) > t.limits.Total || time.Since(t.over[0].since) > keepKeys {
		delete(t.over[0].of.attempts, t.over[0].key)
		t.over[0] = over{}
		t.over = t.over[1:]
	}
}

// leave notes that a request is over.
func (s *session) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.requests--; s.requests == 0 && !s.ended {
		s.until = time.Now().Add(s.ttl)
		s.idle.Reset(s.ttl)
	}
}

// expire ends the session if no request has come in the meantime, or has come and gone.
func (s *session) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.requests == 0 && !time.Now().Before(s.until) {
		s.endLocked()
	}
}

// end ends the session, which releases its leases, unless it was left to another server.
func (s *session) end() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked()
	if s.isLeft {
		return errEnding
	}
	return nil
}

// close ends the session with the server. Locks of which the client was told more than it had time to
// release them in are left to expire. It returns how many.
func (s *session) close() (left int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, l := range s.leases {
		if l.lost == "" && time.Now().Before(l.told) {
			left++
			l.lost = "the server has ended"
			delete(s.leases, id)
			delete(s.table.leases, id)
		}
	}
	s.endLocked()
	return left
}

// endLocked is end for callers that have locked the session. Locks are released in the background.
func (s *session) endLocked() {
	if s.ended || s.isLeft {
		return
	}
	s.ended = true
	s.idle.Stop()
	s.changes()
	delete(s.table.sessions, s.id)
	for id, l := range s.leases {
		delete(s.table.leases, id)
		l.lost = cmp.Or(l.lost, "its session has ended")
		s.releases.Add(1)
		s.table.ends.Go(func() { s.release(l) })
	}
	s.leases, s.attempts = nil, nil
}

// release releases a lease of a session that has ended. It expires if no quorum confirms.
func (s *session) release(l *lease) {
	defer s.releases.Done()
	err := l.release(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = errors.Join(s.failed, err)
}

// released waits until the leases of a session that has ended are released, as far as they can be.
func (s *session) released() error {
	s.releases.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// changes tells those who wait for a new version. The session must be locked.
func (s *session) changes() {
	s.version++
	close(s.changed)
	s.changed = make(chan struct{})
}

// try returns the attempt that has a client's key: one of an earlier request, or a new one, whose
// outcome the caller then tells by settle. It waits for one that is under way, for as long as w says, or for
// a vote.
func (s *session) try(ctx context.Context, key string, w *wish) (a *attempt, isNew bool, err error) {
	late := time.NewTimer(max(millis(w.Wait), time.Second))
	defer late.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.ended {
		if a = s.attempts[key]; a == nil {
			a = &attempt{wish: w, key: key, done: make(chan struct{})}
			s.attempts[key] = a
			return a, true, nil
		}
		if a.isOver {
			return nil, false, errOver
		}
		same := *w
		same.Wait = a.wish.Wait // who asks again waits for what is left
		if !reflect.DeepEqual(a.wish, &same) {
			return nil, false, errOtherWish
		}
		s.mu.Unlock()
		select {
		case <-a.done:
		case <-late.C:
			err = errUnderWay
		case <-ctx.Done():
			err = ctx.Err()
		}
		s.mu.Lock()
		switch {
		case err != nil:
			return nil, false, err
		case s.attempts[key] != a: // it came to nothing
		case a.isOver:
		case a.lease.lost != "":
			return nil, false, newProblem(http.StatusGone, kindLost, a.lease.lost)
		default:
			return a, false, nil
		}
	}
	return nil, false, errNoSession
}

// settle tells what has become of an attempt. One that came to nothing is forgotten.
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

// add gives the session a lock that was taken for it, by an attempt with a key if there is one. If that
// is too late, or too many, the caller still has the lock.
func (s *session) add(lock *redlock.Lock, g grant, of *attempt) (*lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.hasRoom(); err != nil {
		return nil, err
	}
	return s.addLocked(lock, g, of), nil
}

// addLocked is add for a session that is locked, and has room.
func (s *session) addLocked(lock *redlock.Lock, g grant, of *attempt) *lease {
	l := &lease{id: rand.Text(), session: s, wish: of.wish, granted: g, key: of.key, taken: time.Now()}
	s.put(l)
	l.hold(lock)
	return l
}

// A reservation is room for one lease, for a request that marks a tick first. A tick that is marked, and has
// no lease then, is run by nobody. So neither a full table nor the end of the server comes between the two.
type reservation struct {
	session *session
	isUsed  bool // it has become a lease, or is not needed; guarded by the table
}

// reserve returns a reservation. The caller calls done when the request has its answer.
func (s *session) reserve() (*reservation, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.table.isLeaving {
		return nil, errEnding
	}
	if err := s.hasRoom(); err != nil {
		return nil, err
	}
	s.reserved++
	s.table.reserved++
	s.table.claims.Add(1)
	return &reservation{session: s}, nil
}

// add is that of the session, which may have ended in the meantime.
func (r *reservation) add(lock *redlock.Lock, g grant, of *attempt) (*lease, error) {
	s := r.session
	s.mu.Lock()
	defer s.mu.Unlock()
	r.use()
	if s.ended {
		return nil, errNoSession
	}
	return s.addLocked(lock, g, of), nil
}

// use gives the room up. The session must be locked.
func (r *reservation) use() {
	if !r.isUsed {
		r.isUsed = true
		r.session.reserved--
		r.session.table.reserved--
	}
}

// done notes that the request has its answer. A nil reservation is of a request that marks no tick.
func (r *reservation) done() {
	if r == nil {
		return
	}
	r.session.mu.Lock()
	defer r.session.mu.Unlock()
	r.use()
	r.session.table.claims.Done()
}

// wait notes that a request waits for a lock, until it calls done.
func (s *session) wait(w *wish) (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits[w] = time.Now()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.waits, w)
	}
}

// hasRoom returns why the session cannot have one more lease, or nil. The session must be locked.
func (s *session) hasRoom() error {
	switch {
	case s.ended:
		return errNoSession
	case len(s.leases)+s.reserved >= s.table.limits.Leases:
		return tooMany("too many leases in this session (--max-leases): release one first")
	}
	return s.table.hasRoom()
}

// hasRoom returns why there cannot be one more lease, or nil. The table must be locked.
func (t *table) hasRoom() error {
	switch {
	case t.isClosed:
		return errEnding
	case len(t.leases)+t.reserved >= t.limits.Total:
		return tooMany("too many leases on this server: release some, or run another server")
	}
	return nil
}

// put takes in a lease, for which there is room. The session must be locked.
func (s *session) put(l *lease) {
	s.leases[l.id], s.table.leases[l.id] = l, l
	s.changes()
}

// hold has a lease have its lock. The session must be locked.
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

// end notes that the lock of a lease has ended. One that was not released is kept, for the client to see,
// until it is released or the session ends.
func (l *lease) end(why error) {
	s := l.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leases[l.id] == l && l.lost == "" {
		l.lost = inOurWords(why)
		s.changes()
	}
}

// remove takes a lease out of its session, which its caller then releases, or returns why it cannot: another
// request was first.
func (l *lease) remove() error {
	s := l.session
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.isLeft:
		return errEnding
	case s.leases[l.id] != l:
		return errNoLease
	}
	l.lost = cmp.Or(l.lost, "it was released")
	delete(s.leases, l.id)
	delete(s.table.leases, l.id)
	s.retire(l.key)
	s.changes()
	if s.isLone && len(s.leases) == 0 {
		s.endLocked()
	}
	return nil
}

// Limits bound what clients can have. Zero stands for the default.
type Limits struct {
	Sessions int // 10,000
	Leases   int // of one session, those that are lost included: 1,000
	Total    int // leases of all sessions, of 5 kB each: 100,000
}
