package sim

import (
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"
)

// A timeline runs functions when their time comes: one at a time, by time, and
// those of one time in the order in which they were entered. A time.AfterFunc
// for each would run those of one time in any order.
//
// Its time is that of the bubble, where a timer wakes it, or its own while the
// World is played.
type timeline struct {
	origin time.Time
	played atomic.Bool
	passed atomic.Int64 // since origin, if it is played

	mu      sync.Mutex
	events  []*event // the next last: the one that is taken out next, and near which most are entered
	running bool
	timer   *time.Timer
}

func (l *timeline) now() time.Duration {
	if l.played.Load() {
		return time.Duration(l.passed.Load())
	}
	return time.Since(l.origin)
}

func (l *timeline) after(d time.Duration, f func()) *event {
	return l.enter(&event{at: l.now() + d, f: f})
}

func (l *timeline) enter(e *event) *event {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := sort.Search(len(l.events), func(i int) bool { return l.events[i].at <= e.at })
	l.events = slices.Insert(l.events, i, e)
	if l.first() == e && !l.running {
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

// first returns the next event.
func (l *timeline) first() *event { return l.events[len(l.events)-1] }

// next takes out the next event, or returns nil if there is none by until.
func (l *timeline) next(until time.Duration) (*event, func()) {
	for len(l.events) > 0 && l.first().at <= until {
		e := l.first()
		l.events = l.events[:len(l.events)-1]
		if e.f != nil {
			return e, e.f
		}
	}
	return nil, nil
}

func (l *timeline) arm() {
	if l.played.Load() {
		return
	}
	if d := l.first().at - l.now(); l.timer == nil {
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
	f     func()        // nil if it was dropped
	inner bool          // has no effect outside of the World, so that no goroutine has to come to rest
}
