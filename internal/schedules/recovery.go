package schedules

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

const (
	recoveryLeg  = time.Millisecond     // each way of each message, about
	recoveryWork = 8 * time.Millisecond // how long a lock is held at most
	// recoveryRest is how long at most a worker does something else after that. A worker that
	// comes back at once mostly gets the lock again, because it asks all servers at the moment
	// at which those that wait ask one first.
	recoveryRest = 10 * time.Millisecond

	// longestWait is how many times processes may take the lock from each other while a caller
	// waits that is not fair. Chance decides among waiters, and favours those that have just
	// come: in 8000 schedules no caller waited for more than 40.
	longestWait = 150
)

// A recovery is P5 after the faults: all compete for one lock, first one worker of each process
// and then all workers, again and again until each has had it.
type recovery struct {
	schedule *schedule
	workers  []*worker
	longest  int // wait, in moves of the lock
	opts     []redlock.Option
	handover bool          // locks are handed over within a process
	timeout  time.Duration // of an acquisition, by the waiter's clock

	mu      sync.Mutex
	waiting map[*client]int
	served  map[*worker]bool
	last    *client // that had the lock
	moves   int     // of the lock to a process that did not have it last
	failed  bool
}

// recoveredNet loses nothing. Which of two messages comes first is left to chance.
func recoveredNet() sim.Net {
	return sim.Net{Patience: time.Second, Travel: func(_ sim.Leg, r *rand.Rand) (time.Duration, bool) {
		return recoveryLeg/2 + time.Duration(r.Int64N(int64(recoveryLeg))), false
	}}
}

func (s *schedule) runRecovery() {
	r := &recovery{schedule: s, handover: true, waiting: map[*client]int{}, served: map[*worker]bool{}}
	// Quarantines end within a TTL, and the keys that were left behind expire within
	// another; then the processes take turns.
	r.timeout = 3*s.longest() + 2*s.later
	if s.fenced > 0 && s.ahead == 0 && !s.back { // servers whose clocks are far apart agree on no token
		r.opts, r.handover = append(r.opts, redlock.Fenced()), false
		// A client's clock that is far off, and servers that have just forgotten, take tokens so far
		// ahead that other servers accept the next only two seconds later.
		r.timeout += 3 * time.Second
	}
	if s.fair == 8 {
		r.opts, r.handover = append(r.opts, redlock.Fair()), false
	}
	var first []*worker
	for _, c := range s.clients {
		if !c.retired.Load() {
			first = append(first, c.workers[0])
			r.workers = append(r.workers, c.workers...)
		}
	}
	if s.fair == 8 { // each finds that a clock was set only when its turn has come, and waits then
		r.timeout += time.Duration(len(first)-1) * scheduleTTL
	}
	r.longest = longestWait
	r.each(first, r.cycle) // a process that has to wait for nodes loses its place
	clear(r.served)
	r.timeout += longestWait * 2 * recoveryWork
	if s.fair == 8 {
		r.longest = 2 * len(r.workers) // each other one once, and once more while the place is being taken
	}
	r.each(r.workers, func(w *worker) {
		for r.goesOn() {
			r.cycle(w)
		}
	})
}

// each has workers do something at the same time.
func (r *recovery) each(workers []*worker, do func(*worker)) {
	var all sync.WaitGroup
	for i, w := range workers {
		all.Go(func() {
			defer r.schedule.world.PrintSeed()
			r.schedule.world.Sleep(time.Duration(i) * 100 * time.Microsecond)
			do(w)
		})
	}
	all.Wait()
}

// goesOn reports whether a worker has yet to get the lock.
func (r *recovery) goesOn() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.failed && len(r.served) < len(r.workers)
}

// cycle waits for the lock, holds it for a moment and releases it.
func (r *recovery) cycle(w *worker) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer w.process.Clock().AfterFunc(r.timeout, cancel).Stop()
	moves := r.enter(w)
	lock, err := w.locker.Acquire(ctx, "a", r.opts...)
	r.leave(w, moves, err)
	if err != nil {
		return
	}
	h := w.begin(lock, false)
	w.process.Sleep(w.upTo(recoveryWork))
	locals, released := r.waitingWith(w), r.schedule.world.Now()
	w.finish(h, lock)
	if r.handover && locals > 0 && r.schedule.world.Now().Sub(released) >= recoveryLeg {
		r.schedule.coverage.count(turnsEnded) // the lock was released on the servers
	}
	w.process.Sleep(w.upTo(recoveryRest))
}

// enter notes that the worker waits, and returns the moves of the lock until now.
func (r *recovery) enter(w *worker) (moves int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting[w.client]++
	return r.moves
}

// waitingWith returns how many workers of the same process wait.
func (r *recovery) waitingWith(w *worker) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waiting[w.client]
}

// leave notes that the worker has the lock, or an error. moves is what enter returned.
func (r *recovery) leave(w *worker, moves int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting[w.client]--
	if err != nil {
		r.fail("P5: client %d, with all servers up: %v", w.id, err)
		return
	}
	if n := r.moves - moves; n > r.longest {
		r.fail("P5: client %d waited while others took the lock from each other %d times", w.id, n)
	}
	if r.last != w.client {
		r.last = w.client
		r.moves++
	}
	r.served[w] = true
}

// fail notes a broken promise. The recovery must be locked.
func (r *recovery) fail(format string, args ...any) {
	r.failed = true
	r.schedule.problem(format, args...)
}
