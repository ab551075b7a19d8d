package redlock

import (
	"time"

	"github.com/redquorum/redquorum/redlock/internal/ballot"
	"github.com/redquorum/redquorum/redlock/internal/lease"
	"github.com/redquorum/redquorum/redlock/internal/ticket"
	"github.com/redquorum/redquorum/redlock/internal/wait"
)

// Fair has the waiters of all clients that ask for it served in the order in which they
// began to wait. Default: a waiter takes its place in that order only when it has been refused, so one
// who comes at the right moment can get before it once.
//
// Callers of one process who wait when its turn comes are served one after the other, for up to five
// milliseconds, or five times what the acquisition took if that is more, even if a caller of another
// process began to wait between them.
//
// A quorum has no common order of arrival, so one node at a time keeps the queue of a name: the
// same one for all clients as long as it answers, and then another, to which the waiters tell how
// long they have waited. While that happens, and where a waiter is silent for a second, others can
// get before it. So can callers that do not ask for fairness, and TryAcquire, which does not wait.
// Safety does not depend on it.
//
// It costs a round trip to one node before each acquisition. It has no effect on readers (Shared).
func Fair() Option {
	return Option{apply: func(s *settings) error { s.fair = true; return nil }}
}

// inLine waits for as long as it takes. Callers of one process take turns in order, and hand the lock over
// among themselves. Only the first of them competes with other processes, with a Waiter.
func (a *acquisition) inLine() (lock *Lock, err error) {
	a.group.queue.enter(a)
	defer func() { a.leaveLine(lock) }()
	return a.retry(queued{a})
}

// leaveLine is for one that has got a lock, or none.
func (a *acquisition) leaveLine(lock *Lock) {
	a.waiter.End(lock != nil)
	a.dropUnwanted(a.group.queue.leave(a, sessionOf(lock)))
}

// dropUnwanted releases a session that was handed over too late for the caller, if there is one.
func (a *acquisition) dropUnwanted(s *session) {
	if s != nil {
		s.drop(lease.Released)
	}
}

// sessionOf returns that of a lock, nil for none.
func sessionOf(k *Lock) *session {
	if k == nil {
		return nil
	}
	return k.session
}

// awaitTurn returns when the caller is the first of its line, with the lock if another caller has handed it
// over. yield says that other processes come first, and err that those before have found an outage.
func (a *acquisition) awaitTurn() (lock *Lock, yield bool, err error) {
	handed, yield := a.group.queue.await(a)
	if handed != nil {
		if lock = a.take(handed); lock != nil {
			return lock, false, nil
		}
	}
	return nil, yield, a.inheritOutage()
}

// queued is the strategy of a caller in line. It is no more than the acquisition, so that a lock that is
// handed over costs no allocation for it.
type queued struct{ *acquisition }

func (w queued) next(int) (plan ballot.Plan, lock *Lock, err error) {
	for q := &w.group.queue; ; {
		lock, yield, err := w.awaitTurn()
		if lock != nil || err != nil {
			return plan, lock, err
		}
		joins := q.readers(w.acquisition) != nil && !w.waiter.WasRefused() // or a writer that waits keeps it out
		if w.settings.inOrder() || yield && !joins {
			w.contend().LineUp()
		}
		plan = everyNode
		if w.waiter.IsLinedUp() && !joins {
			if plan = w.waiter.Await(); q.isHandedOver(w.acquisition) {
				continue
			}
		}
		if err := w.interrupted(); err != nil {
			return plan, nil, w.endedAfter(w.failure, err)
		}
		if w.mustSee() {
			plan = everyNode
		}
		return plan, nil, nil
	}
}

func (w queued) try(plan ballot.Plan) (*Lock, error) {
	lock, err := w.kind().try(w.acquisition, plan)
	if err == nil {
		w.won(lock.session)
	}
	return lock, err
}

func (w queued) lost(try int, failed *QuorumError) {
	if failed.Err == errStale {
		return
	}
	pause := w.settings.delay(try, failed)
	if failed.Err != ErrHeld {
		w.contend().Lost(failed.Votes, false, 0)
		w.waiter.Rest(pause)
		return
	}
	w.contend().Lost(failed.Votes, true, pause)
	w.waiter.LineUp()
}

// won tells the line what the acquisition has learnt of other processes.
func (a *acquisition) won(s *session) {
	q := &a.group.queue
	q.joinTurn(a.line, s, !a.settings.inOrder())
	if a.waiter.HasMet() {
		q.contended(a.line, a.settings.clock.Now())
	}
	if a.waiter != nil {
		q.setOthers(a.line.key, a.waiter.Others())
	}
}

// contend returns a's Waiter, creating it on the first call.
func (a *acquisition) contend() *wait.Waiter {
	if a.waiter == nil {
		g, key, since := a.group, a.line.key, a.arrived
		if !a.settings.inOrder() {
			since = a.settings.clock.Now()
		}
		a.waiter = wait.New(wait.Terms{
			Nodes: g.nodes, Voters: g.voters, Clock: a.settings.clock, Jitter: a.settings.jitter,
			Timeout: a.settings.timeout(), NoOrder: &g.noOrder, ID: newValue(), Since: since,
			Fair: a.settings.inOrder(), Shared: a.settings.holdTogether(),
			Desk: &ticket.Desk{
				Nodes: g.nodes, Key: a.key, Timeout: a.settings.timeout(), Wake: a.parker.Wake,
				Heard: func(others int) { g.queue.setOthers(key, others) }, Begin: g.inflight.add, Done: g.inflight.done,
			},
		}, process{a})
	}
	return a.waiter
}

// A process is what an acquisition shares with the other callers of its process, to its Waiter.
type process struct{ of *acquisition }

func (p process) IsOver() bool              { return p.of.isOver() }
func (p process) Sleep()                    { p.of.sleep() }
func (p process) WakeAfter(d time.Duration) { p.of.parker.WakeAfter(d) }
func (p process) Wake()                     { p.of.parker.Wake() }
func (p process) HasNews() bool             { return p.of.group.queue.hasNews(p.of.line) }
func (p process) IsHandedOver() bool        { return p.of.group.queue.isHandedOver(p.of) }
func (p process) IsHeld() bool              { return p.of.group.queue.isHeld(p.of.line) }
func (p process) Others() int               { return p.of.group.queue.othersOf(p.of.line) }
func (p process) Cost() time.Duration       { return p.of.group.queue.lastCost(p.of.line) }

// StandsBehind withdraws a writer's intent: it would keep out readers before this writer, which would
// wait for them.
func (p process) StandsBehind() { p.of.withdraw() }

func (p process) Beyond(left time.Duration) time.Duration { return p.of.settings.beyond(left) }

// probeQueueLength asks the node that keeps the queue how many wait there, without a place of its own. A
// node that does not answer is not waited for.
func (s *session) probeQueueLength() {
	nodes := s.group.nodes
	i := ballot.First(nodes, s.lineKey(), s.group.voters.Overdue())
	if i < 0 {
		return // who comes next lines up, and sees why
	}
	if c := s.group.queue.lengthCount(s); c != nil {
		c.Ask(nodes[i])
	}
}

// lengthCount returns that of the session's line, nil if the line is not there any more.
func (q *queue) lengthCount(s *session) *ticket.Count {
	q.mu.Lock()
	defer q.mu.Unlock()
	key, timeout := s.lineKey(), s.settings.timeout()
	ln := q.lines[key]
	if ln == nil {
		return nil
	}
	p := ln.ensureContention()
	if p.count == nil || p.count.Timeout() != timeout {
		p.count = ticket.NewCount(s.key, timeout, func(others int) { q.hear(key, others, true) })
	}
	return p.count
}
