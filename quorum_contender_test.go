package redquorum_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// A hold is one lock's life, in true time.
type hold struct {
	start  time.Time // of the schedule
	client int
	name   string
	from   time.Time // Acquire returned
	until  time.Time // the latest deadline that the library has named
	over   time.Time // released or told of the loss, whichever was first
	told   time.Time // of the loss; zero if it was released in time
	paused bool      // the process was, at some time during the hold
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
	return fmt.Sprintf("client %d held %s from %v to %v (deadline %v)", h.client, h.name,
		h.from.Sub(h.start), h.end().Sub(h.start), h.until.Sub(h.start))
}

// A contender is a process with a Locker.
type contender struct {
	schedule *schedule
	process  *sim.Client
	id       int
	rate     float64
	locker   *redlock.Locker
	active   map[*hold]bool // guarded by schedule.mu
}

func (s *schedule) newContender() *contender {
	c := &contender{schedule: s, id: len(s.clients), rate: s.rate(), active: map[*hold]bool{}}
	c.process = s.world.NewClient(c.rate)
	dice := s.world.Rand(fmt.Sprint("jitter ", c.id))
	opts := []redlock.Option{
		redlock.TTL(scheduleTTL), redlock.Clock(c.process.Clock()), redlock.Observe(c), redlock.Renew(s.plan.IntN(3) > 0),
		redlock.Jitter(func(limit time.Duration) time.Duration { return time.Duration(dice.Int64N(int64(limit))) }),
	}
	if s.plan.IntN(2) == 0 { // long enough for slow votes to count
		opts = append(opts, redlock.NodeTimeout(scheduleTTL/2))
	}
	if s.plan.IntN(3) == 0 {
		opts = append(opts, redlock.MaxHold(scheduleTTL/2+time.Duration(s.plan.Int64N(int64(2*scheduleTTL)))))
	}
	locker, err := redlock.New(c.process.Nodes(), opts...)
	if err != nil {
		panic(err)
	}
	c.locker = locker
	return c
}

// Observe implements redlock.Observer: an extension names a new deadline.
func (c *contender) Observe(e redlock.Event) {
	if e.Kind != redlock.EventExtended {
		return
	}
	c.schedule.mu.Lock()
	defer c.schedule.mu.Unlock()
	for h := range c.active {
		if h.name != e.Name {
			continue
		}
		if !time.Now().Before(h.until) {
			c.schedule.problem("P3: %v\n    was extended %v after its deadline", h, time.Since(h.until))
		}
		h.until = c.deadline(e.Remaining)
	}
}

// deadline converts what is left by the process's clock into true time.
func (c *contender) deadline(left time.Duration) time.Time {
	return time.Now().Add(time.Duration(float64(left) / c.rate))
}

// turn acquires, holds and gives back a lock.
func (c *contender) turn(dice *rand.Rand, name string) {
	s := c.schedule
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stop := c.process.Clock().AfterFunc(time.Duration(dice.Int64N(int64(3*scheduleTTL))), cancel)
	s.wait(name, 1)
	lock, err := c.locker.Acquire(ctx, name)
	s.wait(name, -1)
	stop.Stop()
	if err != nil {
		c.process.Sleep(time.Duration(1 + dice.Int64N(int64(50*time.Millisecond))))
		return
	}
	h := c.begin(lock)
	if dice.IntN(4) == 0 {
		lock.Extend(ctx) // in vain or not: the observer hears
	}
	over := make(chan struct{})
	work := time.Duration(1 + dice.Int64N(int64(scheduleTTL)*[]int64{1, 10, 30}[dice.IntN(3)]/10))
	if dice.IntN(4) == 0 {
		work = 4 * scheduleTTL // longer than most locks live
	}
	c.process.Clock().AfterFunc(work, func() { close(over) })
	select {
	case <-over:
	case <-lock.Context().Done():
	}
	c.process.Sleep(time.Microsecond) // after a loss, the library's release goes first in every replay
	c.finish(h, lock)
}

func (c *contender) begin(lock *redlock.Lock) *hold {
	s := c.schedule
	s.mu.Lock()
	defer s.mu.Unlock()
	h := &hold{start: s.start, client: c.id, name: lock.Name(), from: time.Now(), until: c.deadline(lock.Remaining())}
	s.holds = append(s.holds, h)
	if !h.from.Before(h.until) {
		s.problem("P3: %v\n    was over when it was acquired", h)
	}
	c.active[h] = true
	context.AfterFunc(lock.Context(), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		c.stopped(h)
		if errors.Is(context.Cause(lock.Context()), redlock.ErrLost) {
			h.told = time.Now()
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
		h.over = time.Now()
	}
	delete(c.active, h)
}

func (c *contender) finish(h *hold, lock *redlock.Lock) {
	s := c.schedule
	s.mu.Lock()
	c.stopped(h)
	s.mu.Unlock()
	err := lock.Release(context.Background())
	cause := context.Cause(lock.Context())
	if errors.Is(cause, redlock.ErrLost) && !errors.Is(err, redlock.ErrLost) || cause == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.problem("P4: %v\n    was released with %v, and its context ended with %v", h, err, cause)
	}
}

func (c *contender) markPaused() {
	c.schedule.mu.Lock()
	defer c.schedule.mu.Unlock()
	for h := range c.active {
		h.paused = true
	}
}
