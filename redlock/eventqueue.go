package redlock

import (
	"context"
	"slices"
	"time"

	"github.com/redquorum/redquorum/internal/lockorder"
	"github.com/redquorum/redquorum/redlock/internal/park"
)

// An observer may fall behind by so many events before more are dropped. Votes,
// tries and extensions are many, and each matters little. How acquisitions and
// locks end must add up, in a gauge of held locks for instance, so the queue has
// room for as many of those as a process may lose at one moment.
const (
	maxWaitingDetails = 1 << 12
	maxWaitingEnds    = 1 << 17
)

// An eventQueue has the events that one observer has yet to be told of. One
// goroutine tells them, in their order, and lives while there are any. So an
// observer that is slow, or never returns, holds up neither the goroutines that
// end and renew locks nor the other observers.
type eventQueue struct {
	observer Observer

	mu        lockorder.Mutex[lockorder.Events]
	waiting   []Event // from head on
	head      int
	running   bool  // the goroutine is there
	behind    bool  // a caller has waited in vain: no other waits until all is told
	entered   int64 // events so far
	delivered int64 // of those, the ones that the observer has seen or Close has given up
	dropped   int   // events that were not entered, and that the observer does not know of
	listeners []listener
}

// A listener is a caller that waits until so many events have been told.
type listener struct {
	parker *park.Parker
	number int64
}

// enter adds an event, or drops it. It never waits for the observer.
func (q *eventQueue) enter(e Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.entered-q.delivered >= e.Kind.maxWaiting() {
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

// maxWaiting is how far an observer may be behind for such an event to be kept.
func (k EventKind) maxWaiting() int64 {
	switch k {
	case EventAcquired, EventNotAcquired, EventLost, EventReleased:
		return maxWaitingEnds
	}
	return maxWaitingDetails
}

// deliver gives the observer everything that waits.
func (q *eventQueue) deliver() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.head < len(q.waiting) {
		e := q.waiting[q.head]
		q.waiting[q.head] = Event{} // which can hold on to much
		q.head++
		number := q.entered - int64(len(q.waiting)-q.head)
		e.Dropped, q.dropped = q.dropped, 0
		q.mu.Unlock()
		q.observer.Observe(e)
		q.mu.Lock()
		q.delivered = max(q.delivered, number)
		q.wake()
	}
	q.running, q.behind = false, false
	q.waiting, q.head = q.waiting[:0], 0
	if cap(q.waiting) > maxWaitingDetails {
		q.waiting = nil
	}
}

// wake wakes the listeners whose events have been told. The queue must be locked.
func (q *eventQueue) wake() {
	q.listeners = slices.DeleteFunc(q.listeners, func(l listener) bool {
		if l.number > q.delivered {
			return false
		}
		l.parker.Wake()
		return true
	})
}

// await returns when the observer has been told of all events so far, or after
// limit. An observer that takes longer is behind, and keeps no other caller
// until it has caught up.
func (q *eventQueue) await(ps *park.Lot, limit time.Duration) {
	q.mu.Lock()
	number := q.entered
	if q.delivered >= number || q.behind {
		q.mu.Unlock()
		return
	}
	p := ps.Get()
	defer ps.Put(p)
	q.listeners = append(q.listeners, listener{p, number})
	q.mu.Unlock()

	end := ps.Clock.Now().Add(limit)
	p.WakeAfter(limit)
	for {
		p.Sleep(context.Background(), nil)
		late := ps.Clock.Now() >= end
		q.mu.Lock()
		delivered := q.delivered >= number
		if late && !delivered {
			q.behind = true
			q.listeners = slices.DeleteFunc(q.listeners, func(l listener) bool { return l.parker == p })
		}
		q.mu.Unlock()
		if delivered || late {
			return
		}
	}
}

// giveUp forgets what the observer has not been told of.
func (q *eventQueue) giveUp() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting, q.head = nil, 0
	q.delivered = q.entered
	q.wake()
}
