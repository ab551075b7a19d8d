package redlock

import (
	"context"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/lockorder"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/agenda"
	"github.com/redquorum/redquorum/redlock/internal/lease"
)

// A session is one claim of this process that a quorum of nodes holds, from the vote that
// won it until it is released on all nodes or lost. Its Lease knows what is the case, and this does
// what follows: it asks the nodes, ends contexts, and tells the queue, the Agenda and observers.
//
// Its holder is the hold that a caller has. When a caller hands the lock over to the next
// one of the same process, a new hold takes the place of the old, and the session goes on
// as it is: no request under way notices.
type session struct {
	claim
	group     *group
	settings  *settings     // of the acquisition that won it
	turn      clock.Instant // since when callers of this process have had it without standing back (see turnLength); guarded by the queue
	cost      time.Duration // of acquiring it from the nodes
	again     bool          // they had it just before, and are to ask if others wait; guarded by the queue
	entered   bool          // into the Locker's watches, which guard it
	place     agenda.Place  // on the Locker's Agenda
	givenBack sync.Once

	mu      lockorder.Mutex[lockorder.Session]
	lease   lease.Lease // guarded by mu, as all that follow
	holder  *hold       // nil while it is being handed over; stays when the session has ended
	leaving *hold       // the holder before, while its context may not have ended
	sharing *sharing    // by several callers; nil if the holder is one
}

// newSession makes the session of a round of an acquisition, won by now, and returns its
// first holder.
func newSession(r *round, c claim, of *acquisition, now clock.Instant) *Lock {
	s := &session{
		claim: c, group: of.group, settings: of.settings, turn: now, cost: now.Sub(r.Start()),
	}
	grant := lease.Grant{Round: r, IsReader: c.ops == sharedOps, Extends: r.req.Op.Extends()}
	if p := of.heldUnder(); p != nil {
		grant.Within = p.Until()
	}
	s.lease = lease.New(&s.settings.terms, grant)
	k := of.kind().open(s, of, winning{r.Start(), now})
	r.session.Store(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	state := r.Listen() // what is said from now on comes to heard, which waits for this
	s.lease.Granted(state.With(protocol.Granted), state.With(protocol.Granted, protocol.Unknown, 0))
	if grant.Extends { // a node that has failed holds what it held before
		s.lease.MayHold(state.With(protocol.Failed))
	}
	return k
}

// occupy makes k the holder. The session must be locked, or new; it is scheduled next.
func (s *session) occupy(k *hold, now clock.Instant) lease.Todo {
	s.holder = k
	return s.lease.Occupy(&k.tenure, k.settings.renew, now)
}

// vacate leaves the session without a holder. It must be locked.
func (s *session) vacate() {
	s.holder = nil
	s.lease.Vacate()
}

func (s *session) now() clock.Instant { return s.settings.clock.Now() }

// isHeld reports whether a lock that has not ended stands for the session, or will soon.
func (s *session) isHeld() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lease.Ended() == lease.Held
}

// isRead reports whether the session is that of readers.
func (s *session) isRead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ops == sharedOps
}

// isValid reports whether the session is held at this moment.
func (s *session) isValid() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lease.IsValid(s.now())
}

// schedule has the session looked at when the Lease says so. It reports false if the Locker is closed.
func (s *session) schedule() (open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.put(s.lease.Plan())
}

// put has the session looked at when a Todo says so, if it does. The session must be locked.
func (s *session) put(todo lease.Todo) (open bool) {
	return todo.At == 0 || s.group.agenda.Put(s, todo.At)
}

// follow does what follows an event for the session itself, and unlocks it. It reports false if the
// Locker is closed. Whoever ends a session gives it back next; until then it counts as in flight,
// because Close finds it nowhere else.
func (s *session) follow(todo lease.Todo) (open bool) {
	if todo.End != lease.Held {
		now := s.now()
		s.leaveHeld(todo.End, &ending{s.lossOf(todo, now), now})
		s.endContexts()
		return true
	}
	if p := s.isPresence(); p != nil && todo.Extended {
		p.ExtendTo(s.lease.Until())
	}
	open = s.put(todo)
	s.mu.Unlock()
	return open
}

// end ends the session, for a reason that its Lease has not found itself, and a loss with that cause.
// It reports false if it had ended before.
func (s *session) end(why lease.Reason, cause error) bool {
	s.mu.Lock()
	if !s.endLocked(why, &ending{cause, s.now()}) {
		s.mu.Unlock()
		return false
	}
	s.endContexts()
	return true
}

// endLocked is end for callers that have locked the session, and see to the contexts.
func (s *session) endLocked(why lease.Reason, of *ending) bool {
	if !s.lease.End(why) {
		return false
	}
	s.leaveHeld(why, of)
	return true
}

// leaveHeld tells the locks of a session that its Lease has ended, and how a loss came about. The
// session must be locked.
func (s *session) leaveHeld(why lease.Reason, of *ending) {
	if p := s.isPresence(); p != nil {
		p.End()
	}
	if s.holder != nil {
		s.holder.leaveHeld(why, of)
	}
	for _, k := range s.sharers() {
		k.leaveHeld(why, of)
	}
	s.group.inflight.add()
}

// endContexts ends the contexts of a session that has just ended, and unlocks it.
func (s *session) endContexts() {
	k, leaving, sharers := s.holder, s.leaving, s.sharers()
	s.mu.Unlock()
	if leaving != nil { // being cancelled by its own Release: this waits for that
		leaving.endContext()
	}
	if k != nil {
		k.endContext()
	}
	for _, each := range sharers {
		each.endContext()
	}
}

// lossOf is the cause of a loss that the Lease has found. The session must be locked.
func (s *session) lossOf(todo lease.Todo, now clock.Instant) error {
	failed, _ := todo.Failed.(*round)
	l := &loss{name: s.name, at: now}
	switch todo.End {
	case lease.Gone:
		state := failed.State()
		e := failed.fail(&state, ErrLost)
		e.isTaken = true
		return e
	case lease.Missing:
		return s.goneFrom(now)
	case lease.Absent:
		l.absent = true
	case lease.MaxHold:
		l.maxHold = s.holder.settings.maxHold
	default:
		if failed != nil {
			l.explain = failed.notExtended
		}
	}
	return l
}

// expire ends the session if its deadline has passed. It returns the time.
func (s *session) expire() (now clock.Instant) {
	s.mu.Lock()
	now = s.now()
	todo := s.lease.Expire(now)
	s.follow(todo)
	if todo.End != lease.Held {
		s.giveBack(now)
	}
	return now
}

// drop ends a session that is of no use to anybody, and releases it.
func (s *session) drop(why lease.Reason) {
	if s.end(why, nil) {
		s.giveBack(s.now())
	}
}

// giveBack releases a session that has ended on all nodes, once. A caller that is not the
// first gets no round, but returns when the requests are on their way: what it asks
// for next comes behind them.
func (s *session) giveBack(now clock.Instant) (r *round) {
	s.givenBack.Do(func() {
		defer s.group.inflight.done()
		s.leaveAgenda(now)
		r = s.release(now)
		// The release is on its way on every connection that a local waiter's next
		// request would take, so the waiter need not wait for the answers.
		if s.group.queue.ended(s, now) {
			s.probeQueueLength()
		}
		s.tellLosses()
	})
	return r
}

// abandon is giveBack where no node can be asked any more.
func (s *session) abandon() {
	s.givenBack.Do(func() {
		defer s.group.inflight.done()
		now := s.now()
		s.leaveAgenda(now)
		s.group.queue.ended(s, now)
		s.tellLosses()
	})
}

// leaveAgenda has nobody look at the session any more.
func (s *session) leaveAgenda(now clock.Instant) {
	s.group.agenda.Remove(s, now)
	s.mu.Lock()
	watched := s.lease.WasWatched()
	s.mu.Unlock()
	if watched {
		s.group.watches.remove(s)
	}
}

// release asks the nodes to forget the claim. One that is lost, too: a minority of nodes may still hold
// the value, or an extension may have reached it, and would keep others out for a TTL.
func (s *session) release(now clock.Instant) *round {
	s.mu.Lock()
	k, of := s.holder, releaseOf{context.Background(), s.settings, s.claim, s.lease.Maybe(), !s.lease.Ended().IsLoss()}
	s.mu.Unlock()
	if k != nil {
		of.eventCtx = k.caller
		if k.phase.IsLoss() {
			k.life.why.compose()
		}
	}
	return s.group.release(of, now)
}

// giveBackClosed gives back a session that a Close has ended.
func (s *session) giveBackClosed(now clock.Instant) {
	s.giveBack(now)
	for _, k := range s.locks() {
		k.tellEnd(Event{Err: ErrClosed})
	}
}

// locks are those that callers have, of a session that has ended.
func (s *session) locks() []*hold {
	switch {
	case s.sharing != nil:
		return s.sharing.locks
	case s.holder != nil:
		return []*hold{s.holder}
	}
	return nil
}

// tellLosses tells the observers if locks of callers were lost.
func (s *session) tellLosses() {
	for _, k := range s.locks() {
		k.tellLoss()
	}
}

// describe returns e with the permit that the session is.
func (s *session) describe(e Event) Event {
	if p := s.permit; p != nil {
		e.Permits, e.Permit = p.of, p.slot
	}
	return e
}
