package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

func (s *Server) lookup(key string) (entry, bool) {
	e, ok := s.keys[key]
	if ok && s.expired(e) {
		s.remove(key)
		return entry{}, false
	}
	return e, ok
}

func (s *Server) expired(e entry) bool { return s.wall.now() >= e.expires }

func (s *Server) write(key string, e entry) {
	s.keys[key] = e
	s.changed(key)
}

func (s *Server) remove(key string) {
	if _, ok := s.keys[key]; ok {
		delete(s.keys, key)
		s.changed(key)
	}
}

// Flush makes the server forget all keys, as FLUSHALL does. With a Crash before
// it, it is a restart without persistence.
func (s *Server) Flush() {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	clear(s.keys)
	s.flushed()
}

// Evict makes the server forget some keys.
func (s *Server) Evict(which func(key string) bool) {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(s.watches)) {
		if which(key) {
			s.remove(key)
		}
	}
	maps.DeleteFunc(s.keys, func(key string, _ entry) bool { return which(key) })
}

// Save writes the keys to disk.
func (s *Server) Save() {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	if s.saved == nil {
		s.saved = map[string]entry{}
	}
	clear(s.saved)
	maps.Copy(s.saved, s.keys)
}

// Load makes the server remember what it had at the last Save, and nothing
// later. With a Crash before it, it is a restart with appendfsync everysec, or
// from an old RDB file.
func (s *Server) Load() {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	clear(s.keys)
	maps.Copy(s.keys, s.saved)
	s.flushed()
}

// Settle gives the server the epoch record of one that has long been in use, by
// clients with so many nodes and this longest TTL. A new server is in quarantine
// first.
func (s *Server) Settle(nodes int, longest time.Duration) {
	const life = 1 << 42 * time.Millisecond
	text := record{run: s.runID, generation: "settled", nodes: nodes, longest: longest}.String()
	s.Set("redlock:epoch", text, life)
}

// record is the epoch record.
type record struct {
	run, generation string
	nodes           int
	longest         time.Duration
	born            time.Duration // by the server's clock
}

func (r record) String() string {
	return fmt.Sprint(r.run, " ", r.generation, " ", r.nodes, " ", int64(r.longest), " ", int64(r.born))
}

// admit tells the epoch record, or writes it anew.
func (s *Server) admit(req *redlock.Request) redlock.Reply {
	quarantined, _ := s.lookup(req.Admit.Quarantine)
	left := s.left(quarantined)
	e, exists := s.lookup(req.Key)
	found := s.left(e)
	var r record
	if exists {
		fmt.Sscan(e.value, &r.run, &r.generation, &r.nodes, &r.longest, &r.born)
	}
	run := s.runID
	if s.mute {
		run = "-"
	}
	before := r.longest
	longest, known := max(req.TTL, before), req.Admit.Known
	write := func(run, generation string, born time.Duration) {
		r = record{run, generation, req.Admit.Nodes, longest, born}
		s.write(req.Key, entry{value: r.String(), expires: s.wall.now() + req.Admit.Life})
		if quarantine := max(left, min(born+known-s.unix(), known)); quarantine > 0 {
			s.write(req.Admit.Quarantine, entry{value: generation, expires: s.wall.now() + quarantine})
		}
	}
	switch {
	case !exists || r.nodes == req.Admit.Nodes && run != "-" && r.run != run:
		known = max(known, before)
		write(run, req.Admit.Generation, s.unix())
	case r.nodes == req.Admit.Nodes && longest > r.longest:
		if known <= before {
			known = 0 // the quarantine was long enough
		}
		write(r.run, r.generation, r.born)
	}
	quarantined, _ = s.lookup(req.Admit.Quarantine)
	e, _ = s.lookup(req.Key)
	return redlock.Reply{Outcome: redlock.Granted, Life: s.left(e), Epoch: &redlock.Epoch{
		Generation: r.generation, Nodes: r.nodes, MaxTTL: r.longest, Known: before,
		Quarantine: s.left(quarantined), Clock: s.unix(), Found: found,
	}}
}
