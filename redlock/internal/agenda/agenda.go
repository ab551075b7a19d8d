package agenda

import (
	"container/heap"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/lockorder"
	"github.com/redquorum/redquorum/redlock/internal/park"
)

// An Item is something that an Agenda looks at.
type Item interface {
	comparable

	// Due is called at the moment for which the item was put, and takes it off the Agenda: Due puts it
	// there again. It waits for nothing. What is to be done at servers is its result.
	Due(now clock.Instant) Work

	// Do does a work. With inVain no server is to be asked any more.
	Do(w Work, inVain bool)

	// IsUrgent reports whether a work must not wait for a break.
	IsUrgent(w Work) bool

	// Doubt tells the item that node i may have lost what it had.
	Doubt(i int)

	// Place is where the Agenda notes where it has the item. It is the Agenda's.
	Place() *Place
}

// A Place is that of an Item on its Agenda. The zero Place is none.
type Place struct{ index int32 } // plus one

// A Work is something to do for an item.
type Work uint8

const (
	Nothing  Work = iota
	Renew         // what is held
	Look          // whether it is held; it can wait for all others
	GiveBack      // what is held no more
)

// An Agenda has items, each with the moment at which it is due. It is safe for concurrent use.
type Agenda[T Item] struct {
	clock   clock.Clock
	running lockorder.Mutex[lockorder.Running] // held while items that are due are looked at

	mu     lockorder.Mutex[lockorder.Scheduler]
	items  byTime[T]   // guarded by mu, as all that follow
	timer  clock.Timer // made with the first item
	armed  clock.Instant
	closed bool

	works works[T]
}

// New returns an empty Agenda.
func New[T Item](parkers *park.Lot) *Agenda[T] {
	a := &Agenda[T]{clock: parkers.Clock}
	a.works.parkers, a.works.all = parkers, func() []T { return a.All(func(T) bool { return true }) }
	return a
}

// Put enters the item, or moves it. After Close it reports false.
func (a *Agenda[T]) Put(item T, at clock.Instant) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return false
	}
	place := item.Place()
	if place.index == 0 {
		a.items.Push(item)
	}
	a.items[place.index-1].at = at
	heap.Fix(&a.items, int(place.index-1))
	a.arm()
	return true
}

// farOff is how far off a timer is stopped that nobody needs: to fire for nothing is
// cheaper than to be set anew at every removal.
const farOff = time.Minute

// Remove takes the item out, if it is there.
func (a *Agenda[T]) Remove(item T, now clock.Instant) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := item.Place().index; i > 0 {
		heap.Remove(&a.items, int(i-1))
	}
	if len(a.items) == 0 && a.armed.Sub(now) > farOff {
		a.timer.Stop()
		a.armed = 0
	}
}

// arm sets the timer if the first item is due before it.
func (a *Agenda[T]) arm() {
	if len(a.items) == 0 {
		return
	}
	first := a.items[0].at
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

// run is called by the timer.
func (a *Agenda[T]) run() {
	a.running.Lock()
	defer a.running.Unlock()
	var left []job[T]
	for {
		now := a.clock.Now()
		left = left[:0]
		for item, ok := a.next(now); ok; item, ok = a.next(now) {
			if w := item.Due(now); w != Nothing { // otherwise it is there again
				left = append(left, job[T]{item, w})
			}
		}
		if len(left) == 0 {
			return
		}
		a.works.add(left...)
	}
}

// next takes out an item that is due by now, or sets the timer.
func (a *Agenda[T]) next(now clock.Instant) (item T, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.armed = 0
	switch {
	case a.closed:
	case len(a.items) > 0 && a.items[0].at <= now:
		return heap.Pop(&a.items).(T), true
	default:
		a.arm()
	}
	return item, false
}

// All returns the items that f is true of.
func (a *Agenda[T]) All(f func(T) bool) (items []T) {
	a.running.Lock() // a run under way may be holding one item
	defer a.running.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.items {
		if f(e.item) {
			items = append(items, e.item)
		}
	}
	return items
}

// Len returns how many items there are, and for how many there is room.
func (a *Agenda[T]) Len() (n, room int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.items), cap(a.items)
}

// Close has Put enter nothing any more, and returns the items that were there. Works go on.
func (a *Agenda[T]) Close() (items []T) {
	a.mu.Lock()
	a.closed = true
	if a.timer != nil {
		a.timer.Stop()
	}
	a.mu.Unlock()
	a.running.Lock() // a run under way may be holding one item
	defer a.running.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.items {
		e.item.Place().index = 0
		items = append(items, e.item)
	}
	a.items = nil
	return items
}

// byTime is a heap of items, the next due first.
type byTime[T Item] []entry[T]

// An entry has the time at hand: to look for it at the items takes most of the time
// where there are many.
type entry[T Item] struct {
	at   clock.Instant
	item T
}

func (h byTime[T]) Len() int           { return len(h) }
func (h byTime[T]) Less(i, j int) bool { return h[i].at < h[j].at }
func (h byTime[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].item.Place().index, h[j].item.Place().index = int32(i+1), int32(j+1)
}

func (h *byTime[T]) Push(x any) {
	item := x.(T)
	*h = append(*h, entry[T]{item: item})
	item.Place().index = int32(len(*h))
}

// maxIdle is for how many items an empty heap keeps room.
const maxIdle = 256

func (h *byTime[T]) Pop() any {
	old := *h
	item := old[len(old)-1].item
	old[len(old)-1] = entry[T]{}
	*h = old[:len(old)-1]
	if len(*h) == 0 && cap(old) > maxIdle {
		*h = nil // a burst is over
	}
	item.Place().index = 0
	return item
}
