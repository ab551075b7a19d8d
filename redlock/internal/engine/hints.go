package engine

import (
	"sync"
	"sync/atomic"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/core"
)

// maxListening bounds the keys with hints, because a server remembers a limited number for all
// clients (tracking-table-max-keys, a million by default). A server with a full table forgets a key
// for each new one, and sends a hint about it.
const maxListening = 100_000

// hints has a watcher for each node while any key listens.
type hints struct {
	engine *Engine
	count  atomic.Int64               // listening keys; changed under mu
	doubts atomic.Int64               // number of unreported doubts; zero without a goroutine
	also   func(node int, key string) // called with each hint; may be nil
	mu     sync.Mutex
	stops  []func()
}

// OnHint makes the engine call f with each hint, like protocol.Watchable. It must be called before
// the first lock.
func (e *Engine) OnHint(f func(node int, key string)) { e.hints.also = f }

// Listen makes the nodes send hints until stop is called.
func (e *Engine) Listen() (stop func()) {
	e.hints.add()
	return e.hints.remove
}

func (h *hints) isFull() bool { return h.count.Load() >= maxListening }

func (h *hints) add() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.count.Add(1) > 1 {
		return
	}
	for i, n := range h.engine.nodes {
		if node, ok := n.(protocol.Watchable); ok {
			h.stops = append(h.stops, node.Watch("", func(key string) { h.hint(i, key) }))
		}
	}
}

func (h *hints) remove() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.count.Add(-1) > 0 {
		return
	}
	for _, stop := range h.stops {
		stop()
	}
	h.stops = nil
}

// hint is called when the key may have changed at node i; an empty key means any key. The caller is
// a goroutine of the node that must continue soon, but a loop over a million keys takes seconds. So
// another goroutine reports doubts to all keys, and Close waits for it.
func (h *hints) hint(i int, key string) {
	e := h.engine
	if h.also != nil {
		h.also(i, key)
	}
	if key == "" {
		if e.count(1); e.closed.Err() != nil || h.doubts.Add(1) > 1 {
			e.count(-1)
			return
		}
		go h.doubt()
		return
	}
	if of, waiter, ok := keys.OfCall(key); ok {
		e.apply(of, func(k *core.Key, now clock.Instant) { k.Call(waiter, now) })
		return
	}
	e.apply(key, func(k *core.Key, now clock.Instant) { k.Hint(i, now) })
}

// doubt reports to all keys that hints may have been missed. It repeats the report if hints may
// have been missed in the meantime.
func (h *hints) doubt() {
	defer h.engine.count(-1)
	for told := int64(0); !h.doubts.CompareAndSwap(told, 0); {
		told = h.doubts.Load()
		h.engine.forAll((*core.Key).Doubt)
	}
}
