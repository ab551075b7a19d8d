package sim

import (
	"maps"
	"math/bits"
	"slices"
	"time"

	"github.com/redquorum/redquorum/internal/hash"
	"github.com/redquorum/redquorum/internal/protocol"
)

// A Store is a server's keys, scripts and clock, without a network, goroutines or time of its own: a
// request is run when it is given, at the moment that is told. So a test can try every order of requests,
// and go on from a copy. It is not safe for concurrent use.
type Store struct {
	server  *Server
	tracked []tracking
	hints   []StoreHint
	client  int // whose request is being run
}

// A tracking is of one key: its clients get a hint of its next change.
type tracking struct {
	key     string
	clients uint64        // by their bits
	expires time.Duration // when the key does; any other change ends the tracking
}

// A StoreHint is one that a Store gives to a client.
type StoreHint struct {
	Client int
	Key    string // empty: all keys
}

// NewStore returns an empty Store.
func NewStore(index int, name string) *Store {
	w := &World{timeline: timeline{origin: time.Unix(1_700_000_000, 0)}}
	w.timeline.played.Store(true)
	s := &Store{server: newServer(w, index, name)}
	s.server.onChange = s.changed
	return s
}

// Clone returns a copy.
func (s *Store) Clone() *Store {
	c := NewStore(s.server.index, s.server.name)
	c.server.keys, c.server.run, c.server.data = maps.Clone(s.server.keys), s.server.run, s.server.data
	c.server.wall.at, c.server.wall.since, c.server.wall.rate = s.server.wall.at, s.server.wall.since, s.server.wall.rate
	c.server.world.timeline.passed.Store(s.server.world.timeline.passed.Load())
	c.tracked = slices.Clone(s.tracked)
	return c
}

// Run runs a client's request at a moment, which is not before that of an earlier one. It returns the
// reply and the hints that other clients get, which are valid until the next call.
func (s *Store) Run(at time.Duration, client int, req *protocol.Request) (protocol.Reply, []StoreHint) {
	s.at(at)
	s.client = client
	reply := s.server.both(req)
	s.client = -1
	if req.Epoch != "" {
		if e, ok := s.server.lookup(req.Epoch); ok {
			reply.Life = max(0, s.server.left(e))
		}
	}
	if req.Watch || req.Op == protocol.OpWatch {
		s.track(req.Key, client)
	}
	return reply, s.take()
}

func (s *Store) track(key string, client int) {
	for i := range s.tracked {
		if t := &s.tracked[i]; t.key == key {
			t.clients |= 1 << client
			return
		}
	}
	expires := never
	if e, ok := s.server.keys[key]; ok {
		expires = e.expires
	}
	s.tracked = append(s.tracked, tracking{key, 1 << client, expires})
}

// at sets the time, and expires keys.
func (s *Store) at(at time.Duration) {
	s.hints = s.hints[:0]
	s.client = -1
	s.server.world.timeline.passed.Store(int64(at))
	now := s.server.wall.now()
	for i := len(s.tracked) - 1; i >= 0; i-- {
		if t := s.tracked[i]; now >= t.expires {
			s.server.lookup(t.key) // which ends the tracking
		}
	}
}

func (s *Store) take() []StoreHint {
	if len(s.hints) > 1 {
		slices.SortStableFunc(s.hints, func(a, b StoreHint) int { return a.Client - b.Client })
	}
	return s.hints
}

func (s *Store) changed(key string) {
	for i := range s.tracked {
		if t := s.tracked[i]; t.key == key {
			s.tracked = slices.Delete(s.tracked, i, i+1)
			s.tell(t.clients, key)
			return
		}
	}
}

// tell has clients get a hint, but for the one whose request is being run.
func (s *Store) tell(clients uint64, key string) {
	for ; clients != 0; clients &= clients - 1 {
		if client := bits.TrailingZeros64(clients); client != s.client {
			s.hints = append(s.hints, StoreHint{client, key})
		}
	}
}

// Forget makes the server lose all keys, and be another process than before: a restart without persistence.
func (s *Store) Forget(at time.Duration) []StoreHint {
	s.at(at)
	s.server.run++
	clear(s.server.keys)
	for _, t := range s.tracked {
		s.tell(t.clients, "")
	}
	s.tracked = s.tracked[:0]
	return s.take()
}

// Between has f called between both steps of a request whose token the asker judges, in which other requests can be
// run. Nil: nothing comes between them.
func (s *Store) Between(f func()) {
	if s.server.between = nil; f != nil {
		s.server.between = func() {
			client, hints := s.client, s.hints
			s.hints = nil
			f()
			s.client, s.hints = client, hints
		}
	}
}

// Del has a key deleted behind the clients' backs.
func (s *Store) Del(at time.Duration, key string) []StoreHint {
	s.at(at)
	s.server.remove(key)
	return s.take()
}

// Server returns the server itself, to change its clock or its keys behind the clients' backs.
func (s *Store) Server() *Server { return s.server }

// Value returns what the key holds, empty for nothing.
func (s *Store) Value(at time.Duration, key string) string {
	s.server.world.timeline.passed.Store(int64(at))
	if e, ok := s.server.keys[key]; ok && !s.server.expired(e) {
		return e.text()
	}
	return ""
}

// Keys returns the living keys, and what each has left to live.
func (s *Store) Keys(at time.Duration) map[string]time.Duration {
	s.server.world.timeline.passed.Store(int64(at))
	living := map[string]time.Duration{}
	for key, e := range s.server.keys {
		if !s.server.expired(e) {
			living[key] = s.server.left(e)
		}
	}
	return living
}

// Print returns a hash of all that the Store has at a moment. Two have the same that will do the same, also at
// different moments. text hashes keys and values.
func (s *Store) Print(at time.Duration, text func(string) uint64) uint64 {
	s.server.world.timeline.passed.Store(int64(at))
	now, unix := s.server.wall.now(), s.server.unix()
	all := uint64(s.server.run)
	for key, e := range s.server.keys {
		if now >= e.expires && !s.isTracked(key) { // as good as gone; what is tracked gives a hint
			continue
		}
		sum := hash.Mix(text(key) ^ 1)
		sum = hash.Mix(sum + text(e.value))
		sum = hash.Mix(sum + uint64(max(0, e.expires-now)))
		if e.score != nil {
			sum = hash.Mix(sum + uint64(int64(*e.score)-unix.Microseconds()))
		}
		for _, t := range e.tickets {
			sum = hash.Mix(sum + text(t.id))
			sum = hash.Mix(sum + uint64(t.arrived-unix))
			sum = hash.Mix(sum + uint64(t.dropped-unix))
		}
		for reader, until := range e.readers {
			all += hash.Mix(hash.Mix(text(reader)^sum) + uint64(until-unix))
		}
		all += sum
	}
	for _, t := range s.tracked {
		all += hash.Mix(text(t.key) + t.clients)
	}
	return hash.Mix(all + uint64(now-at))
}

func (s *Store) isTracked(key string) bool {
	return slices.ContainsFunc(s.tracked, func(t tracking) bool { return t.key == key })
}
