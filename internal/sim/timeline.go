package sim

import (
	"cmp"
	"container/heap"
	"sync"
	"sync/atomic"
	"time"
)

// A timeline runs functions when their time comes: one at a time, by time, and those of one time in the order
// in which they were entered. A time.AfterFunc for each would run those of one time in any order.
//
// Its time is that of the bubble, where a timer wakes it, or its own while the World is played.
type timeline struct {
	origin time.Time
	played atomic.Bool
	passed atomic.Int64 // since origin, if it is played

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

// drop makes nothing of an event, if it is still to come.
func (l *timeline) drop(e *event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.f = nil
}

// next takes out the next event, or returns nil if there is none by until.
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

// run is called by the timer.
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

// play makes the time the timeline's own.
func (l *timeline) play() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.passed.Store(int64(time.Since(l.origin)))
	l.played.Store(true)
	if l.timer != nil {
		l.timer.Stop()
	}
}

// step jumps to the next event and runs it. It returns nil if there is none.
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

// space lets the goroutines that were woken come to rest, if the World is played.
func (l *timeline) space() {
	if l.played.Load() {
		l.sleep(0)
	}
}

// An event is a function and when it is to run.
type event struct {
	at    time.Duration // since the timeline's origin
	order int           // among those of one time
	f     func()        // nil if it was dropped
}

// events are a heap, the next first. In a sorted slice ten thousand of them take a minute under the race
// detector.
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
