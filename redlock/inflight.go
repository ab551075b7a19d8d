package redlock

import (
	"context"
	"sync"
	"time"
)

// inflight counts what Close waits for: acquisitions under way, locks that are
// being handed over, and releases that not every node has replied to.
type inflight struct {
	mu     sync.Mutex
	n      int
	closed bool
	idle   chan struct{} // capacity 1: n fell to zero
}

// begin counts an acquisition, unless the Locker is closed.
func (f *inflight) begin() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.n++
	}
	return !f.closed
}

// add counts a release, or a lock that has no holder for the moment. It is made
// even after close: what an acquisition took while the Locker was being closed
// must still be given back.
func (f *inflight) add() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
}

func (f *inflight) done() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n--; f.n == 0 {
		select {
		case f.idle <- struct{}{}:
		default:
		}
	}
}

// close lets no acquisition begin any more; it reports whether it is the first
// to do so.
func (f *inflight) close() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	first := !f.closed
	f.closed = true
	return first
}

// wait returns when nothing is counted any more, or after limit.
func (f *inflight) wait(ps *parkers, limit time.Duration) {
	p := ps.get()
	defer ps.put(p)
	end := ps.clock.Now().Add(limit)
	p.timer.Reset(limit)
	for {
		f.mu.Lock()
		idle := f.n == 0
		f.mu.Unlock()
		if idle || ps.clock.Now() >= end {
			return
		}
		p.sleep(context.Background(), f.idle)
	}
}
