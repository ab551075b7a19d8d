package redquorum_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// A hold is one lock's life, in true time.
type hold struct {
	start  time.Time // of the schedule
	client int
	lock   *redlock.Lock
	name   string
	token  int64
	asked  time.Time // the vote that won began
	from   time.Time // Acquire returned
	until  time.Time // the latest deadline that the library has named
	over   time.Time // released or told of the loss, whichever was first
	told   time.Time // of the loss; zero if it was released in time
	paused bool      // the process was, at some time during the hold
	heir   bool      // of the holder before, in the same process
}

// end is when a holder that keeps the rules stopped: it stops at its deadline
// even if it was paused when told.
func (h *hold) end() time.Time {
	if h.over.IsZero() || h.until.Before(h.over) {
		return h.until
	}
	return h.over
}

func (h *hold) String() string {
	text := fmt.Sprintf("client %d held %s from %v to %v (deadline %v)", h.client, h.name,
		h.from.Sub(h.start), h.end().Sub(h.start), h.until.Sub(h.start))
	if h.token > 0 {
		text += fmt.Sprintf(" with token %d, asked for at %v", h.token, h.asked.Sub(h.start))
	}
	return text
}

// A contender is a process with a Locker.
type contender struct {
	schedule *schedule
	process  *sim.Client
	id       int
	rate     float64
	ttl      time.Duration
	wall     atomic.Int64 // how far its wall clock is off
	name     string       // what it competes for
	locker   *redlock.Locker
	workers  []*worker
	tickets  *tickets

	// Guarded by schedule.mu.
	active map[*hold]bool
	asked  time.Time // the last vote that won began
	value  string    // of the last lock
	gone   bool      // died, or closed before the schedule's end
	dead   bool
}

func (s *schedule) newContender(ttl time.Duration, more ...redlock.Option) *contender {
	c := &contender{schedule: s, id: len(s.clients), rate: s.rate(), ttl: ttl, active: map[*hold]bool{}}
	c.process = s.world.NewClient(c.rate)
	for i := range 1 + s.plan.IntN(s.crowd) {
		c.workers = append(c.workers, &worker{c, s.world.Rand(fmt.Sprint("worker ", c.id, " ", i))})
	}
	c.name = []string{"a", "b"}[s.plan.IntN(8)/7] // most compete for one
	c.wall.Store(int64(s.wallSkew()))
	opts := append(more,
		redlock.TTL(ttl), redlock.Clock(c.process.Clock()), redlock.Observe(c),
		redlock.Wall(func() time.Time { return s.world.Now().Add(time.Duration(c.wall.Load())).Truncate(s.coarse) }),
		redlock.Renew(s.plan.IntN(3) > 0),
		redlock.Jitter(c.jitter),
	)
	if s.plan.IntN(2) == 0 { // long enough for slow votes to count
		opts = append(opts, redlock.NodeTimeout(ttl/2))
	}
	if s.plan.IntN(3) == 0 {
		opts = append(opts, redlock.MaxHold(ttl/2+s.upTo(2*ttl)))
	}
	c.tickets = &tickets{client: c.id, numbers: map[string]string{}}
	nodes := c.tickets.numbered(c.process.Nodes())
	if s.beyond {
		nodes, opts = c.misconfigure(nodes, opts)
	}
	locker, err := redlock.New(nodes, opts...)
	if err != nil {
		panic(err)
	}
	c.locker = locker
	s.clients = append(s.clients, c)
	return c
}

// jitter draws from no stream, which workers that become ready at the same moment
// would share in any order.
func (c *contender) jitter(limit time.Duration) time.Duration {
	dice := rand.New(rand.NewPCG(c.schedule.seed<<8+uint64(c.id), uint64(c.schedule.world.Now().UnixNano())))
	return time.Duration(dice.Int64N(int64(limit)))
}

// misconfigure gives a client settings that the others do not have. A server
// that remembers the others' keeps such a client from harm; one that is new or
// has forgotten may be told the wrong ones first.
func (c *contender) misconfigure(nodes []redlock.Node, opts []redlock.Option) ([]redlock.Node, []redlock.Option) {
	s := c.schedule
	if s.forgets || s.fresh || s.plan.IntN(2) == 0 {
		return nodes, opts
	}
	switch s.plan.IntN(3) {
	case 0:
		s.evidence.note(otherNodes)
		nodes = nodes[:1+s.plan.IntN(len(nodes)-1)]
	case 1:
		s.evidence.note(noGuard)
		opts = append(opts, redlock.MemoryGuard(false))
	case 2:
		s.evidence.note(sameTwice)
		nodes[len(nodes)-1] = alias{nodes[0]}
	}
	return nodes, opts
}

// An alias is a server by another of its databases.
type alias struct{ redlock.Node }

func (a alias) String() string { return a.Node.String() + " again" }

// Submit implements redlock.Node.
func (a alias) Submit(req *redlock.Request, slot int, to redlock.Receiver) error {
	const database = "1:"
	again := *req
	again.Key = database + again.Key
	if again.Counter != "" {
		again.Counter = database + again.Counter
	}
	if again.Epoch != "" {
		again.Epoch = database + again.Epoch
	}
	if again.Admit != nil {
		admit := *again.Admit
		admit.Quarantine = database + admit.Quarantine
		again.Admit = &admit
	}
	return a.Node.Submit(&again, slot, to)
}

// Observe implements redlock.Observer: an extension names a new deadline.
func (c *contender) Observe(e redlock.Event) {
	s := c.schedule
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e.Kind {
	case redlock.EventVote:
		c.vote(e)
	case redlock.EventAttempt:
		if e.Err == nil {
			c.asked = s.world.Now().Add(-time.Duration(float64(e.Elapsed) / c.rate)).Add(-time.Microsecond) // rounding
		}
	case redlock.EventExtended:
		for h := range c.active {
			if h.name != e.Name || e.Remaining == 0 || h.lock.Remaining() != e.Remaining {
				continue // another worker's, who has yet to be told of a loss; or over again
			}
			if h.heir {
				s.evidence.note(heirsExtended)
			}
			if now := s.world.Now(); !now.Before(h.until) {
				s.problem("P3: %v\n    was extended %v after its deadline", h, now.Sub(h.until))
			}
			h.until = c.deadline(e.Remaining)
		}
	}
}

// vote notes what the guard did.
func (c *contender) vote(e redlock.Event) {
	s := c.schedule
	var quarantine *redlock.QuarantineError
	switch {
	case e.Op == redlock.OpRaise && e.Outcome == redlock.Granted:
		s.evidence.note(raises)
	case errors.As(e.Err, &quarantine) && strings.Contains(quarantine.Reason, "ahead"):
		s.evidence.note(jumps)
	case quarantine != nil && quarantine.Left > 0:
		s.evidence.note(quarantines)
	case e.Err != nil && (quarantine != nil || strings.Contains(e.Err.Error(), "its memory")):
		s.evidence.note(voidVotes)
	}
}

// deadline converts what is left by the process's clock into true time.
func (c *contender) deadline(left time.Duration) time.Time {
	return c.schedule.world.Now().Add(time.Duration(float64(left) / c.rate))
}

// begin notes a new lock. It returns nil for one that a dead process would have
// got.
func (c *contender) begin(lock *redlock.Lock) *hold {
	s := c.schedule
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.dead {
		return nil
	}
	h := &hold{start: s.start, client: c.id, lock: lock, name: lock.Name(), token: lock.Fence(), asked: c.asked,
		heir: lock.Value() == c.value, from: s.world.Now(), until: c.deadline(lock.Remaining())}
	c.value = lock.Value()
	s.holds = append(s.holds, h)
	if h.heir {
		s.evidence.note(handedOver)
	}
	if h.token > 0 {
		s.evidence.note(fencedLocks)
	} else {
		s.evidence.note(plainLocks)
	}
	if cause := context.Cause(lock.Context()); cause == nil && !h.from.Before(h.until) {
		s.problem("P3: %v\n    was over when it was acquired", h)
	}
	c.active[h] = true
	s.evidence.hold(1)
	context.AfterFunc(lock.Context(), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		c.stopped(h)
		if errors.Is(context.Cause(lock.Context()), redlock.ErrLost) && !c.dead {
			s.evidence.note(locksLost)
			if h.heir {
				s.evidence.note(heirsLost)
			}
			h.told = s.world.Now()
		}
	})
	if s.waiting[h.name] > 1 {
		s.contended++
	}
	return h
}

// stopped notes when work under the lock ended.
func (c *contender) stopped(h *hold) {
	if h.over.IsZero() {
		h.over = c.schedule.world.Now()
		c.schedule.evidence.hold(-1)
	}
	delete(c.active, h)
}

// pauseFor pauses the process. Whoever resumes it first, does.
func (c *contender) pauseFor(d time.Duration) {
	c.markPaused()
	c.process.Pause()
	c.schedule.work.Go(func() {
		defer c.schedule.world.Blame()
		c.schedule.world.Sleep(d)
		c.markPaused()
		if !c.isDead() {
			c.process.Resume()
		}
	})
}

func (c *contender) markPaused() {
	c.schedule.mu.Lock()
	defer c.schedule.mu.Unlock()
	for h := range c.active {
		h.paused = true
	}
}

// retire makes the contender's worker stop. It reports whether it had not yet.
func (c *contender) retire() bool {
	c.schedule.mu.Lock()
	defer c.schedule.mu.Unlock()
	was := c.gone
	c.gone = true
	return !was
}

func (c *contender) retired() bool {
	c.schedule.mu.Lock()
	defer c.schedule.mu.Unlock()
	return c.gone
}

func (c *contender) isDead() bool {
	c.schedule.mu.Lock()
	defer c.schedule.mu.Unlock()
	return c.dead
}

// die ends the process, and all work that it did under locks.
func (c *contender) die() {
	c.process.Crash()
	c.schedule.mu.Lock()
	defer c.schedule.mu.Unlock()
	c.dead = true
	for h := range c.active {
		c.stopped(h)
	}
}
