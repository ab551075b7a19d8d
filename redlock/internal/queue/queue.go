// Package queue tells an observer of events in a goroutine of its own, in their order. So an observer that is slow, or
// never returns, holds up neither the goroutines that end and renew locks nor the other observers.
package queue

import (
	"slices"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
)

// An observer may fall behind by so many events before more are dropped. Details are many, and each matters little.
// How acquisitions and locks end must add up, in a gauge of held locks for instance, so there is room for as many of
// those as a process may lose at one moment.
const (
	maxDetails = 1 << 12
	maxEnds    = 1 << 17
)

// A Queue has the events that one observer has yet to be told of. One goroutine tells them, and lives while there are
// any. It is safe for concurrent use.
type Queue[E any] struct {
	tell func(e E, dropped int)

	mu        sync.Mutex
	waiting   []E // from head on
	head      int
	running   bool  // the goroutine is there
	behind    bool  // a caller has waited in vain: no other waits until all is told
	entered   int64 // events so far
	delivered int64 // of those, the ones that the observer has seen or GiveUp has given up
	dropped   int   // events that were not entered, and that the observer does not know of
	listeners []*listener
}

// A listener is a caller that waits until so many events have been told.
type listener struct {
	number int64
	told   chan struct{}
}

// New returns a Queue for an observer, which tell tells of an event, and how many were dropped before it.
func New[E any](tell func(e E, dropped int)) *Queue[E] { return &Queue[E]{tell: tell} }

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

// deliver gives the observer everything that waits.
func (q *Queue[E]) deliver() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.head < len(q.waiting) {
		e := q.waiting[q.head]
		clear(q.waiting[q.head : q.head+1]) // which can hold on to much
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

// wake wakes the listeners whose events have been told. The queue must be locked.
func (q *Queue[E]) wake() {
	q.listeners = slices.DeleteFunc(q.listeners, func(l *listener) bool {
		if l.number > q.delivered {
			return false
		}
		close(l.told)
		return true
	})
}

// Await returns when the observer has been told of all events so far, or after limit. An observer that takes longer
// is behind, and keeps no other caller until it has caught up.
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

// GiveUp forgets what the observer has not been told of.
func (q *Queue[E]) GiveUp() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting, q.head = nil, 0
	q.delivered = q.entered
	q.wake()
}
