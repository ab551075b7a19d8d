package redlock

import (
	"context"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
)

// A parker is what one goroutine sleeps on: a signal and a timer that gives
// it. Signals may be spurious (a timer's last firing can arrive after it was
// stopped), so whoever sleeps looks at the facts again after each.
type parker struct {
	signal chan struct{} // capacity 1: a signal is a state, not a count
	timer  clock.Timer
}

// parkers are reused: a channel and a timer for every vote would be several
// allocations each.
type parkers struct {
	clock clock.Clock
	pool  sync.Pool
}

func (ps *parkers) get() *parker {
	if p, ok := ps.pool.Get().(*parker); ok {
		return p
	}
	p := &parker{signal: make(chan struct{}, 1)}
	p.timer = ps.clock.AfterFunc(time.Hour, p.wake)
	p.timer.Stop()
	return p
}

func (ps *parkers) put(p *parker) {
	p.timer.Stop()
	p.drain()
	ps.pool.Put(p)
}

// wake signals; it never blocks.
func (p *parker) wake() {
	select {
	case p.signal <- struct{}{}:
	default:
	}
}

func (p *parker) drain() {
	select {
	case <-p.signal:
	default:
	}
}

// sleep returns at a signal, when ctx ends or when done is closed.
func (p *parker) sleep(ctx context.Context, done <-chan struct{}) {
	select {
	case <-p.signal:
	case <-ctx.Done():
	case <-done:
	}
}
