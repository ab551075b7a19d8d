package sim

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/redquorum/redquorum/internal/record"
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

// prolong lets a key that is there live for ttl from now at least.
func (s *Server) prolong(key string, ttl time.Duration) {
	e, until := s.keys[key], s.wall.now()+ttl
	if e.expires == never || e.expires < until {
		e.expires = until
		s.write(key, e)
	}
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
	for _, key := range slices.Sorted(maps.Keys(s.keys)) { // an order for the hints
		if which(key) {
			s.remove(key)
		}
	}
}

// Save writes the keys to disk.
func (s *Server) Save() {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	s.saved = maps.Clone(s.keys)
}

// Load makes the server remember the keys that it had at the last Save, and nothing
// later. With a Crash before it, it is a restart with appendfsync everysec, or
// from an old RDB file.
func (s *Server) Load() {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	s.load()
}

// FailOver makes the server forget all writes since the last Save, as one does that
// is demoted, takes over the data set of its promoted replica, and is promoted back: its
// process, its run id and its connections stay.
func (s *Server) FailOver() {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	s.data++
	s.load()
}

func (s *Server) load() {
	clear(s.keys)
	maps.Copy(s.keys, s.saved)
	s.flushed()
}

// Settle gives the server the epoch record of one that has long been in use, by
// clients with so many nodes and this longest TTL. A new server is in quarantine
// first.
func (s *Server) Settle(nodes int, longest time.Duration) {
	const life = 1 << 42 * time.Millisecond
	s.world.mu.Lock()
	now := s.unix()
	run := s.identity()
	s.world.mu.Unlock()
	if run == "" {
		run = record.Unknown
	}
	settled := record.Record{
		Run: run, Generation: "settled-" + s.name, Nodes: nodes, Born: now - 1000*time.Hour, Basis: record.Asked,
		Steps: []record.Step{{TTL: longest, Entered: now - 1000*time.Hour, Used: now}},
	}
	s.Set(record.Key, settled.String(), life)
}

// identity names the process and the data set, or nothing if the server is mute.
func (s *Server) identity() string {
	if s.mute {
		return ""
	}
	if n := &s.named; n.text == "" || n.run != s.run || n.data != s.data {
		n.run, n.data, n.text = s.run, s.data, s.name+"-run"+strconv.Itoa(s.run)+"/"+strconv.Itoa(s.data)
	}
	return s.named.text
}
