package schedules

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// A worker is one of the callers of a process.
type worker struct {
	*client
	dice *rand.Rand
}

// upTo draws a duration above zero.
func (w *worker) upTo(d time.Duration) time.Duration {
	return time.Duration(1 + w.dice.Int64N(int64(d)))
}

// cycle acquires, holds and releases a lock.
func (w *worker) cycle() {
	s := w.schedule
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	timeout := w.upTo(3 * scheduleTTL)
	if w.dice.IntN(8) == 0 {
		timeout = w.upTo(3 * s.network.base) // in the midst of a vote
	}
	stop := w.process.Clock().AfterFunc(timeout, cancel)
	if w.dice.IntN(12) == 0 {
		w.pauseSoon()
	}
	var lock *redlock.Lock
	var err error
	reads := s.readers > 0 && w.dice.IntN(8) < s.readers
	if s.sets > 0 && w.dice.IntN(8) < s.sets {
		lock, err = w.acquireSet(ctx)
		reads = false
	} else if reads {
		lock, err = w.acquire(ctx, append(w.options(false), redlock.Shared()))
	} else {
		lock, err = w.acquire(ctx, w.options(true))
	}
	stop.Stop()
	if err != nil {
		if ctx.Err() != nil {
			s.coverage.count(cancelled)
		}
		w.process.Sleep(w.upTo(50 * time.Millisecond))
		return
	}
	h := w.begin(lock, reads)
	if h == nil {
		return
	}
	w.work(lock)
	w.finish(h, lock)
}

// options draws those of one lock, which is one of one writer, or shared or of several names.
func (w *worker) options(alone bool) (opts []redlock.Option) {
	s := w.schedule
	if alone && w.dice.IntN(8) < s.fenced {
		opts = append(opts, redlock.Fenced())
	}
	switch {
	case s.mixed && w.dice.IntN(2) == 0:
		ttl := anyTTL(w.dice)
		s.coverage.count(mixedLocks)
		opts = append(opts, redlock.TTL(ttl), redlock.NodeTimeout(ttl/2))
	case !s.mixed && w.dice.IntN(6) == 0:
		ttl := w.upTo(w.ttl/2) + w.ttl/2
		opts = append(opts, redlock.TTL(ttl), redlock.NodeTimeout(ttl/2))
	}
	if w.dice.IntN(8) < s.fair {
		opts = append(opts, redlock.Fair())
	}
	if s.permits > 0 && alone {
		opts = append(opts, redlock.Permits(1+w.dice.IntN(s.permits)))
	}
	return opts
}

func (w *worker) acquire(ctx context.Context, opts []redlock.Option) (*redlock.Lock, error) {
	s := w.schedule
	if s.longTTLs && !s.maxTTL && w.dice.IntN(8) == 0 {
		lock, err := w.locker.TryAcquire(ctx, w.name, append(opts, redlock.TTL(longTTL), redlock.NodeTimeout(w.ttl/2))...)
		if err == nil {
			s.coverage.count(longGranted)
		} else {
			s.coverage.count(longRefused)
		}
		return lock, err
	}
	if w.dice.IntN(6) == 0 {
		return w.locker.TryAcquire(ctx, w.name, opts...)
	}
	if (s.beyond || s.ahead > 0) && w.dice.IntN(2) == 0 { // servers may never agree on a token
		opts = append(opts, redlock.Retries(20))
	}
	s.addWaiting(w.name, 1)
	defer s.addWaiting(w.name, -1)
	return w.locker.Acquire(ctx, w.name, opts...)
}

// acquireSet acquires several names, in any order.
func (w *worker) acquireSet(ctx context.Context) (*redlock.Lock, error) {
	s := w.schedule
	names := []string{"a", "b", "c", "d"}
	w.dice.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	names = names[:2+w.dice.IntN(3)]
	opts := w.options(false)
	if w.dice.IntN(8) < s.fenced {
		opts = append(opts, redlock.Fenced())
	}
	if w.dice.IntN(6) == 0 {
		return w.locker.TryAcquireAll(ctx, names, opts...)
	}
	if w.dice.IntN(8) == 0 {
		opts = append(opts, redlock.Retries(20))
	}
	s.addWaiting(w.name, 1)
	defer s.addWaiting(w.name, -1)
	return w.locker.AcquireAll(ctx, names, opts...)
}

// pauseSoon pauses the process while its next requests are under way, and mostly until
// they have timed out.
func (w *worker) pauseSoon() {
	s := w.schedule
	after, d := w.upTo(4*s.network.base), w.upTo(scheduleTTL*3/2)
	s.work.Go(func() {
		defer s.world.PrintSeed()
		s.world.Sleep(after)
		if !w.dead.Load() {
			s.coverage.fault(pausedWhileAsking)
			w.pauseFor(d)
		}
	})
}

// work spends time under the lock, now and then with an extension, and at times with a
// release in the midst of one.
func (w *worker) work(lock *redlock.Lock) {
	s := w.schedule
	clock := w.process.Clock()
	over := make(chan struct{})
	work := w.upTo(scheduleTTL * []time.Duration{1, 10, 100, 300}[w.dice.IntN(4)] / 100)
	if w.dice.IntN(4) == 0 {
		work = 4 * scheduleTTL // longer than most locks live
	}
	later := func(d time.Duration, f func()) (stop func()) {
		s.work.Add(1)
		timer := clock.AfterFunc(d, func() { defer s.work.Done(); f() })
		return func() {
			if timer.Stop() {
				s.work.Done()
			}
		}
	}
	if w.dice.IntN(3) == 0 {
		at, pause := w.upTo(work), w.dice.IntN(6) == 0
		defer later(at, func() {
			if pause {
				w.pauseSoon()
			}
			lock.Extend(context.Background()) // its result comes to Observe
		})()
		if w.dice.IntN(3) == 0 {
			defer later(at+w.upTo(4*s.network.base), func() {
				if lock.Valid() {
					s.coverage.count(releasedWhileExtending)
				}
				lock.Release(context.Background())
			})()
		}
	}
	clock.AfterFunc(work, func() { close(over) })
	select {
	case <-over:
	case <-lock.Context().Done():
	}
	w.process.Sleep(time.Microsecond) // after a loss, the library's release goes first in every replay
}

func (w *worker) finish(h *hold, lock *redlock.Lock) {
	s := w.schedule
	s.mu.Lock()
	w.stopped(h)
	s.mu.Unlock()
	err := lock.Release(context.Background())
	cause := context.Cause(lock.Context())
	if errors.Is(cause, redlock.ErrLost) && !errors.Is(err, redlock.ErrLost) || cause == nil {
		s.problem("P4: %v\n    was released with %v, and its context ended with %v", h, err, cause)
	}
	if w.dice.IntN(8) == 0 {
		s.coverage.count(releasedTwice)
		if err := lock.Release(context.Background()); err == nil {
			s.problem("P4: %v\n    could be released twice", h)
		}
	}
	if lock.Valid() {
		s.problem("P3: %v\n    is valid after its release", h)
	}
	w.process.Sleep(time.Microsecond) // after a handover the next holder goes first in every replay
}
