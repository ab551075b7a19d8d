package redlock

import (
	"slices"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
)

// A queue lines up the callers of one process that wait for a lock, by claim.line. Only
// the first of a line competes with other processes, and only while as few as may hold the
// lock at once do so in its own.
type queue struct {
	mu    sync.Mutex
	lines map[string]*line
	spare []*line // emptied lines, to be used again
}

// A line is what this process knows of one key. All of it is guarded by the queue.
type line struct {
	key       string
	waiters   []*acquisition
	holders   []*session    // of this process, which have not ended; the line stays for them
	next      *session      // handed over to the first waiter, who has yet to take it
	news      bool          // for the first waiter: the key was released in this process
	turn      clock.Instant // see turnLength: when the present turn of this process began; zero: with the next lock
	standBack clock.Instant // until then the first waiter leaves the field to other processes
}

// maxSpare is how many emptied lines are kept: as many as callers are likely to
// acquire at the same moment.
const maxSpare = 256

// enter puts a at the end of its line.
func (q *queue) enter(a *acquisition) {
	q.mu.Lock()
	defer q.mu.Unlock()
	a.line = q.line(a.lineKey())
	a.line.waiters = append(a.line.waiters, a)
}

// line returns the key's line, a new one if there is none. The queue must be
// locked.
func (q *queue) line(key string) *line {
	if ln := q.lines[key]; ln != nil {
		return ln
	}
	if q.lines == nil {
		q.lines = map[string]*line{}
	}
	var ln *line
	if n := len(q.spare); n > 0 {
		ln, q.spare = q.spare[n-1], q.spare[:n-1]
	} else {
		ln = &line{}
	}
	ln.key = key
	q.lines[key] = ln
	return ln
}

// await returns when a is the first of its line and may compete (hasRoom): with the
// session that the holder has handed over, or with the moment until which a should not
// compete. A fair caller takes its place while the holder is there. await returns early
// when the caller's context or the Locker ends.
func (q *queue) await(a *acquisition) (next *session, standBack clock.Instant) {
	for ln := a.line; ; {
		q.mu.Lock()
		if ln.waiters[0] == a && (ln.hasRoom() || ln.next != nil || a.settings.fair) {
			next, standBack = ln.next, ln.standBack
			ln.next, ln.news, ln.standBack = nil, false, 0
			q.mu.Unlock()
			return next, standBack
		}
		q.mu.Unlock()
		a.sleep()
		if a.isOver() {
			return nil, 0
		}
	}
}

// leave takes a out of its line, wherever it stands. got is the session that it has won, or
// nil. A session that was handed over too late for a is returned, and must be released.
func (q *queue) leave(a *acquisition, got *session) (unwanted *session) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln := a.line
	i := slices.Index(ln.waiters, a)
	if i == 0 {
		unwanted, ln.next = ln.next, nil
	}
	ln.waiters = slices.Delete(ln.waiters, i, i+1)
	if got != nil {
		ln.enterHolder(got)
	}
	if i == 0 && len(ln.waiters) > 0 && (ln.hasRoom() || ln.waiters[0].settings.fair) {
		ln.waiters[0].parker.wake()
	}
	q.tidy(ln)
	return unwanted
}

// hold enters a session that was not waited for.
func (q *queue) hold(s *session) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, key := range s.lines() {
		ln := q.line(key)
		ln.enterHolder(s)
		q.tidy(ln)
	}
}

// enterHolder makes s a holder, unless it has ended by now: the waiters would not be told
// again. The queue must be locked.
func (ln *line) enterHolder(s *session) {
	if s.isHeld() && !slices.Contains(ln.holders, s) { // readers share one
		ln.holders = append(ln.holders, s)
	}
}

// removeHolder undoes enterHolder. It reports whether s was a holder. The queue must be locked.
func (ln *line) removeHolder(s *session) bool {
	n := len(ln.holders)
	ln.holders = slices.DeleteFunc(ln.holders, func(h *session) bool { return h == s })
	return len(ln.holders) < n
}

// hasRoom reports whether fewer callers of this process hold the lock than may at once. The
// queue must be locked, and have a waiter.
func (ln *line) hasRoom() bool { return len(ln.holders) == 0 || ln.waiters[0].settings.shared }

// ended is called when a session has ended and its release is on its way.
func (q *queue) ended(s *session, now clock.Instant) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, key := range s.lines() {
		ln := q.lines[key]
		if ln == nil {
			continue
		}
		ln.removeHolder(s)
		if len(ln.waiters) > 0 {
			ln.endTurn(s, now)
			ln.news = true
			ln.waiters[0].parker.wake()
		}
		q.tidy(ln)
	}
}

// hasNews reports, once, whether the key was released in this process or handed
// over to the first of the line.
func (q *queue) hasNews(ln *line) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	news := ln.news || ln.next != nil
	ln.news = false
	return news
}

// tidy puts a line aside that is not needed any more. The queue must be locked.
func (q *queue) tidy(ln *line) {
	if len(ln.waiters) > 0 || len(ln.holders) > 0 {
		return
	}
	delete(q.lines, ln.key)
	*ln = line{waiters: ln.waiters, holders: ln.holders}
	if len(q.spare) < maxSpare {
		q.spare = append(q.spare, ln)
	}
}

// Turns.

// turnLength is how long the callers of one process may have a lock one after the
// other while others of it wait. Then the process stands back once, for about as
// long as an acquisition takes, so that other processes get their chance: its own
// request would always come before theirs, right behind the release. The turn is
// longer where acquisitions take long, so that standing back costs a fifth at
// most.
func turnLength(cost time.Duration) time.Duration { return max(5*time.Millisecond, 5*cost) }

// turnOver reports whether the process has had the lock for long enough. The queue
// must be locked.
func (s *session) turnOver(now clock.Instant) bool { return now.Sub(s.turn) >= turnLength(s.cost) }

// endTurn lets the turn go on with the next lock, or the line stand back. The queue
// must be locked.
func (ln *line) endTurn(s *session, now clock.Instant) {
	ln.turn, ln.standBack = s.turn, 0
	if s.turnOver(now) {
		ln.turn, ln.standBack = 0, now.Add(s.cost+s.settings.jitter(s.cost/2+1))
	}
}

// joinTurn makes a session that was just won part of the turn of its process.
func (q *queue) joinTurn(ln *line, s *session) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if ln.turn > 0 {
		s.turn = ln.turn
	}
	ln.turn = 0
}

// loseTurn is called when another process has got the lock.
func (q *queue) loseTurn(ln *line) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln.turn = 0
}

// Handover.

// handOver ends the lock in favour of the first waiter of this process, if there is one
// that wants such a lock: the session goes on, and the waiter becomes its holder. The lock
// must be good for long enough, and have no fencing token, which must be new for each
// holder. This takes a microsecond, where the nodes would take a round trip.
//
// The holder's context ends before the next holder can have the lock: at no moment do
// two callers have a context that has not ended. It ends while neither the queue
// nor the session is locked, because that takes as long as there are contexts made
// from it, and the line keeps its holder meanwhile. If the waiter has gone by then,
// the session is released after all, and that round is returned.
func (k *Lock) handOver(now clock.Instant) (handed bool, r *round) {
	s := k.session
	votes, ok := k.stepDown(now)
	if !ok {
		return false, nil
	}
	k.cancel(ErrReleased)
	s.mu.Lock()
	s.leaving = nil
	s.mu.Unlock()
	if !s.locker.queue.pass(s) && s.finish(released, ErrReleased, now) {
		return false, s.giveBack(now)
	}
	s.locker.tell(Event{Kind: EventReleased, Context: k.ctx, Name: s.name, Votes: votes}, k.start, nil)
	return true, nil
}

// stepDown leaves the session without a holder, if it can be handed over. It returns the
// votes that the session has.
func (k *Lock) stepDown(now clock.Instant) (votes int, ok bool) {
	s := k.session
	q := &s.locker.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if ln := q.lines[s.line]; ln == nil || !slices.Contains(ln.holders, s) || !ln.canTake(s) {
		return 0, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if k.phase != held || s.kind == shared || s.end().Sub(now) < s.settings.ttl/2 || s.turnOver(now) {
		return 0, false
	}
	k.phase, k.cause, k.over = released, ErrReleased, now
	s.holder, s.leaving = nil, k
	return s.votes.Size(), true
}

// pass leaves s, which has no holder, to the first waiter. It reports false if there is
// none any more that wants it.
func (q *queue) pass(s *session) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln := q.lines[s.line]
	if ln == nil || !slices.Contains(ln.holders, s) || !ln.canTake(s) {
		return false
	}
	ln.removeHolder(s)
	ln.next = s
	ln.waiters[0].parker.wake()
	return true
}

// canTake reports whether the first waiter can become the holder of s. The queue must
// be locked.
func (ln *line) canTake(s *session) bool {
	if s.set != nil || len(ln.waiters) > 0 && ln.waiters[0].part {
		return false // a lock of several names is made of votes and extensions only
	}
	return ln.next == nil && len(ln.waiters) > 0 && ln.waiters[0].settings.canTake(s.settings)
}

// canTake reports whether a caller with settings s would have got the same session as one
// with settings of. One that does not renew would not: it counts on a full TTL, and only
// part of that is left.
func (s *settings) canTake(of *settings) bool {
	if s.owner != of.owner {
		return false // the label would be another's
	}
	return s.renew && !s.shared && !of.shared && !s.fenced && !of.fenced && !s.fair && !of.fair && s.ttl == of.ttl && s.timeout() == of.timeout()
}

// take makes a the holder of a session that was handed over, or returns nil if that has
// ended meanwhile.
func (a *acquisition) take(s *session) *Lock {
	k := &Lock{}
	now := s.now()
	k.open(a.ctx, s, a.settings, now)
	s.mu.Lock()
	if s.phase != held {
		s.mu.Unlock()
		return nil
	}
	if now >= s.until { // this goroutine was kept from running
		s.mu.Unlock()
		s.drop(ErrReleased)
		return nil
	}
	s.holder = k
	open := s.reschedule()
	if !open {
		s.holder = nil
	}
	s.mu.Unlock()
	if !open {
		s.drop(ErrClosed)
		return nil
	}
	s.weighMissing() // what looks have told while there was no holder
	return k
}

// drop releases a session that was handed over to no purpose.
func (s *session) drop(cause error) {
	if now := s.now(); s.finish(released, cause, now) {
		s.giveBack(now)
	}
}
