package engine

import (
	"slices"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
)

// Limits of the events that an observer may be behind; further events are dropped. Details are
// frequent, and each matters little. Starts and ends of acquisitions and locks must add up, for
// example in a gauge of held locks, so there is room for as many of them as a process may lose at
// one moment.
const (
	maxDetails = 1 << 12
	maxEnds    = 1 << 17
)

// A Queue holds the pending events of one observer. Its goroutine delivers them in order, and lives
// while there are any. Therefore an observer that is slow, or never returns, delays neither the
// goroutines that end and renew locks nor other observers. A Queue is safe for concurrent use.
type Queue[E any] struct {
	tell func(e E, dropped int)

	mu        sync.Mutex
	waiting   []E // pending events, beginning at head
	head      int
	running   bool  // the goroutine is running
	behind    bool  // a caller has waited without success, so no other caller waits until all events are delivered
	entered   int64 // number of events so far
	delivered int64 // number of events that were delivered, or discarded by GiveUp
	dropped   int   // number of dropped events not yet reported to the observer
	listeners []*listener
}

// A listener is a caller that waits until a number of events have been delivered.
type listener struct {
	number int64
	told   chan struct{}
}

// NewQueue returns a Queue for an observer. The Queue calls tell with each event, and with the
// number of events dropped before it.
func NewQueue[E any](tell func(e E, dropped int)) *Queue[E] { return &Queue[E]{tell: tell} }

// Enter adds an event, or drops it. It never waits for the observer.
func (q *Queue[E]) Enter(e E, isDetail bool) {
	limit := int64(maxEnds)
	if isDetail {
		limit = maxDetails
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.entered-q.delivered >= limit {
		q.dropped++
		return
	}
	if n := len(q.waiting); n == cap(q.waiting) && q.head > n/2 {
		q.waiting, q.head = slices.Delete(q.waiting, 0, q.head), 0
	}
	q.entered++
	q.waiting = append(q.waiting, e)
	if !q.running {
		q.running = true
		go q.deliver()
	}
}

// deliver delivers all pending events.
func (q *Queue[E]) deliver() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.head < len(q.waiting) {
		e := q.waiting[q.head]
		clear(q.waiting[q.head : q.head+1]) // the event may reference much memory
		q.head++
		number := q.entered - int64(len(q.waiting)-q.head)
		dropped := q.dropped
		q.dropped = 0
		q.mu.Unlock()
		q.tell(e, dropped)
		q.mu.Lock()
		q.delivered = max(q.delivered, number)
		q.wake()
	}
	q.running, q.behind = false, false
	q.waiting, q.head = q.waiting[:0], 0
	if cap(q.waiting) > maxDetails {
		q.waiting = nil
	}
}

// wake wakes the listeners whose events have been delivered. The caller must hold q.mu.
func (q *Queue[E]) wake() {
	q.listeners = slices.DeleteFunc(q.listeners, func(l *listener) bool {
		if l.number > q.delivered {
			return false
		}
		close(l.told)
		return true
	})
}

// Await returns when all events so far have been delivered, or after limit. If the limit is
// exceeded, the observer is behind, and no other caller waits until it has caught up.
func (q *Queue[E]) Await(c clock.Clock, limit time.Duration) {
	q.mu.Lock()
	if q.delivered >= q.entered || q.behind {
		q.mu.Unlock()
		return
	}
	l := &listener{q.entered, make(chan struct{})}
	q.listeners = append(q.listeners, l)
	q.mu.Unlock()

	late := make(chan struct{})
	defer c.AfterFunc(limit, func() { close(late) }).Stop()
	select {
	case <-l.told:
	case <-late:
		q.mu.Lock()
		defer q.mu.Unlock()
		if n := len(q.listeners); n > 0 {
			q.listeners = slices.DeleteFunc(q.listeners, func(o *listener) bool { return o == l })
			q.behind = q.behind || len(q.listeners) < n
		}
	}
}

// GiveUp discards the pending events.
func (q *Queue[E]) GiveUp() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting, q.head = nil, 0
	q.delivered = q.entered
	q.wake()
}
