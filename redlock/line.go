package redlock

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/lockorder"
	"github.com/redquorum/redquorum/redlock/internal/lease"
	"github.com/redquorum/redquorum/redlock/internal/ticket"
)

// A queue lines up the callers of one process that wait for a lock, by the key of their line. Only
// the first of a line competes with other processes, and only while as few as may hold the
// lock at once do so in its own.
type queue struct {
	mu    lockorder.Mutex[lockorder.Queue]
	lines map[string]*line
	most  int       // lines since the map was made
	idle  idleLines // of lines; they stay for a while, since the next caller often comes soon
	slots slotLines // of lines
}

// A line is what this process knows of one key. All of it is guarded by the queue. Each held lock has
// one, so what only some need is behind contention.
type line struct {
	key        string
	waiters    waiters
	holders    []*session  // of this process, which have not ended; the line stays for them
	next       *session    // handed over to the first waiter, who has yet to take it
	contention *contention // nil: the lock was neither given back nor contended for

	yieldToOthers   bool // other processes come first, if any wait
	othersAsked     bool // about others, when the last turn was over
	othersKnown     bool // and answered
	releasedLocally bool // for the first waiter: the key was released in this process
	isIdle          bool // no caller waits for the lock or holds it
}

// A contention is how this process and others have shared the lock of a line: see turnLength.
type contention struct {
	turn   clock.Instant // when the present turn of this process began; zero: with the next lock
	others int           // waiters of other processes, when this one heard of them last
	count  *ticket.Count // that asks; nil: none has yet
	left   clock.Instant // when this process gave the lock back last
	cost   time.Duration // of acquiring it then
	wanted time.Duration // the same if callers of this process waited; else zero
	rivals clock.Instant // when this process had to contend for the lock last; zero: never
	outage *outage       // that the last try has found; nil: none

	older, newer *line // of the idle ones
}

// noContention is that of a line without one. It is never changed.
var noContention contention

// readContention returns the line's contention to be read.
func (ln *line) readContention() *contention { return cmp.Or(ln.contention, &noContention) }

// ensureContention returns the line's contention to be changed, creating it on the first call.
func (ln *line) ensureContention() *contention {
	if ln.contention == nil {
		ln.contention = &contention{}
	}
	return ln.contention
}

// Waiters are the acquisitions of a line, in their order. Ten thousand may wait for one lock, so each
// can leave at once, wherever it stands. Readers come in together, as with sync.RWMutex: one who comes
// while a writer is the first joins the last readers that wait. When these are the first it stands
// behind all, so nobody is passed over more than once by each group of readers.
type waiters struct{ first, last, lastReader *acquisition }

func (w *waiters) add(a *acquisition) {
	a.ahead = w.last
	if a.settings.holdTogether() {
		if w.lastReader != nil && !w.first.settings.holdTogether() {
			a.ahead = w.lastReader
		}
		w.lastReader = a
	}
	if a.ahead == nil {
		w.first = a
	} else {
		a.ahead.behind, a.behind = a, a.ahead.behind
	}
	if a.behind == nil {
		w.last = a
	} else {
		a.behind.ahead = a
	}
}

func (w *waiters) remove(a *acquisition) {
	if w.lastReader == a {
		if w.lastReader = a.ahead; a.ahead != nil && !a.ahead.settings.holdTogether() {
			w.lastReader = nil
		}
	}
	if a.ahead == nil {
		w.first = a.behind
	} else {
		a.ahead.behind = a.behind
	}
	if a.behind == nil {
		w.last = a.ahead
	} else {
		a.behind.ahead = a.ahead
	}
	a.ahead, a.behind = nil, nil
}

// idleLines are lines in the order in which they became idle: a ring in which the line itself
// is between the newest and the oldest.
type idleLines struct {
	line
	size int
}

// maxIdle is how many idle lines are kept at least: as many as callers are likely to acquire at the
// same moment. There may be as many as are in use.
const maxIdle = 256

// add makes ln the newest idle line.
func (l *idleLines) add(ln *line) {
	p, ends := ln.ensureContention(), l.ensureContention()
	if l.size == 0 {
		ends.older, ends.newer = &l.line, &l.line
	}
	ln.isIdle = true
	p.older, p.newer = ends.older, &l.line
	p.older.contention.newer, ends.older = ln, ln
	l.size++
}

func (l *idleLines) remove(ln *line) {
	p := ln.contention
	p.older.contention.newer, p.newer.contention.older = p.newer, p.older
	ln.isIdle, p.older, p.newer = false, nil, nil
	l.size--
}

// oldest returns the line that has been idle for the longest.
func (l *idleLines) oldest() *line { return l.contention.newer }

// enter puts a at the end of its line.
func (q *queue) enter(a *acquisition) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.enterLocked(a)
}

func (q *queue) enterLocked(a *acquisition) {
	ln := q.line(a.lineKey())
	if p := ln.readContention(); (ln.yieldToOthers || p.others > 0) && !ln.isUsed() && a.settings.clock.Now().Sub(p.left) > turnLength(p.cost) {
		ln.yieldToOthers, ln.ensureContention().others = false, 0 // they have had their chance
	}
	switch {
	case a.settings.inOrder() || ln.waiters.first != nil:
		a.arrived = a.settings.clock.Now()
	case ln.contention != nil:
		ln.contention.outage = nil // no caller has asked since
	}
	a.line = ln
	ln.waiters.add(a)
}

// line returns the key's line, which the caller is about to use, a new one if there is none. The
// queue must be locked.
func (q *queue) line(key string) *line {
	ln := q.lines[key]
	switch {
	case ln != nil && ln.isIdle:
		q.idle.remove(ln)
		return ln
	case ln != nil:
		return ln
	case q.lines == nil:
		q.lines = map[string]*line{}
	}
	if q.idle.size < maxIdle {
		ln = &line{}
	} else {
		ln = q.forgetOldest()
		*ln.contention = contention{}
		*ln = line{holders: ln.holders, contention: ln.contention}
	}
	ln.key = key
	q.lines[key] = ln
	q.most = max(q.most, len(q.lines))
	return ln
}

// forgetOldest takes out the line that has been idle for the longest. The queue must be locked.
func (q *queue) forgetOldest() *line {
	ln := q.idle.oldest()
	q.idle.remove(ln)
	delete(q.lines, ln.key)
	return ln
}

// isUsed reports whether a caller waits for the lock or holds it. The queue must be locked.
func (ln *line) isUsed() bool { return ln.waiters.first != nil || len(ln.holders) > 0 }

// await returns when a is the first of its line and may compete (hasRoom): with the
// session that the holder has handed over, or with whether a should leave the lock to other
// processes first. A caller that has a place among those of other processes keeps it while a
// holder is there. await returns early when the caller's context or the Locker ends.
func (q *queue) await(a *acquisition) (next *session, yield bool) {
	for ln := a.line; ; {
		q.mu.Lock()
		if ln.waiters.first == a && (ln.hasRoom() || ln.next != nil || a.settings.inOrder() || a.waiter.IsLinedUp()) {
			next, yield = ln.next, ln.yieldToOthers || ln.readContention().others > 0
			if next != nil {
				ln.enterHolder(next) // hints must find it at any time
			}
			ln.next, ln.releasedLocally, ln.yieldToOthers = nil, false, false
			q.mu.Unlock()
			return next, yield
		}
		q.mu.Unlock()
		a.sleep()
		if a.isOver() {
			return nil, false
		}
	}
}

// leave takes a out of its line, wherever it stands. got is the session that it has won, or
// nil. A session that was handed over too late for a is returned, and must be released.
func (q *queue) leave(a *acquisition, got *session) (unwanted *session) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.leaveLocked(a, got)
}

func (q *queue) leaveLocked(a *acquisition, got *session) (unwanted *session) {
	ln := a.line
	wasFirst := ln.waiters.first == a
	if wasFirst {
		unwanted, ln.next = ln.next, nil
	}
	ln.waiters.remove(a)
	if got != nil {
		ln.enterHolder(got)
	}
	if first := ln.waiters.first; wasFirst && first != nil && (ln.hasRoom() || first.settings.inOrder()) {
		first.parker.Wake()
	}
	q.tidy(ln)
	return unwanted
}

// hold enters a session that was not waited for.
func (q *queue) hold(s *session) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln := q.line(s.lineKey())
	ln.enterHolder(s)
	q.tidy(ln)
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

// inTheWay returns what keeps a caller waiting that has asked no node, because others of its process are
// before it, and how long a lock that they hold goes on if it is not renewed. Nil: nothing is known.
func (q *queue) inTheWay(a *acquisition, now clock.Instant) (left time.Duration, kind error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln := a.line
	if ln.readContention().outage != nil {
		return 0, ErrNoQuorum
	}
	for _, s := range ln.holders {
		s.mu.Lock()
		left = max(left, s.lease.Deadline().Sub(now))
		s.mu.Unlock()
	}
	if len(ln.holders) == 0 && ln.next == nil && !a.waiter.HasMet() {
		return 0, nil
	}
	return left, ErrHeld
}

// holdersOf returns the sessions that have a key, be it that they are being handed over.
func (q *queue) holdersOf(key string) []*session {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln := q.lines[key]
	if ln == nil {
		return nil
	}
	holders := slices.Clone(ln.holders)
	if ln.next != nil {
		holders = append(holders, ln.next)
	}
	return holders
}

// hasRoom reports whether fewer callers of this process hold the lock than may at once. Readers do
// not count: others join them, and a writer that waits for them competes, because the nodes must hear
// of its intent. The queue must be locked, and have a waiter.
func (ln *line) hasRoom() bool {
	return ln.writers() < max(1, ln.waiters.first.settings.holders())
}

// writers counts the holders that are not readers. The queue must be locked.
func (ln *line) writers() (n int) {
	for _, s := range ln.holders {
		if !s.isRead() {
			n++
		}
	}
	return n
}

// ended is called when a session has ended and its release is on its way. It reports whether the
// process is to ask if others wait.
func (q *queue) ended(s *session, now clock.Instant) (ask bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if ln := q.lines[s.lineKey()]; ln != nil {
		ln.removeHolder(s)
		ask = ln.endTurn(s, now)
		p := ln.ensureContention()
		if p.wanted = 0; ln.waiters.first != nil {
			p.wanted = s.cost
		}
		q.tidy(ln)
	}
	key, slot := s.key, 0
	if p := s.permit; p != nil {
		q.slots.left.remember(p.line, p.slot)
		key, slot = p.key, p.slot
	}
	q.tell(key, slot)
	return ask
}

// changed is called when a request is on its way that may let others have a key, and ends no session.
func (q *queue) changed(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tell(key, 0)
}

// tell has those who wait in this process for a slot of a name hear of its release, of which a Locker's
// own nodes give no hint (see package pool, tracking.go). Slot 0, which has the name's key, is that of
// readers, writers, sets and permits of any number. The queue must be locked.
func (q *queue) tell(key string, slot int) {
	if ln := q.lines[key]; ln != nil && slot == 0 {
		ln.tell()
	}
	q.slots.tell(key, slot)
}

// tell has the first waiter hear that the lock was released.
func (ln *line) tell() {
	if ln.waiters.first != nil {
		ln.releasedLocally = true
		ln.waiters.first.parker.Wake()
	}
}

// hasNews reports, once, whether the key was released in this process or handed
// over to the first of the line.
func (q *queue) hasNews(ln *line) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	news := ln.releasedLocally || ln.next != nil
	ln.releasedLocally = false
	return news
}

// isHeld reports whether a caller of this process holds the lock, and not to read.
func (q *queue) isHeld(ln *line) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return ln.writers() > 0
}

// isHandedOver reports whether a session waits to be taken by a.
func (q *queue) isHandedOver(a *acquisition) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return a.line.next != nil && a.line.waiters.first == a
}

// tidy makes a line idle if no caller uses it any more. The queue must be locked.
func (q *queue) tidy(ln *line) {
	if ln.isUsed() || ln.isIdle {
		return
	}
	ln.ensureContention().wanted = 0
	q.idle.add(ln)
	for q.idle.size > max(maxIdle, len(q.lines)-q.idle.size) {
		q.forgetOldest()
	}
	if n := len(q.lines); n <= 2*maxIdle && q.most > 16*maxIdle { // a map does not shrink by itself
		q.lines, q.most = maps.Collect(maps.All(q.lines)), n
	}
}

// Turns.

// turnLength returns how long one process may have a lock again and again before it looks whether
// others wait: one whose callers hand it on, or that has met no others (see loneTurn). Its next
// request would always come before theirs, right behind the release. So with the release that ends
// the turn it asks the node that keeps the queue, and takes the lock once more meanwhile
// (probeQueueLength). If that answers, and others wait, the next caller lines up there with them
// (package ticket). One for whose process no answer has come since the turn before lines up as well, and
// so does one whose process has not come again at once yet. A turn is longer where acquisitions
// take long, so that this costs a fifth at most.
//
// Once it knows of others it lines up before each acquisition from the nodes that follows soon. In
// the process the lock is still handed over for a turn.
func turnLength(cost time.Duration) time.Duration { return max(5*time.Millisecond, 5*cost) }

// loneTurn returns how long the turn of a process is that has met others, if none of its callers waits
// when it ends: as long as three acquisitions take, which pay for what the change to another process
// costs. A process that has met none for rivalsStay has long turns, because to ask costs a request.
func loneTurn(cost time.Duration) time.Duration { return 3 * cost }

const rivalsStay = time.Second

// turnOver reports whether the process has had the lock for long enough. The queue
// must be locked.
func (s *session) turnOver(now clock.Instant) bool { return now.Sub(s.turn) >= turnLength(s.cost) }

// endTurn lets the turn go on with the next lock, or ends it. It reports whether the process is to
// ask if others wait. The queue must be locked.
func (ln *line) endTurn(s *session, now clock.Instant) (ask bool) {
	p := ln.ensureContention()
	p.turn, ln.yieldToOthers = s.turn, s.turnOver(now)
	p.left, p.cost = now, s.cost
	if ln.waiters.first == nil && p.metRivals(now) {
		ln.yieldToOthers = now.Sub(s.turn) >= loneTurn(s.cost)
	}
	if !ln.yieldToOthers {
		return false
	}
	ask = s.again && (ln.othersKnown || !ln.othersAsked)
	p.turn, ln.yieldToOthers = 0, !ask
	ln.othersAsked, ln.othersKnown = ask, false
	return ask
}

// joinTurn makes a session that was just won part of the turn of its process, if that has come
// again at once. asks says whether its end may be put off to ask if others wait.
func (q *queue) joinTurn(ln *line, s *session, asks bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := ln.readContention()
	again := s.turn.Sub(p.left) < turnLength(s.cost)
	s.again = again && asks
	// The order has given callers in order a turn of their own.
	if p.turn > 0 && again && !s.settings.inOrder() {
		s.turn = p.turn
	}
	ln.endPresentTurn()
	if ln.contention != nil {
		ln.contention.outage = nil
	}
}

// lastCost returns how long it took this process to acquire the lock the last time.
func (q *queue) lastCost(ln *line) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	return ln.readContention().cost
}

// standBack is for how long callers with permits leave the slots to other processes when their turn
// is over: as long as the last acquisition took, if others of this process waited.
func (q *queue) standBack(ln *line) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	return ln.readContention().wanted
}

// contended notes that this process had to contend for the lock.
func (q *queue) contended(ln *line, now clock.Instant) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln.ensureContention().rivals = now
}

// metRivals reports whether there was a rival within rivalsStay. The queue must be locked.
func (p *contention) metRivals(now clock.Instant) bool {
	return p.rivals > 0 && now.Sub(p.rivals) < rivalsStay
}

// setOthers notes how many waiters of other processes there are.
func (q *queue) setOthers(key string, n int) { q.hear(key, n, false) }

// hear is setOthers, with whether that is the answer that endTurn wanted.
func (q *queue) hear(key string, n int, answer bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if ln := q.lines[key]; ln != nil {
		ln.ensureContention().others = n
		ln.othersKnown = ln.othersKnown || answer
	}
}

// othersOf returns what setOthers has noted.
func (q *queue) othersOf(ln *line) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return ln.readContention().others
}

// loseTurn is called when the lock could not be had: another process has got it or, with an outage, no
// quorum has answered.
func (q *queue) loseTurn(ln *line, found *outage) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln.endPresentTurn()
	if found != nil || ln.contention != nil {
		ln.ensureContention().outage = found
	}
}

// outageOf returns the outage that the last try of the line's callers has found, nil for none.
func (q *queue) outageOf(ln *line) *outage {
	q.mu.Lock()
	defer q.mu.Unlock()
	return ln.readContention().outage
}

// endPresentTurn lets the next turn begin with the next lock. The queue must be locked.
func (ln *line) endPresentTurn() {
	if ln.contention != nil {
		ln.contention.turn = 0
	}
}

// Handover.

// handOver ends the lock in favour of the first waiter of this process, if there is one
// that wants such a lock: the session goes on, and the waiter becomes its holder. The lock
// must be good for long enough, and if it has a fencing token there must be another, which is
// reserved on the nodes (see fence.go). This takes a microsecond, where the nodes would take a
// round trip.
//
// The holder's context ends before the next holder can have the lock: at no moment do
// two callers have a context that has not ended. It ends while neither the queue
// nor the session is locked, because that takes as long as there are contexts made
// from it, and the line keeps its holder meanwhile. If the waiter has gone by then,
// the session is released after all, and that round is returned.
func (k *hold) handOver(now clock.Instant) (votes int, handed bool, r *round) {
	s := k.session
	votes, ok := k.stepDown(now)
	if !ok {
		return 0, false, nil
	}
	k.endContext()
	s.mu.Lock()
	s.leaving = nil
	s.mu.Unlock()
	if !s.group.queue.pass(s) && s.end(lease.Released, nil) {
		return 0, false, s.giveBack(now)
	}
	return votes, true, nil
}

// stepDown leaves the session without a holder, if it can be handed over. It returns the
// votes that the session has.
func (k *hold) stepDown(now clock.Instant) (votes int, ok bool) {
	s := k.session
	q := &s.group.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if ln := q.lines[s.lineKey()]; ln == nil || !slices.Contains(ln.holders, s) || !ln.canTake(s) {
		return 0, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if k.phase != lease.Held || s.ops == sharedOps || s.lease.Deadline().Sub(now) < s.settings.ttl/2 || s.turnOver(now) {
		return 0, false
	}
	if !s.hasToken() {
		return 0, false
	}
	k.phase = lease.Released
	s.leaving = k
	s.vacate()
	return s.lease.Votes().Size(), true
}

// pass leaves s, which has no holder, to the first waiter. It reports false if there is
// none any more that wants it.
func (q *queue) pass(s *session) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln := q.lines[s.lineKey()]
	if ln == nil || !slices.Contains(ln.holders, s) || !ln.canTake(s) {
		return false
	}
	ln.removeHolder(s)
	ln.next = s
	ln.waiters.first.parker.Wake()
	return true
}

// canTake reports whether the first waiter can become the holder of s. The queue must
// be locked.
func (ln *line) canTake(s *session) bool {
	first := ln.waiters.first
	if first == nil || ln.next != nil {
		return false
	}
	if first.settings.inOrder() && first.arrived > s.turn {
		return false // waiters of other processes may have come before
	}
	return first.settings.canTake(s.settings)
}

// canTake reports whether a caller with settings s would have got the same session as one
// with settings of. One that does not renew would not: it counts on a full TTL, and only
// part of that is left.
func (s *settings) canTake(of *settings) bool {
	if s.owner != of.owner {
		return false // the label would be another's
	}
	return s.renew && !s.holdTogether() && !of.holdTogether() && s.fenced == of.fenced && s.inOrder() == of.inOrder() && s.ttl == of.ttl && s.timeout() == of.timeout()
}

// take makes a the holder of a session that was handed over, or returns nil if that has
// ended meanwhile.
func (a *acquisition) take(s *session) *Lock {
	now := s.now()
	k := a.newLock(s, now)
	s.mu.Lock()
	if s.lease.Ended() != lease.Held {
		s.mu.Unlock()
		return nil
	}
	if !s.lease.IsValid(now) { // this goroutine was kept from running
		s.mu.Unlock()
		s.drop(lease.Released)
		return nil
	}
	s.issueToken(&k.hold)
	open := s.put(s.occupy(&k.hold, now))
	if !open {
		s.vacate()
	}
	s.mu.Unlock()
	if !open {
		s.drop(lease.Closed)
		return nil
	}
	return k
}
