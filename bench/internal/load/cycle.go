package load

import (
	"context"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
	"github.com/redquorum/redquorum/bench/internal/subject"
)

// callers are what those of one process have in common.
type callers struct {
	client   subject.Client
	first, n int // their numbers, of all processes
	names    names
	hold     time.Duration
	patience time.Duration
	clock    clock
	rec      *recorder
	// asking ends when the trial does. Releasing goes on until the process gives up:
	// a caller that leaves its locks behind would not be one of this world. asking has
	// no deadline, which libraries would look at.
	asking, releasing context.Context
}

// A caller acquires, holds and releases one lock after the other.
type caller struct {
	*callers
	number int // of all processes
	index  int // of this process
	pick   func() int
	timer  *time.Timer // of the hold
}

func (cs *callers) caller(index int) *caller {
	c := &caller{callers: cs, number: cs.first + index, index: index, timer: time.NewTimer(time.Hour)}
	c.timer.Stop()
	c.pick = cs.names.picker(c.number)
	return c
}

// run makes cycles at the pace until there are no more.
func (c *caller) run(p pace) {
	for from, ok := p.next(); ok; from, ok = p.next() {
		c.cycle(from)
	}
}

// cycle is one acquisition, counted from that moment, and its release.
func (c *caller) cycle(from time.Time) {
	name := c.pick()
	lock, err := c.acquire(c.names.all[name])
	acquired := time.Now()
	if err != nil {
		c.rec.ended(acquired, subject.Outcome(err), err)
		return
	}
	c.rec.acquired(acquired, acquired.Sub(from))

	lost := c.hold > 0 && c.holding(lock)
	var until time.Time
	if c.names.shared() {
		until = lock.Until()
	}
	releasing := time.Now()
	if c.names.shared() {
		if releasing.Before(until) {
			until = releasing
		}
		c.rec.held(holding{name: uint32(name), caller: uint32(c.number), from: c.clock.nanos(acquired), to: c.clock.nanos(until)})
	}
	err = lock.Release(c.releasing)
	released := time.Now()
	switch took := released.Sub(releasing); {
	case lost:
		c.rec.ended(released, record.Lost, err)
	case err != nil:
		c.rec.ended(released, subject.Outcome(err), err)
	default:
		c.rec.succeeded(c.index, released, acquired.Sub(from)+took, took)
	}
}

func (c *caller) acquire(name string) (subject.Lock, error) {
	if c.patience == 0 {
		return c.client.Acquire(c.asking, name)
	}
	ctx, cancel := context.WithTimeout(c.asking, c.patience)
	defer cancel()
	return c.client.Acquire(ctx, name)
}

// patienceAllocs is what a context with a timeout takes from the heap, before any
// library looks at it. It is not counted.
const patienceAllocs = 4

// holding reports whether the lock's loss was told before the hold was over.
func (c *caller) holding(lock subject.Lock) (lost bool) {
	c.timer.Reset(c.hold)
	defer c.timer.Stop()
	select {
	case <-c.timer.C:
	case <-lock.Lost():
		lost = true
	case <-c.asking.Done():
	}
	return lost
}
