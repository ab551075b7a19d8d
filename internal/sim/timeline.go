package sim

import (
	"cmp"
	"container/heap"
	"sync"
	"sync/atomic"
	"time"
)

// A timeline runs functions at their times: one at a time, and in the order of entry if their times
// are equal. With a time.AfterFunc for each, the order at equal times would be random.
//
// A timer wakes the timeline in the bubble's time. While the World is played, the timeline has its
// own time.
type timeline struct {
	origin time.Time
	played atomic.Bool
	passed atomic.Int64 // since origin, while it is played

	mu      sync.Mutex
	events  events
	entered int
	running bool
	timer   *time.Timer
}

func (l *timeline) now() time.Duration {
	if l.played.Load() {
		return time.Duration(l.passed.Load())
	}
	return time.Since(l.origin)
}

func (l *timeline) after(d time.Duration, f func()) *event { return l.at(l.now()+d, f) }

func (l *timeline) at(t time.Duration, f func()) *event {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entered++
	e := &event{at: t, order: l.entered, f: f}
	heap.Push(&l.events, e)
	if l.events[0] == e && !l.running {
		l.arm()
	}
	return e
}

// drop cancels an event that has not run yet.
func (l *timeline) drop(e *event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.f = nil
}

// next removes and returns the next event until a time, or returns nil.
func (l *timeline) next(until time.Duration) (*event, func()) {
	for len(l.events) > 0 && l.events[0].at <= until {
		if e := heap.Pop(&l.events).(*event); e.f != nil {
			return e, e.f
		}
	}
	return nil, nil
}

func (l *timeline) arm() {
	if l.played.Load() {
		return
	}
	if d := l.events[0].at - l.now(); l.timer == nil {
		l.timer = time.AfterFunc(d, l.run)
	} else {
		l.timer.Reset(d)
	}
}

// run runs all events that are due. The timer calls it.
func (l *timeline) run() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running {
		return
	}
	l.running = true
	for e, f := l.next(l.now()); e != nil; e, f = l.next(l.now()) {
		l.mu.Unlock()
		f()
		l.mu.Lock()
	}
	l.running = false
	if len(l.events) > 0 {
		l.arm()
	}
}

// play switches to the timeline's own time.
func (l *timeline) play() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.passed.Store(int64(time.Since(l.origin)))
	l.played.Store(true)
	if l.timer != nil {
		l.timer.Stop()
	}
}

// step jumps to the next event and runs it. It returns the event, or nil if none is left.
func (l *timeline) step() *event {
	l.mu.Lock()
	e, f := l.next(never)
	if e == nil {
		l.mu.Unlock()
		return nil
	}
	l.passed.Store(max(l.passed.Load(), int64(e.at)))
	l.mu.Unlock()
	f()
	return e
}

func (l *timeline) sleep(d time.Duration) {
	over := make(chan struct{})
	l.after(d, func() { close(over) })
	<-over
}

// space waits until the goroutines that were woken are idle, if the World is played.
func (l *timeline) space() {
	if l.played.Load() {
		l.sleep(0)
	}
}

// An event is a function with the time at which it runs.
type event struct {
	at    time.Duration // since the timeline's origin
	order int           // order among events at the same time
	f     func()        // nil if the event was dropped
}

// events is a heap whose first element is the next event. In a sorted slice, ten thousand events
// take a minute under the race detector.
type events []*event

func (es events) Len() int { return len(es) }

func (es events) Less(i, j int) bool {
	a, b := es[i], es[j]
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.order, b.order)) < 0
}

func (es events) Swap(i, j int) { es[i], es[j] = es[j], es[i] }

// Push implements heap.Interface.
func (es *events) Push(e any) { *es = append(*es, e.(*event)) }

// Pop implements heap.Interface.
func (es *events) Pop() any {
	last := len(*es) - 1
	e := (*es)[last]
	*es = (*es)[:last]
	return e
}
