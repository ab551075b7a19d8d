package sim

import (
	"slices"
	"time"

	"github.com/redquorum/redquorum/internal/protocol"
)

// Hints come on a connection of their own, which is opened with the first watcher, and closed
// a while after the last.
const (
	hintsLinger  = time.Second
	hintsBackoff = 250 * time.Millisecond // from a failure to the next request for them

	// hintsChannel is the key of the request for hints: where Redis publishes them.
	hintsChannel = "__redis__:invalidate"
)

// hints is a link's connection for hints.
type hints struct {
	watchers []*watcher
	wanted   bool           // from the first Watch until soon after the last stop
	asking   bool           // a request for hints is under way
	giver    int            // the server's process that gives them, counted from one; zero: none yet
	idle     *event         // the connection is closed; nil while there are watchers
	counts   map[string]int // hints sent, by key
	there    time.Duration  // when the last one arrives; none may overtake it
}

type watcher struct {
	key  string // everything: all keys
	hint func(key string)
}

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
	if h.idle != nil {
		w.timeline.drop(h.idle)
		h.idle = nil
	}
	if h.counts == nil {
		h.counts = map[string]int{}
	}
	if !h.wanted {
		h.wanted = true
		l.askForHints()
	}
	return func() { l.stop(one) }
}

func (l *link) stop(one *watcher) {
	w, h := l.world(), &l.hints
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.Index(h.watchers, one)
	if i < 0 {
		return
	}
	h.watchers = slices.Delete(h.watchers, i, i+1)
	if len(h.watchers) == 0 {
		h.idle = l.later(hintsLinger, func() {
			if len(h.watchers) == 0 {
				l.endHints()
			}
		})
	}
}

// later has the client do something after d by its clock, with the World locked.
func (l *link) later(d time.Duration, do func()) *event {
	return l.world().timeline.enter(&event{at: l.client.moment(d), inner: true, f: func() {
		l.client.do(func() { l.server.locked(do) })
	}})
}

// endHints has the server forget all watches of the link. The World must be locked.
func (l *link) endHints() {
	l.hints.watchers, l.hints.wanted, l.hints.giver = nil, false, 0
	l.server.tracked = slices.DeleteFunc(l.server.tracked, func(t tracking) bool { return t.client == l.index })
}

// tracked reports whether the server gives hints on the link.
func (l *link) tracked() bool { return l.hints.giver == l.server.run+1 }

// askForHints asks the server for hints. One that cannot be reached is asked later. The World must be locked.
func (l *link) askForHints() {
	if l.tracked() || l.hints.asking || !l.hints.wanted {
		return
	}
	c := &call{link: l, req: protocol.Request{Op: protocol.OpWatch, Key: hintsChannel, Timeout: l.world().net.Patience}}
	c.to = opener{c}
	l.hints.asking = l.submit(c) == nil
}

// An opener takes the reply to a request for hints.
type opener struct{ *call }

// Receive implements protocol.Receiver.
func (o opener) Receive(_ int, reply protocol.Reply) {
	l, w := o.link, o.link.world()
	w.mu.Lock()
	defer w.mu.Unlock()
	l.hints.asking = false
	if reply.Outcome == protocol.Granted && l.hints.wanted {
		l.hints.giver = o.run + 1
		l.pass(everything) // keys that were looked at before are not watched
	}
	if !l.tracked() {
		l.later(hintsBackoff, l.askForHints)
	}
}

// hinted takes a hint off the network.
func (l *link) hinted(key string) {
	l.server.locked(func() {
		l.world().tellHint(l, key)
		l.pass(key)
	})
}

// pass gives a hint to the watchers of its key, one after the other, so that they do not race.
// The World must be locked.
func (l *link) pass(key string) {
	for _, one := range l.hints.watchers {
		if key == everything || one.key == everything || key == one.key {
			l.world().timeline.after(0, func() { l.client.do(func() { l.call(one, key) }) })
		}
	}
}

// call gives a watcher a hint, unless it was stopped.
func (l *link) call(one *watcher, key string) {
	l.world().mu.Lock()
	watching := slices.Contains(l.hints.watchers, one)
	l.world().mu.Unlock()
	if watching {
		one.hint(key)
	}
}

// hintCycle is how long a server may need to find that a key has expired, if no client asks for it.
const hintCycle = 100 * time.Millisecond

// everything is the key of a hint after FLUSHALL, and of those who watch all keys.
const everything = ""

// late draws how late it finds that.
func (w *World) late(server int, key string, expires time.Duration) time.Duration {
	return 1 + time.Duration(w.hash("expiry "+w.numbered(key), uint64(server), uint64(expires))%uint64(hintCycle))
}

// due is when the server finds that a tracked key has expired, at the next nanosecond at the earliest.
func (s *Server) due(t tracking) time.Duration {
	if t.expires == never {
		return never
	}
	const far = 1 << 62
	left := time.Duration(min(far, float64(t.expires-s.now())/s.wall.rate))
	return max(s.moment+left+t.late, s.moment+1)
}

// await enters the event at which the server finds the next tracked key that has expired.
func (s *Server) await() {
	next := never
	for _, t := range s.tracked {
		next = min(next, s.due(t))
	}
	if s.cycle != nil && s.cycle.at == next {
		return
	}
	if s.cycle != nil {
		s.world.timeline.drop(s.cycle)
		s.cycle = nil
	}
	if next == never || s.hung {
		return
	}
	s.cycle = s.world.timeline.enter(&event{at: next, inner: true, f: func() {
		s.locked(func() {
			s.cycle = nil
			s.expire(func(t tracking) bool { return !s.hung && s.due(t) <= s.moment+1 })
		})
	}})
}

// flushed gives a hint on all tracked links, whatever they track.
func (s *Server) flushed() {
	s.tracked = nil
	for _, l := range s.links {
		if l.tracked() {
			s.hint(l, everything)
		}
	}
}

// hint puts one on the wire. The World must be locked.
func (s *Server) hint(l *link, key string) {
	w, h := s.world, &l.hints
	h.counts[key]++
	leg := Leg{Client: l.client.id, Node: s.index, Op: protocol.OpWatch, Key: key, Count: h.counts[key], Reply: true, Hint: true}
	arrive := func() { l.hinted(key) }
	d, lost := w.travel(leg)
	if !lost {
		h.there = max(w.timeline.now()+d, h.there)
		w.timeline.enter(&event{at: h.there, f: arrive, inner: true})
	}
	if d, strays := w.stray(leg, lost); strays {
		w.timeline.enter(&event{at: w.timeline.now() + d, f: arrive, inner: true})
	}
}
