package sim

import (
	"maps"
	"slices"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// What Redis does for a connection in CLIENT TRACKING ON with REDIRECT, OPTIN
// and NOLOOP, where CLIENT CACHING YES comes before each look at a key.

// A watch is a key whose next change is to be told.
type watch struct {
	links []*link
	cycle *event // the server finds that the key has expired; nil if it never will
}

// hintCycle is how long a server may need to find that a key has expired, if
// nobody asks for it.
const hintCycle = 100 * time.Millisecond

// everything is the key of a hint after FLUSHALL.
const everything = ""

// look runs an OpWatch.
func (s *Server) look(req *redlock.Request) redlock.Reply {
	e, exists := s.lookup(req.Key)
	if !exists {
		return redlock.Reply{Outcome: redlock.Granted}
	}
	return redlock.Reply{Outcome: redlock.Refused, TTL: s.left(e)}
}

// remember has l told of the next change of key, be it there or not.
func (s *Server) remember(key string, l *link) {
	w := s.watches[key]
	if w == nil {
		w = &watch{}
		s.watches[key] = w
		s.await(key, w)
	}
	if !slices.Contains(w.links, l) {
		w.links = append(w.links, l)
	}
}

// await enters when the server finds that a watched key has expired.
func (s *Server) await(key string, w *watch) {
	line := &s.world.timeline
	w.drop(line)
	e, ok := s.keys[key]
	if !ok || e.expires == never {
		return
	}
	const far = 1 << 62
	left := min(far, max(0, float64(e.expires-s.wall.now())/s.wall.rate))
	late := time.Duration(s.world.hash("expiry "+key, uint64(s.index), uint64(e.expires)) % uint64(hintCycle))
	w.cycle = line.enter(&event{at: line.now() + time.Duration(left) + 1 + late, inner: true, f: func() {
		s.world.mu.Lock()
		defer s.world.mu.Unlock()
		if s.watches[key] != w || s.hung {
			return
		}
		if _, alive := s.lookup(key); alive { // by what rounding took
			s.await(key, w)
		}
	}})
}

// awaitAll is await for all keys, after the clock was set or stood still.
func (s *Server) awaitAll() {
	for _, key := range slices.Sorted(maps.Keys(s.watches)) {
		s.await(key, s.watches[key])
	}
}

func (w *watch) drop(line *timeline) {
	if w.cycle != nil {
		line.drop(w.cycle)
		w.cycle = nil
	}
}

// changed tells those who watch key, once. Whoever changed it is not told, and
// does not watch it any more either.
func (s *Server) changed(key string) {
	w := s.watches[key]
	if w == nil {
		return
	}
	w.drop(&s.world.timeline)
	delete(s.watches, key)
	for _, l := range w.links {
		if l != s.current {
			s.hint(l, key)
		}
	}
}

// flushed tells all who are told of changes, whatever they watch.
func (s *Server) flushed() {
	s.unwatched()
	for _, l := range s.links {
		if l.able() {
			s.hint(l, everything)
		}
	}
}

// unwatched forgets all watches.
func (s *Server) unwatched() {
	for _, w := range s.watches {
		w.drop(&s.world.timeline)
	}
	clear(s.watches)
}

// unwatchedBy forgets those of a connection that has ended.
func (s *Server) unwatchedBy(l *link) {
	for key, w := range s.watches {
		w.links = slices.DeleteFunc(w.links, func(other *link) bool { return other == l })
		if len(w.links) == 0 {
			w.drop(&s.world.timeline)
			delete(s.watches, key)
		}
	}
}

// hint puts one on the wire. The World must be locked.
func (s *Server) hint(l *link, key string) {
	w, h := s.world, &l.hints
	h.counts[key]++
	leg := Leg{Client: l.client.id, Node: s.index, Op: redlock.OpWatch, Key: key, Count: h.counts[key], Reply: true, Hint: true}
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
