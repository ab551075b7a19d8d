// Package park is what goroutines of a Locker sleep on. It knows nothing of locks.
//
// A sleeper looks at the facts, sleeps, and looks again: a signal says that something may have
// changed, never what.
//
//	look ──nothing to do──► Sleep ──signal, timer, end of the context or the Locker──► look
//
// It promises that a Wake after the look is not lost: it is kept, one of them, until the sleeper
// sleeps. Signals that nobody needs any more are not rejected, but do no harm.
package park

import (
	"context"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
)

// A Parker is what one goroutine sleeps on: a signal, and a timer that gives it. Signals may be
// spurious (a timer's last firing can arrive after it was stopped), so the sleeper looks at the
// facts again after each. Wake is safe for concurrent use, the rest belongs to the sleeper.
type Parker struct {
	signal chan struct{} // capacity 1: a signal is a state, not a count
	timer  clock.Timer
}

// A Lot has the parkers of a Locker. They are reused: a channel and a timer for every vote would be
// several allocations each. It is safe for concurrent use.
type Lot struct {
	Clock clock.Clock // set before the first use
	pool  sync.Pool
}

// Get returns a Parker without a signal, whose timer is stopped. Give it back with Put.
func (l *Lot) Get() *Parker {
	if p, ok := l.pool.Get().(*Parker); ok {
		return p
	}
	p := &Parker{signal: make(chan struct{}, 1)}
	p.timer = l.Clock.AfterFunc(time.Hour, p.Wake)
	p.timer.Stop()
	return p
}

// Put takes a Parker back that the caller got from Get and uses no more.
func (l *Lot) Put(p *Parker) {
	p.timer.Stop()
	select {
	case <-p.signal:
	default:
	}
	l.pool.Put(p)
}

// Wake signals; it never blocks.
func (p *Parker) Wake() {
	select {
	case p.signal <- struct{}{}:
	default:
	}
}

// WakeAfter signals in d, in place of what WakeAfter was called for before.
func (p *Parker) WakeAfter(d time.Duration) { p.timer.Reset(d) }

// Sleep returns at a signal, when ctx ends or when done is closed.
func (p *Parker) Sleep(ctx context.Context, done <-chan struct{}) {
	select {
	case <-p.signal:
	case <-ctx.Done():
	case <-done:
	}
}
