package engine

import (
	"sync"
	"sync/atomic"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/core"
)

// maxListening bounds the keys at which nodes hint, because a server remembers so many for all clients
// (tracking-table-max-keys, by default a million). One whose table is full forgets a key for each that it
// is to remember, and hints at that.
const maxListening = 100_000

// hints are the watchers of all nodes, one each for all keys, while any key listens.
type hints struct {
	engine *Engine
	count  atomic.Int64               // of keys that listen; changed under mu
	doubts atomic.Int64               // that have come, while a goroutine tells all keys
	also   func(node int, key string) // is told of each hint; nil: none
	mu     sync.Mutex
	stops  []func()
}

// OnHint has f called with each hint, as by protocol.Watchable. It is called before the engine is used.
func (e *Engine) OnHint(f func(node int, key string)) { e.hints.also = f }

// Listen has the nodes hint until stop is called.
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

// hint is called when the key may have changed at node i, or any key if it is empty. The goroutine is the
// node's and must not be kept: to go through a million keys takes seconds. So another tells them of a doubt, one
// at a time, and Close waits for it as for an entry.
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
		e.happen(of, func(k *core.Key, now clock.Instant) { k.Call(waiter, now) })
		return
	}
	e.happen(key, func(k *core.Key, now clock.Instant) { k.Hint(i, now) })
}

// doubt tells all keys that hints may have been missed, and once more if that was so again meanwhile.
func (h *hints) doubt() {
	defer h.engine.count(-1)
	for told := int64(0); !h.doubts.CompareAndSwap(told, 0); {
		told = h.doubts.Load()
		h.engine.forAll((*core.Key).Doubt)
	}
}
