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
	"github.com/redquorum/redquorum/internal/timetest"
	"github.com/redquorum/redquorum/redlock"
)

// A hold is one lock's life, in true time since the schedule's start.
type hold struct {
	client int
	lock   *redlock.Lock
	keys   []string // of each of which there is one holder at a time: the names, or a permit of a name
	tokens []int64  // of each; zero: none
	reads  bool     // beside other readers
	from   time.Duration
	over   time.Duration // it was released or noticed the loss, whichever came first; zero: neither yet
	until  time.Duration // the deadline, if its process was paused when that passed; zero: it was not
}

// relied is the hold as P1 looks at it: a holder that keeps the rules stops at its deadline at the latest, even if it
// was paused when its context ended.
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
	closed  atomic.Bool // before the schedule's end
}

func (s *schedule) newClient() *client {
	c := &client{schedule: s, id: len(s.clients)}
	c.process = s.world.NewClient(1)
	for i := range 1 + s.plan.IntN(s.crowd) {
		c.workers = append(c.workers, &worker{c, s.world.Rand(fmt.Sprint("worker ", c.id, " ", i))})
	}
	opts := []redlock.LockerOption{
		redlock.TTL(longest), redlock.MaxTTL(longest), // which servers that have all forgotten cannot tell
		redlock.Renew(s.plan.IntN(3) > 0), timetest.Clock(c.process.Clock()), timetest.Wall(s.world.Now),
		// Not from a stream: workers that become ready at the same moment would share it in any order.
		timetest.Jitter(func(limit time.Duration) time.Duration {
			dice := rand.New(rand.NewPCG(s.seed<<8+uint64(c.id), uint64(s.world.Now().UnixNano())))
			return time.Duration(dice.Int64N(int64(limit)))
		}),
	}
	if s.plan.IntN(2) == 0 { // long enough for slow votes to count
		opts = append(opts, redlock.NodeTimeout(longest/2))
	}
	var err error
	if c.locker, err = redlock.New(c.process.Nodes(), opts...); err != nil {
		panic(err)
	}
	s.clients = append(s.clients, c)
	return c
}

// begin notes a new lock.
func (c *client) begin(lock *redlock.Lock, reads bool) *hold {
	h := &hold{client: c.id, lock: lock, keys: lock.Names(), reads: reads, from: c.elapsed()}
	for _, name := range h.keys {
		h.tokens = append(h.tokens, lock.FenceOf(name))
	}
	if slot := lock.Permit(); slot > 0 {
		h.keys = []string{fmt.Sprint(lock.Name(), " permit ", slot)}
		if c.count("permit above the first"); slot >= c.permits {
			c.problem("P1: %v, and there are %d", h, c.permits)
		}
	}
	switch {
	case reads:
		c.count("lock of a reader")
	case len(h.keys) > 1:
		c.count("lock of several names")
	case lock.Fence() > 0:
		c.count("lock with a token")
	default:
		c.count("plain lock")
	}
	if lock.Remaining() <= 0 && lock.Context().Err() == nil {
		c.problem("P3: %v\n    was over when it was acquired", h)
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

// stopped notes that work under the lock has ended.
func (c *client) stopped(h *hold) {
	if h.over == 0 {
		h.over = c.elapsed()
	}
}

// pauseFor pauses the process for d, or until another pause of it ends.
func (c *client) pauseFor(d time.Duration) {
	c.count("process paused")
	c.process.Pause()
	c.eachHold(func(h *hold) {
		if h.until == 0 { // nothing can change the deadline until it goes on
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
		c.process.Resume()
	})
}

// eachHold calls f for all that the process holds.
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

// one draws whether something comes that comes in one of so many cases.
func (w *worker) one(of int) bool { return w.dice.IntN(of) == 0 }

// cycle acquires, holds and releases a lock.
func (w *worker) cycle() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	timeout := upTo(w.dice, 3*longest)
	if w.one(8) {
		timeout = upTo(w.dice, 5*time.Millisecond) // in the midst of a vote
	}
	stop := w.process.Clock().AfterFunc(timeout, cancel)
	if w.one(12) { // while its next requests are under way, and mostly until they have timed out
		after, d := upTo(w.dice, 5*time.Millisecond), upTo(w.dice, longest*3/2)
		w.goes(func() {
			w.world.Sleep(after)
			w.pauseFor(d)
		})
	}
	reads := w.dice.IntN(8) < w.readers
	lock, err := w.acquire(ctx, reads)
	if stop.Stop(); err != nil {
		if ctx.Err() != nil {
			w.count("context ended")
		}
		w.process.Sleep(upTo(w.dice, 50*time.Millisecond))
		return
	}
	h := w.begin(lock, reads && len(lock.Names()) == 1)
	w.work(lock)
	w.finish(h)
}

// acquire asks for a lock of any kind.
func (w *worker) acquire(ctx context.Context, reads bool) (*redlock.Lock, error) {
	var opts []redlock.Option
	isSet := w.dice.IntN(8) < w.sets
	if w.dice.IntN(8) < w.fenced && (isSet || !reads) {
		opts = append(opts, redlock.Fenced())
	}
	if w.dice.IntN(8) < w.fair {
		opts = append(opts, redlock.Fair())
	}
	switch {
	case isSet:
	case reads:
		opts = append(opts, redlock.Shared())
	case w.permits > 0:
		opts = append(opts, redlock.Permits(1+w.dice.IntN(w.permits)))
	}
	if w.one(6) {
		opts = append(opts, redlock.Retries(0))
	}
	if isSet {
		names := []string{"a", "b", "c", "d"}
		w.dice.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		return w.locker.AcquireAll(ctx, names[:2+w.dice.IntN(3)], opts...)
	}
	return w.locker.Acquire(ctx, "a", opts...)
}

// work spends time under the lock, now and then with an extension, and at times with a release in the midst of one.
func (w *worker) work(lock *redlock.Lock) {
	spent := upTo(w.dice, longest*[]time.Duration{1, 10, 100, 300}[w.dice.IntN(4)]/100)
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
	w.process.Sleep(time.Microsecond) // after a loss, the library's release goes first in every replay
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
	w.process.Sleep(time.Microsecond) // after a handover the next holder goes first in every replay
}
