package sim

import (
	"slices"
	"time"

	"github.com/redquorum/redquorum/internal/protocol"
)

// hints is a link's connection for hints, which exists while the link has watchers.
type hints struct {
	watchers []*watcher
	counts   map[string]int // hints sent, by key
	there    time.Duration  // when the last hint arrives; a later one must not overtake it
}

type watcher struct {
	key  string // everything: all keys
	hint func(key string)
}

// everything is the key of a hint after FLUSHALL, and of watchers of all keys.
const everything = ""

// Watch implements protocol.Watchable.
func (l *link) Watch(key string, hint func(key string)) (stop func()) {
	w, h := l.world(), &l.hints
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.closed || l.client.dead {
		return func() {}
	}
	one := &watcher{key, hint}
	h.watchers = append(h.watchers, one)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if i := slices.Index(h.watchers, one); i >= 0 {
			h.watchers = slices.Delete(h.watchers, i, i+1)
		}
		if len(h.watchers) == 0 {
			l.endHints()
		}
	}
}

// endHints makes the server forget all watches of the link. The World must be locked.
func (l *link) endHints() {
	l.hints.watchers = nil
	l.server.tracked = slices.DeleteFunc(l.server.tracked, func(t tracking) bool { return t.client == l.index })
}

// tracked reports whether the server sends hints on the link.
func (l *link) tracked() bool { return len(l.hints.watchers) > 0 }

// hinted takes a hint off the network.
func (l *link) hinted(key string) {
	l.world().mu.Lock()
	defer l.world().mu.Unlock()
	l.world().tellHint(l, key)
	l.pass(key)
}

// pass gives the hint to the watchers of its key, one at a time, so that they do not race. The
// World must be locked.
func (l *link) pass(key string) {
	for _, one := range l.hints.watchers {
		if key == everything || one.key == everything || key == one.key {
			l.world().timeline.after(0, func() { l.client.do(func() { l.call(one, key) }) })
		}
	}
}

// call passes a hint to a watcher, unless the watcher was stopped.
func (l *link) call(one *watcher, key string) {
	l.world().mu.Lock()
	watching := slices.Contains(l.hints.watchers, one)
	l.world().mu.Unlock()
	if watching {
		one.hint(key)
	}
}

// hintCycle is the interval at which a server looks for expired keys that no client requests.
const hintCycle = 100 * time.Millisecond

// await schedules the next look for expired keys.
func (s *Server) await() {
	expires := slices.ContainsFunc(s.tracked, func(t tracking) bool { return t.expires != never })
	if s.cycling || s.hung || !expires {
		return
	}
	s.cycling = true
	s.world.timeline.at(s.moment.Truncate(hintCycle)+hintCycle, func() {
		s.locked(func() {
			if s.cycling = false; !s.hung {
				s.expire()
			}
		})
	})
}

// flushed sends a hint on all tracked links, whatever their keys.
func (s *Server) flushed() {
	s.tracked = nil
	for _, l := range s.links {
		if l.tracked() {
			s.hint(l, everything)
		}
	}
}

// hint puts a hint on the wire. The World must be locked.
func (s *Server) hint(l *link, key string) {
	w, h := s.world, &l.hints
	if h.counts == nil {
		h.counts = map[string]int{}
	}
	h.counts[key]++
	leg := Leg{Client: l.client.id, Node: s.index, Op: protocol.OpWatch, Key: key, Count: h.counts[key], Reply: true, Hint: true}
	if d, lost := w.travel(leg); !lost {
		h.there = max(w.timeline.now()+d, h.there)
		w.timeline.at(h.there, func() { l.hinted(key) })
	}
}
