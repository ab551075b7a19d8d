package schedules

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/internal/evidence/check"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// A hold is the life of one lock, in true time since the schedule's start.
type hold struct {
	client int
	lock   *redlock.Lock
	keys   []string // names, or permits of a name; each has one holder at a time
	tokens []int64  // one for each key; zero: none
	reads  bool     // the holder is a reader
	from   time.Duration
	over   time.Duration // when the lock was released or its loss noticed, whichever was first; zero: neither yet
	until  time.Duration // deadline, if it passed while the process was paused; otherwise zero
}

// relied returns the hold as P1 judges it: a holder that obeys the rules stops at its deadline or
// earlier, even if it was paused when its context ended.
func (h *hold) relied() check.Hold {
	until := h.over
	if h.until > 0 {
		until = min(until, h.until)
	}
	return check.Hold{From: int64(h.from), Until: int64(until), Shared: h.reads}
}

func (h *hold) String() string {
	return fmt.Sprintf("client %d held %s from %v to %v with tokens %d", h.client, strings.Join(h.keys, " and "), h.from, time.Duration(h.relied().Until), h.tokens)
}

// A client is a process with a Locker.
type client struct {
	*schedule
	process *sim.Client
	id      int
	locker  *redlock.Locker
	workers []*worker
	closed  atomic.Bool // closed before the end of the schedule

	observed          bool
	timeout, patience time.Duration // defaults for calls

	pauses []*span // pauses of the process; guarded by the schedule
}

// slotName returns the name of a permit.
func slotName(slot int) string {
	if slot == 0 {
		return "a"
	}
	return fmt.Sprint("a permit ", slot)
}

func (s *schedule) newClient() *client {
	c := &client{schedule: s, id: len(s.clients)}
	c.process = s.world.NewClient(1)
	for i := range 1 + s.plan.IntN(s.crowd) {
		c.workers = append(c.workers, &worker{c, s.world.Rand(fmt.Sprint("worker ", c.id, " ", i))})
	}
	opts := []redlock.LockerOption{
		redlock.TTL(longest), redlock.MaxTTL(longest), // servers that have all forgotten their locks cannot report this TTL
		redlock.Renew(s.plan.IntN(3) > 0), sim.Clock(c.process.Clock()), sim.Wall(s.world.Now),
		// The draws do not come from one stream of random numbers, because workers that become
		// ready at the same moment would use it in any order.
		sim.Jitter(func(limit time.Duration) time.Duration {
			dice := rand.New(rand.NewPCG(s.seed<<8+uint64(c.id), uint64(s.world.Now().UnixNano())))
			return time.Duration(dice.Int64N(int64(limit)))
		}),
	}
	c.timeout = timeouts[max(s.plan.IntN(2*len(timeouts)), len(timeouts)-1)%len(timeouts)] // mostly long enough for slow votes to count
	c.patience = []time.Duration{0, longest / 5, longest, 3 * longest}[s.plan.IntN(4)]
	opts = append(opts, redlock.NodeTimeout(c.timeout), redlock.Patience(c.patience))
	if c.observed = s.plan.IntN(2) == 0; c.observed {
		opts = append(opts, redlock.Observe(c))
	}
	var err error
	if c.locker, err = redlock.New(c.process.Nodes(), opts...); err != nil {
		panic(err)
	}
	s.clients = append(s.clients, c)
	return c
}

// begin records a new lock.
func (c *call) begin() *hold {
	lock := c.lock
	h := &hold{client: c.id, lock: lock, keys: lock.Names(), reads: c.reads, from: c.elapsed()}
	for _, name := range h.keys {
		h.tokens = append(h.tokens, lock.FenceOf(name))
	}
	if c.permit > 1 {
		h.keys = nil
		for _, slot := range lock.Permits() {
			h.keys = append(h.keys, slotName(slot))
			h.tokens = append(h.tokens, 0)
			if slot >= c.permit {
				c.problem("P1: %v, but the name has %d permits", h, c.permit)
			}
			if slot > 0 {
				c.count("permit above the first")
			}
		}
		if len(h.keys) != c.weight {
			c.problem("P1: %v, of weight %d", h, c.weight)
		}
	}
	switch {
	case c.weight > 1:
		c.count("lock of several permits")
	case c.reads:
		c.count("lock of a reader")
	case len(h.keys) > 1:
		c.count("lock of several names")
	case lock.Fence() > 0:
		c.count("lock with a token")
	default:
		c.count("plain lock")
	}
	if lock.Remaining() <= 0 && lock.Context().Err() == nil {
		c.problem("P3: %v\n    had ended when it was acquired", h)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holds = append(c.holds, h)
	context.AfterFunc(lock.Context(), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.stopped(h)
		if errors.Is(context.Cause(lock.Context()), redlock.ErrLost) {
			c.coverage["lock lost"]++
		}
	})
	return h
}

// stopped records that the work under the lock has ended.
func (c *client) stopped(h *hold) {
	if h.over == 0 {
		h.over = c.elapsed()
	}
}

// pauseFor pauses the process for d, or until another of its pauses ends.
func (c *client) pauseFor(d time.Duration) {
	c.count("process paused")
	c.process.Pause()
	pause := &span{from: c.elapsed(), until: never}
	c.mu.Lock()
	c.pauses = append(c.pauses, pause)
	c.mu.Unlock()
	c.eachHold(func(h *hold) {
		if h.until == 0 { // the deadline cannot change until the process continues
			h.until = c.elapsed() + h.lock.Remaining()
		}
	})
	c.goes(func() {
		c.world.Sleep(d)
		c.eachHold(func(h *hold) {
			if c.elapsed() < h.until {
				h.until = 0
			}
		})
		c.note(&pause.until)
		c.process.Resume()
	})
}

// eachHold calls f for every lock that the process holds.
func (c *client) eachHold(f func(*hold)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.holds {
		if h.client == c.id && h.over == 0 {
			f(h)
		}
	}
}

// A worker is one of the callers of a process.
type worker struct {
	*client
	dice *rand.Rand
}

// one returns true at random, in one of the given number of cases.
func (w *worker) one(of int) bool { return w.dice.IntN(of) == 0 }

// cycle acquires, holds and releases a lock.
func (w *worker) cycle() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	timeout := upTo(w.dice, 3*longest)
	if w.one(8) {
		timeout = upTo(w.dice, 5*time.Millisecond) // during an attempt
	}
	stop := w.process.Clock().AfterFunc(timeout, cancel)
	if w.one(12) && !w.calm { // paused while its next requests are in progress, and mostly until they have timed out
		after, d := upTo(w.dice, 5*time.Millisecond), upTo(w.dice, longest*3/2)
		w.goes(func() {
			w.world.Sleep(after)
			w.pauseFor(d)
		})
	}
	c, opts := w.draw()
	lock, err := c.ask(ctx, opts)
	if stop.Stop(); err != nil {
		if ctx.Err() != nil {
			w.count("context ended")
		}
		w.process.Sleep(upTo(w.dice, 50*time.Millisecond))
		return
	}
	h := c.begin()
	w.work(lock)
	w.finish(h)
}

// work spends time under the lock, sometimes with an extension, and sometimes with a release during
// the extension.
func (w *worker) work(lock *redlock.Lock) {
	spent := upTo(w.dice, longest*[]time.Duration{1, 10, 100, 300}[w.dice.IntN(4)]/100)
	if w.calm {
		spent = min(spent, calmHold)
	}
	if w.one(3) {
		extends := upTo(w.dice, spent)
		releases := extends + upTo(w.dice, 5*time.Millisecond)
		w.goes(func() {
			w.process.Sleep(extends)
			lock.Extend(context.Background())
		})
		if w.one(3) {
			w.goes(func() {
				w.process.Sleep(releases)
				if lock.Valid() {
					w.count("released during an extension")
				}
				lock.Release(context.Background())
			})
		}
	}
	over := make(chan struct{})
	w.process.Clock().AfterFunc(spent, func() { close(over) })
	select {
	case <-over:
	case <-lock.Context().Done():
	}
	w.process.Sleep(time.Microsecond) // makes the library's release after a loss the first in every replay
}

func (w *worker) finish(h *hold) {
	w.mu.Lock()
	w.stopped(h)
	w.mu.Unlock()
	lock := h.lock
	err := lock.Release(context.Background())
	if cause := context.Cause(lock.Context()); errors.Is(cause, redlock.ErrLost) && !errors.Is(err, redlock.ErrLost) || cause == nil {
		w.problem("P4: %v\n    was released with %v, and its context ended with %v", h, err, cause)
	}
	if w.one(8) {
		if err := lock.Release(context.Background()); err == nil {
			w.problem("P4: %v\n    could be released twice", h)
		}
	}
	if lock.Valid() {
		w.problem("P3: %v\n    is valid after its release", h)
	}
	w.process.Sleep(time.Microsecond) // makes the next holder after a handover the first in every replay
}
