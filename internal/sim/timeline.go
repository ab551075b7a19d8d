package sim

import (
	"container/heap"
	"sync"
	"time"
)

// A timeline runs functions when their time comes: one at a time, by time, and
// those of one time in the order in which they were entered. A time.AfterFunc
// for each would run those of one time in any order.
type timeline struct {
	origin  time.Time
	mu      sync.Mutex
	events  events
	entered int
	running bool
	apart   time.Duration
	timer   *time.Timer
}

type event struct {
	at    time.Duration // since origin
	order int
	f     func()
}

func (l *timeline) now() time.Duration { return time.Since(l.origin) }

func (l *timeline) after(d time.Duration, f func()) { l.at(l.now()+d, f) }

func (l *timeline) at(at time.Duration, f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entered++
	heap.Push(&l.events, event{at, l.entered, f})
	if !l.running && l.events[0].order == l.entered {
		l.arm()
	}
}

func (l *timeline) arm() {
	switch d := max(l.apart, l.events[0].at-l.now()); l.timer {
	case nil:
		l.timer = time.AfterFunc(d, l.run)
	default:
		l.timer.Reset(d)
	}
}

func (l *timeline) run() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running {
		return
	}
	l.running = true
	for len(l.events) > 0 && l.events[0].at <= l.now() {
		e := heap.Pop(&l.events).(event)
		l.mu.Unlock()
		e.f()
		l.mu.Lock()
		if l.apart > 0 {
			break
		}
	}
	l.running = false
	if len(l.events) > 0 {
		l.arm()
	}
}

// events is a heap, the next first.
type events []event

func (h events) Len() int      { return len(h) }
func (h events) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h events) Less(i, j int) bool {
	if h[i].at != h[j].at {
		return h[i].at < h[j].at
	}
	return h[i].order < h[j].order
}

func (h *events) Push(x any) { *h = append(*h, x.(event)) }

func (h *events) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = event{}
	*h = old[:len(old)-1]
	return e
}
