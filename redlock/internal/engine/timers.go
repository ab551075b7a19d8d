package engine

import (
	"container/heap"
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/redlock/internal/core"
)

// timers order the entries by time, with one timer for the first.
type timers struct {
	engine  *Engine
	mu      sync.Mutex
	heap    byTime
	timer   clock.Timer
	armed   clock.Instant // zero if not armed
	running bool
}

// byTime is a heap of entries.
type byTime []dueEntry

type dueEntry struct {
	at    clock.Instant
	entry *entry
}

func (h byTime) Len() int           { return len(h) }
func (h byTime) Less(i, j int) bool { return h[i].at < h[j].at }
func (h byTime) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].entry.index, h[j].entry.index = int32(i+1), int32(j+1)
}
func (h *byTime) Push(x any) {
	n := x.(*entry)
	*h = append(*h, dueEntry{n.at, n})
	n.index = int32(len(*h))
}
func (h *byTime) Pop() any {
	last := (*h)[len(*h)-1].entry
	(*h)[len(*h)-1] = dueEntry{}
	*h = (*h)[:len(*h)-1]
	last.index = 0
	return last
}

// put schedules a locked entry.
func (t *timers) put(n *entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n.index == 0 {
		heap.Push(&t.heap, n)
	} else {
		t.heap[n.index-1].at = n.at
		heap.Fix(&t.heap, int(n.index-1))
	}
	t.arm()
}

func (t *timers) remove(n *entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n.index > 0 {
		heap.Remove(&t.heap, int(n.index-1))
	}
}

// arm sets the timer if the first entry is due earlier. An early timer costs less than setting it
// for each entry.
func (t *timers) arm() {
	if t.running || len(t.heap) == 0 || t.armed > 0 && t.armed <= t.heap[0].at {
		return
	}
	t.armed = t.heap[0].at
	d := t.armed.Sub(t.engine.clock.Now())
	if t.timer == nil {
		t.timer = t.engine.clock.AfterFunc(d, t.run)
	} else {
		t.timer.Reset(d)
	}
}

const (
	// batchSize is the number of ticks between two checks for entries that became due.
	batchSize = 64
	// timeSlice is the time for which keys in trouble are ticked in a row, before an equally long
	// break. After an outage, repeats and releases can occupy all processors, and holders whose
	// locks end would wait for a processor.
	timeSlice = time.Millisecond
)

// take removes the due entries, and appends them to waiting.
func (t *timers) take(now clock.Instant, waiting []*entry) []*entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	for n := 0; n < batchSize && len(t.heap) > 0 && t.heap[0].at <= now; n++ {
		waiting = append(waiting, heap.Pop(&t.heap).(*entry))
	}
	if t.running = len(waiting) > 0; !t.running {
		t.arm()
	}
	return waiting
}

// begin reports whether the goroutine of the timer is the only one.
func (t *timers) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running {
		return false
	}
	t.running, t.armed = true, 0
	return true
}

// run is called by the timer. One goroutine at a time handles the due entries. It ends all expired
// holds before it ticks any, so that no deadline waits for requests.
func (t *timers) run() {
	if !t.begin() {
		return
	}
	rested := t.engine.clock.Now()
	for waiting := []*entry(nil); ; {
		now, seen := t.engine.clock.Now(), len(waiting)
		if waiting = t.take(now, waiting); len(waiting) == 0 {
			return
		}
		for _, n := range waiting[seen:] {
			n.expire(now, len(waiting) > batchSize)
		}
		if len(waiting)-seen == batchSize { // more entries may be due
			continue
		}
		batch, isWell := waiting[:min(batchSize, len(waiting))], true
		for _, n := range batch {
			isWell = n.tick() && isWell
		}
		waiting = waiting[len(batch):]
		runtime.Gosched() // lets holders that lost their locks run, and the senders of requests
		if !isWell && len(waiting) > 0 && t.engine.clock.Now().Sub(rested) > timeSlice {
			t.engine.sleep(context.Background(), timeSlice)
			rested = t.engine.clock.Now()
		}
	}
}

// expire ends an expired hold. An entry that waits for its tick becomes due again at its deadline.
func (n *entry) expire(now clock.Instant, waits bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := n.lend()
	switch n.at = 0; {
	case n.key.Expire(now):
		n.carry() // the only effect is the end of a hold
	case waits && n.key.Deadline() > 0:
		n.at = n.key.Deadline()
		n.engine.timers.put(n)
	}
	n.carried(r)
}

// tick does everything that is due. It reports whether that was the renewal of a healthy lock.
func (n *entry) tick() (isWell bool) {
	n.mu.Lock()
	isWell = n.key.IsWell()
	n.apply((*core.Key).Tick)
	return isWell
}

// sleep waits for d, or for the end of the context or the engine.
func (e *Engine) sleep(ctx context.Context, d time.Duration) {
	over := make(chan struct{})
	defer e.clock.AfterFunc(d, func() { close(over) }).Stop()
	select {
	case <-over:
	case <-ctx.Done():
	case <-e.closed.Done():
	}
}
