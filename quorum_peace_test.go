package redquorum_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

const (
	peaceLeg  = time.Millisecond     // each way of each message, about
	peaceWork = 8 * time.Millisecond // how long a lock is held at most
	// peaceRest is how long at most a worker does something else then. Without it
	// one that comes back at once mostly gets the lock again: it asks all servers at
	// the moment at which those who wait ask one first.
	peaceRest = 10 * time.Millisecond

	// longestWait is how many times processes may take the lock from each other
	// while somebody waits who is not fair. Chance decides among them, and favours
	// those who have just come: in 8000 schedules nobody waited for more than 40.
	longestWait = 150
)

// A peace is P5 after the trouble: all compete for one lock, first one of each process
// and then everybody, again and again until each has had it.
type peace struct {
	schedule *schedule
	workers  []*worker
	longest  int // wait, in turns
	opts     []redlock.Option
	handing  bool          // locks are handed over
	patience time.Duration // by the waiters' clocks

	mu      sync.Mutex
	waiting map[*contender]int
	served  map[*worker]bool
	last    *contender // that had the lock
	turns   int        // how many processes have had it, one after the other
	failed  bool
}

// peacefulNet loses nothing. Which of two messages comes first is by lot.
func peacefulNet() sim.Net {
	return sim.Net{Patience: time.Second, Travel: func(_ sim.Leg, r *rand.Rand) (time.Duration, bool) {
		return peaceLeg/2 + time.Duration(r.Int64N(int64(peaceLeg))), false
	}}
}

func (s *schedule) progress() {
	p := &peace{schedule: s, handing: true, waiting: map[*contender]int{}, served: map[*worker]bool{}}
	// Quarantines end within a TTL, and whatever was left behind expires within
	// another; then they take turns.
	p.patience = 3*scheduleTTL + 2*s.later
	if s.fenced > 0 && s.ahead == 0 && !s.back { // servers whose clocks are far apart agree on no token
		p.opts, p.handing = append(p.opts, redlock.Fenced()), false
	}
	if s.fair == 8 {
		p.opts, p.handing = append(p.opts, redlock.Fair()), false
	}
	var first []*worker
	for _, c := range s.clients {
		if !c.retired() {
			first = append(first, c.workers[0])
			p.workers = append(p.workers, c.workers...)
		}
	}
	p.longest = longestWait
	p.each(first, p.turn) // a process that has to wait for nodes loses its place
	clear(p.served)
	p.patience += longestWait * 2 * peaceWork
	if s.fair == 8 {
		p.longest = 2 * len(p.workers) // each other one once, and once more while the place is being taken
	}
	p.each(p.workers, func(w *worker) {
		for p.open() {
			p.turn(w)
		}
	})
}

// each has workers do something at the same time.
func (p *peace) each(workers []*worker, do func(*worker)) {
	var all sync.WaitGroup
	for i, w := range workers {
		all.Go(func() {
			defer p.schedule.world.Blame()
			p.schedule.world.Sleep(time.Duration(i) * 100 * time.Microsecond)
			do(w)
		})
	}
	all.Wait()
}

// open says whether somebody has yet to get the lock.
func (p *peace) open() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.failed && len(p.served) < len(p.workers)
}

// turn waits for the lock, holds it for a moment and gives it back.
func (p *peace) turn(w *worker) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer w.process.Clock().AfterFunc(p.patience, cancel).Stop()
	turns := p.enter(w)
	lock, err := w.locker.Acquire(ctx, "a", p.opts...)
	p.leave(w, turns, err)
	if err != nil {
		return
	}
	h := w.begin(lock)
	w.process.Sleep(w.upTo(peaceWork))
	locals, released := p.waitingWith(w), p.schedule.world.Now()
	w.finish(h, lock)
	if p.handing && locals > 0 && p.schedule.world.Now().Sub(released) >= peaceLeg {
		p.schedule.evidence.note(turnsEnded) // the servers were told
	}
	w.process.Sleep(w.upTo(peaceRest))
}

func (p *peace) enter(w *worker) (turns int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting[w.contender]++
	return p.turns
}

func (p *peace) waitingWith(w *worker) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waiting[w.contender]
}

func (p *peace) leave(w *worker, turns int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting[w.contender]--
	if err != nil {
		p.fail("P5: client %d, with all servers up: %v", w.id, err)
		return
	}
	if n := p.turns - turns; n > p.longest {
		p.fail("P5: client %d waited while others took the lock from each other %d times", w.id, n)
	}
	if p.last != w.contender {
		p.last = w.contender
		p.turns++
	}
	p.served[w] = true
}

// fail notes what went wrong. The peace must be locked.
func (p *peace) fail(format string, args ...any) {
	p.failed = true
	p.schedule.mu.Lock()
	defer p.schedule.mu.Unlock()
	p.schedule.problem(format, args...)
}
