package schedules

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/internal/check"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/internal/timetest"
	"github.com/redquorum/redquorum/redlock"
)

// A hold is one lock's life, in true time since the schedule's start.
type hold struct {
	client int
	lock   *redlock.Lock
	name   string
	keys   []string // of each of which there is one holder at a time: the names, or a permit of a name
	reads  bool     // beside other readers
	token  int64
	asked  time.Duration // the vote that won began; after a handover, the holder before had it
	from   time.Duration // Acquire returned
	until  time.Duration // the latest deadline that the library has named
	over   time.Duration // it was released or noticed the loss, whichever came first; zero: neither yet
	lostAt time.Duration // its context ended by a loss; zero if it was released in time
	paused bool          // the process was, at some time during the hold

	handedOver bool // by the holder before, in the same process
}

// end is when a holder that keeps the rules stopped: at its deadline at the latest, even if
// it was paused when its context ended.
func (h *hold) end() time.Duration {
	if h.over == 0 || h.until < h.over {
		return h.until
	}
	return h.over
}

// relied is the hold as P1 looks at it.
func (h *hold) relied() check.Hold {
	return check.Hold{From: int64(h.from), Until: int64(h.end()), Shared: h.reads}
}

// granted is the hold as P2 looks at it.
func (h *hold) granted() check.Grant {
	return check.Grant{Token: h.token, Asked: int64(h.asked), Granted: int64(h.from)}
}

func (h *hold) String() string {
	text := fmt.Sprintf("client %d held %s from %v to %v (deadline %v)", h.client, strings.Join(h.keys, " and "),
		h.from, h.end(), h.until)
	if h.token != 0 {
		text += fmt.Sprintf(" with token %d, asked for at %v", h.token, h.asked)
	}
	return text
}

// A client is a process with a Locker.
type client struct {
	schedule *schedule
	process  *sim.Client
	id       int
	rate     float64
	ttl      time.Duration
	wall     atomic.Int64 // how far its wall clock is off
	name     string       // of the lock that it competes for
	locker   *redlock.Locker
	workers  []*worker
	tickets  *ticketNumbers

	// Guarded by schedule.mu.
	active map[*hold]bool
	asked  time.Duration    // the last vote that won began
	latest map[string]*hold // of each value

	askedFor map[string]time.Duration // when the last vote began that won a name

	retired atomic.Bool // died, or closed before the schedule's end
	dead    atomic.Bool // set under schedule.mu
}

func (s *schedule) newClient(ttl time.Duration, more ...redlock.LockerOption) *client {
	c := &client{schedule: s, id: len(s.clients), rate: s.rate(), ttl: ttl, active: map[*hold]bool{}, latest: map[string]*hold{}, askedFor: map[string]time.Duration{}}
	c.process = s.world.NewClient(c.rate)
	for i := range 1 + s.plan.IntN(s.crowd) {
		c.workers = append(c.workers, &worker{c, s.world.Rand(fmt.Sprint("worker ", c.id, " ", i))})
	}
	c.name = []string{"a", "b"}[s.plan.IntN(8)/7] // most compete for one
	c.wall.Store(int64(s.wallOffset()))
	opts := append(more,
		redlock.TTL(ttl), timetest.Clock(c.process.Clock()), redlock.Observe(c),
		timetest.Wall(func() time.Time { return s.world.Now().Add(time.Duration(c.wall.Load())).Truncate(s.coarse) }),
		redlock.Renew(s.plan.IntN(3) > 0),
		timetest.Jitter(c.jitter),
	)
	if s.plan.IntN(2) == 0 { // long enough for slow votes to count
		opts = append(opts, redlock.NodeTimeout(ttl/2))
	}
	if s.plan.IntN(3) == 0 {
		opts = append(opts, redlock.MaxHold(ttl/2+s.upTo(2*ttl)))
	}
	switch {
	case s.mixed && s.maxTTL:
		opts = append(opts, redlock.MaxTTL(mixedTTL))
	case !s.mixed && s.fresh: // new servers grant the first client nothing, and tell the others of no TTL
		opts = append(opts, redlock.MaxTTL(scheduleTTL))
	}
	c.tickets = &ticketNumbers{client: c.id, numbers: map[string]string{}}
	nodes := c.tickets.numbered(c.process.Nodes())
	if s.versions {
		nodes = c.versions(nodes)
	}
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

// jitter draws by the time and the client, and not from a stream: workers that become ready at
// the same moment would share it in any order.
func (c *client) jitter(limit time.Duration) time.Duration {
	dice := rand.New(rand.NewPCG(c.schedule.seed<<8+uint64(c.id), uint64(c.schedule.world.Now().UnixNano())))
	return time.Duration(dice.Int64N(int64(limit)))
}

// misconfigure gives a client settings that the others do not have. A server
// that remembers the others' settings refuses such a client; one that is new or
// has forgotten may record the wrong ones first.
func (c *client) misconfigure(nodes []protocol.Node, opts []redlock.LockerOption) ([]protocol.Node, []redlock.LockerOption) {
	s := c.schedule
	if s.forgets || s.fresh || s.plan.IntN(2) == 0 {
		return nodes, opts
	}
	switch s.plan.IntN(3) {
	case 0:
		s.coverage.count(otherNodes)
		nodes = nodes[:1+s.plan.IntN(len(nodes)-1)]
	case 1:
		s.coverage.count(noGuard)
		opts = append(opts, redlock.MemoryGuard(false))
	case 2:
		s.coverage.count(sameTwice)
		nodes[len(nodes)-1] = alias{nodes[0]}
	}
	return nodes, opts
}

// An alias is a server by another of its addresses. (It is not another of its databases:
// a client with one of those in the place of a server is a client with other servers, whose
// quorum need not meet that of the others.)
type alias struct{ protocol.Node }

func (a alias) String() string { return a.Node.String() + " again" }

// Observe implements redlock.Observer: an extension names a new deadline.
func (c *client) Observe(e redlock.Event) {
	s := c.schedule
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e.Kind {
	case redlock.EventVote:
		c.vote(e)
	case redlock.EventAttempt:
		if e.Err == nil {
			c.asked = s.elapsed() - time.Duration(float64(e.Elapsed)/c.rate) - time.Microsecond // rounding
			c.askedFor[e.Name] = c.asked
		}
	case redlock.EventExtended:
		for h := range c.active {
			if h.name != e.Name || e.Remaining == 0 || h.lock.Remaining() != e.Remaining {
				continue // another worker's, which has yet to notice a loss; or over again
			}
			if h.handedOver {
				s.coverage.count(handoversExtended)
			}
			if now := s.elapsed(); now >= h.until {
				s.problem("P3: %v\n    was extended %v after its deadline", h, now-h.until)
			}
			h.until = c.deadline(e.Remaining)
		}
	}
}

// vote counts what the memory guard did.
func (c *client) vote(e redlock.Event) {
	s := c.schedule
	var quarantine *protocol.QuarantineError
	switch {
	case e.Op == protocol.OpRaise && e.Outcome == protocol.Granted:
		s.coverage.count(raises)
	case errors.As(e.Err, &quarantine) && strings.Contains(quarantine.Reason, "ahead"):
		s.coverage.count(jumps)
	case quarantine != nil && quarantine.Left > 0:
		s.coverage.count(quarantines)
	case e.Err != nil && (quarantine != nil || strings.Contains(e.Err.Error(), "its memory")):
		s.coverage.count(voidVotes)
	}
}

// deadline converts what is left by the process's clock into true time.
func (c *client) deadline(left time.Duration) time.Duration {
	return c.schedule.elapsed() + time.Duration(float64(left)/c.rate)
}

// begin notes a new lock, which is a reader's or a writer's. It returns nil if the process has died, which then gets none.
func (c *client) begin(lock *redlock.Lock, reads bool) *hold {
	s := c.schedule
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.dead.Load() {
		return nil
	}
	asked, before := c.asked, c.latest[lock.Value()]
	if at, ok := c.askedFor[lock.Name()]; ok { // also where it was handed over by a lock of several names
		asked = at
	}
	if before != nil { // this one came by a handover, or shares the session
		asked = before.asked
		if !s.beyond { // nobody else can have had it meanwhile
			asked = before.from
		}
	}
	h := &hold{client: c.id, lock: lock, name: lock.Name(), keys: lock.Names(), reads: reads, token: lock.Fence(), asked: asked,
		handedOver: before != nil, from: s.elapsed(), until: c.deadline(lock.Remaining())}
	c.latest[lock.Value()] = h
	s.holds = append(s.holds, h)
	s.granted = append(s.granted, h)
	if len(h.keys) > 1 {
		c.beginSet(h)
	}
	if h.handedOver {
		s.coverage.count(handedOver)
	}
	if slot := lock.Permit(); slot > 0 {
		h.keys = []string{fmt.Sprint(lock.Name(), " permit ", slot)}
		s.coverage.count(otherPermits)
	}
	switch {
	case h.reads:
		s.coverage.count(readLocks)
	case h.token > 0:
		s.coverage.count(fencedLocks)
	case len(h.keys) > 1:
		s.coverage.count(setLocks)
	default:
		s.coverage.count(plainLocks)
	}
	if cause := context.Cause(lock.Context()); cause == nil && h.from >= h.until {
		s.problem("P3: %v\n    was over when it was acquired", h)
	}
	c.active[h] = true
	s.coverage.hold(1)
	context.AfterFunc(lock.Context(), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		c.stopped(h)
		if errors.Is(context.Cause(lock.Context()), redlock.ErrLost) && !c.dead.Load() {
			s.coverage.count(locksLost)
			if h.handedOver {
				s.coverage.count(handoversLost)
			}
			h.lostAt = s.elapsed()
		}
	})
	if s.waiting[h.name] > 1 {
		s.coverage.count(contended)
	}
	return h
}

// beginSet notes the tokens of a lock of several names. They were asked for together, or each on its own.
// One that came by a handover was asked for with the vote before.
func (c *client) beginSet(h *hold) {
	s := c.schedule
	first, last := s.elapsed(), time.Duration(0)
	for _, name := range h.keys {
		first, last = min(first, c.askedFor[name]), max(last, c.askedFor[name])
	}
	if last-first > 2*time.Microsecond { // more than rounding
		s.coverage.count(setsGathered)
	}
	for _, name := range h.keys {
		of := *h
		of.keys, of.token, of.asked = []string{name}, h.lock.FenceOf(name), c.askedFor[name]
		if s.granted = append(s.granted, &of); of.token > 0 {
			s.coverage.count(fencedSets)
		}
	}
}

// stopped notes that work under the lock has ended.
func (c *client) stopped(h *hold) {
	if h.over == 0 {
		h.over = c.schedule.elapsed()
		c.schedule.coverage.hold(-1)
	}
	delete(c.active, h)
}

// pauseFor pauses the process for d, or until another pause of it ends.
func (c *client) pauseFor(d time.Duration) {
	c.markPaused()
	c.process.Pause()
	c.schedule.work.Go(func() {
		defer c.schedule.world.PrintSeed()
		c.schedule.world.Sleep(d)
		c.markPaused()
		if !c.dead.Load() {
			c.process.Resume()
		}
	})
}

func (c *client) markPaused() {
	c.schedule.mu.Lock()
	defer c.schedule.mu.Unlock()
	for h := range c.active {
		h.paused = true
	}
}

// die ends the process, and all work that it did under locks.
func (c *client) die() {
	c.process.Crash()
	c.schedule.mu.Lock()
	defer c.schedule.mu.Unlock()
	c.dead.Store(true)
	for h := range c.active {
		c.stopped(h)
	}
}
