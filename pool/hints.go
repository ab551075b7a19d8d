package pool

import (
	"slices"
	"sync"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

var _ redlock.Watchable = (*node)(nil)

// hints are those who wait for a change of some key. While there are any, and
// for a little longer, the goroutine listen keeps a connection on which the
// server tells of changes.
type hints struct {
	mu        sync.Mutex
	watchers  map[string][]*watcher // by key
	wanted    bool                  // from the first Watch until soon after the last stop
	refused   bool                  // the server gives none, as far as the connection that there is can tell
	listening bool                  // listen runs
	listener  *listener             // while it lives
	linger    *time.Timer           // ends wanted

	ended sync.WaitGroup // of listen
}

// A watcher is told apart by its address.
type watcher struct{ hint func() }

// Watch implements redlock.Watchable. Where the server gives no hints, none
// ever come.
func (n *node) Watch(key string, hint func()) (stop func()) {
	h := &n.hints
	w := &watcher{hint}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watchers[key] = append(h.watchers[key], w)
	n.beginHints()
	return func() { n.unwatch(key, w) }
}

func (n *node) unwatch(key string, w *watcher) {
	h := &n.hints
	h.mu.Lock()
	defer h.mu.Unlock()
	left := slices.DeleteFunc(h.watchers[key], func(o *watcher) bool { return o == w })
	if len(left) > 0 {
		h.watchers[key] = left
		return
	}
	if _, here := h.watchers[key]; !here {
		return // stopped before
	}
	delete(h.watchers, key)
	if len(h.watchers) == 0 && h.wanted && n.ctx.Err() == nil {
		h.stopLinger()
		h.linger = time.AfterFunc(n.settings.linger, n.endHints)
	}
}

// beginHints sees to it that somebody listens, if somebody waits. hints.mu is
// held.
func (n *node) beginHints() {
	h := &n.hints
	if len(h.watchers) == 0 || h.refused || n.ctx.Err() != nil {
		return
	}
	h.wanted = true
	if !h.listening {
		h.listening = true
		h.ended.Go(n.listen)
	}
}

// endHints is called some time after the last stop: waiters who come and go
// should not cost a connection each.
func (n *node) endHints() {
	h := &n.hints
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.watchers) == 0 {
		h.end()
	}
}

// end has listen return. mu is held.
func (h *hints) end() {
	h.wanted = false
	if h.listener != nil {
		h.listener.fail()
	}
}

// permitHints is for a new connection: what the one before it was refused may
// be permitted by now.
func (n *node) permitHints() {
	n.hints.mu.Lock()
	defer n.hints.mu.Unlock()
	n.hints.refused = false
	n.beginHints()
}

// refuseHints is for a server that gives none. Nobody asks it again on the
// connection that there is.
func (n *node) refuseHints() {
	n.hints.mu.Lock()
	n.hints.refused = true
	n.hints.end()
	n.hints.mu.Unlock()
	n.warn([]string{"it gives no hints when a lock is free, so those who wait have to poll: " +
		"permit CLIENT TRACKING, CLIENT CACHING, CLIENT ID and SUBSCRIBE to __redis__:invalidate (Redis 6 or later)"})
}

// closeHints returns when nobody listens any more. n.ctx has ended.
func (n *node) closeHints() {
	n.hints.mu.Lock()
	n.hints.stopLinger()
	n.hints.mu.Unlock()
	n.hints.ended.Wait()
}

// stopLinger: mu is held.
func (h *hints) stopLinger() {
	if h.linger != nil {
		h.linger.Stop()
	}
}

// goOn reports whether listen should. If not, the next Watch starts it again.
func (h *hints) goOn() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.listening = h.wanted
	return h.listening
}

// use makes l what end has to end, unless the end was meant to be before.
func (h *hints) use(l *listener) (wanted bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.listener = l
	return h.wanted
}

// give hints to those who wait for key, outside the lock: they may stop.
func (h *hints) give(key string) {
	h.mu.Lock()
	watchers := slices.Clone(h.watchers[key])
	h.mu.Unlock()
	for _, w := range watchers {
		w.hint()
	}
}

func (h *hints) giveAll() {
	h.mu.Lock()
	var watchers []*watcher
	for _, w := range h.watchers {
		watchers = append(watchers, w...)
	}
	h.mu.Unlock()
	for _, w := range watchers {
		w.hint()
	}
}
