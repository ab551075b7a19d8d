package sim

import (
	"maps"
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
	s.locked(func() {
		clear(s.keys)
		s.flushed()
	})
}

// Save writes the keys to disk.
func (s *Server) Save() { s.locked(func() { s.saved = maps.Clone(s.keys) }) }

// FailOver makes the server forget all writes since the last Save, as one does that
// is demoted, takes over the data set of its promoted replica, and is promoted back: its
// process, its run id and its connections stay. With a Crash before it, it is a restart from an old RDB file.
func (s *Server) FailOver() {
	s.locked(func() {
		s.data++
		clear(s.keys)
		maps.Copy(s.keys, s.saved)
		s.flushed()
	})
}

// Settle gives the server the epoch record of one that has long been in use, by clients with so many nodes
// and this longest TTL. A new server is in quarantine first.
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
