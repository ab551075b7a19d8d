package redlock

import (
	"container/heap"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
)

// The agenda is the one scheduler of a Locker: every held lock stands in it
// with the next moment at which something is due for it. A goroutine for each
// lock would cost its stack besides.
type agenda struct {
	clock clock.Clock

	running sync.Mutex // held while due locks are worked on
	mu      sync.Mutex
	locks   byTime
	timer   clock.Timer // made with the first lock
	armed   clock.Instant
	closed  bool
}

// put enters the lock, or moves it. After close it reports false.
func (a *agenda) put(k *Lock, at clock.Instant) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return false
	}
	k.at = at
	if k.index < 0 {
		heap.Push(&a.locks, k)
	} else {
		heap.Fix(&a.locks, k.index)
	}
	a.arm()
	return true
}

func (a *agenda) remove(k *Lock) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if k.index >= 0 {
		heap.Remove(&a.locks, k.index)
	}
	// The timer stays as it is, unless it is far off: to fire for nothing is
	// cheaper than to be set anew at every release.
	if len(a.locks) == 0 && k.settings.ttl > time.Minute && a.timer != nil {
		a.timer.Stop()
		a.armed = 0
	}
}

// arm sets the timer if the first lock is due before it.
func (a *agenda) arm() {
	if len(a.locks) == 0 {
		return
	}
	first := a.locks[0].at
	if a.armed != 0 && a.armed <= first {
		return
	}
	a.armed = first
	d := first.Sub(a.clock.Now())
	if a.timer == nil {
		a.timer = a.clock.AfterFunc(d, a.run)
	} else {
		a.timer.Reset(d)
	}
}

func (a *agenda) run() {
	a.running.Lock()
	defer a.running.Unlock()
	for {
		a.mu.Lock()
		a.armed = 0
		if len(a.locks) == 0 || a.locks[0].at > a.clock.Now() || a.closed {
			if !a.closed {
				a.arm()
			}
			a.mu.Unlock()
			return
		}
		k := heap.Pop(&a.locks).(*Lock)
		a.mu.Unlock()
		k.due() // puts it back
	}
}

// close ends the scheduler and returns the locks that were in it.
func (a *agenda) close() []*Lock {
	a.mu.Lock()
	a.closed = true
	if a.timer != nil {
		a.timer.Stop()
	}
	a.mu.Unlock()
	a.running.Lock() // a run under way may be holding one lock
	defer a.running.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	locks := a.locks
	a.locks = nil
	for _, k := range locks {
		k.index = -1
	}
	return locks
}

// byTime is a heap of locks, the next due first.
type byTime []*Lock

func (h byTime) Len() int           { return len(h) }
func (h byTime) Less(i, j int) bool { return h[i].at < h[j].at }
func (h byTime) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *byTime) Push(x any) {
	k := x.(*Lock)
	k.index = len(*h)
	*h = append(*h, k)
}

func (h *byTime) Pop() any {
	old := *h
	k := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	k.index = -1
	return k
}
