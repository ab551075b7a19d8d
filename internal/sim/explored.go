package sim

import (
	"maps"
	"slices"
	"time"

	"github.com/redquorum/redquorum/internal/protocol"
)

// A Store is a server alone: a request is run when it is given, at the moment that is told. So a test can try
// any order of requests, and ask a copy. It is not safe for concurrent use.
type Store struct{ store }

// NewStore returns an empty Store.
func NewStore(index int, name string) *Store {
	return &Store{newStore(index, name, 1_700_000_000*time.Second)}
}

// Clone returns a copy.
func (s *Store) Clone() *Store {
	c := *s
	c.keys, c.tracked, c.hints = maps.Clone(s.keys), slices.Clone(s.tracked), nil
	return &c
}

// Run runs a client's request at a moment, which is not before that of an earlier one. It returns the
// reply and the hints that other clients get, which are valid until the next call.
func (s *Store) Run(at time.Duration, client int, req *protocol.Request) (protocol.Reply, []StoreHint) {
	s.at(at)
	return s.serve(client, req, true), s.take()
}

// at sets the time, and expires keys.
func (s *Store) at(at time.Duration) {
	s.hints, s.moment = s.hints[:0], at
	s.expire()
}

func (s *Store) take() []StoreHint {
	if len(s.hints) > 1 {
		slices.SortStableFunc(s.hints, func(a, b StoreHint) int { return a.Client - b.Client })
	}
	return s.hints
}

// Forget makes the server lose all keys, and be another process than before: a restart without persistence.
func (s *Store) Forget(at time.Duration) []StoreHint {
	s.at(at)
	s.run++
	clear(s.keys)
	for _, t := range s.tracked {
		s.hints = append(s.hints, StoreHint{t.client, everything})
	}
	s.tracked = s.tracked[:0]
	return s.take()
}

// Del has a key deleted behind the clients' backs.
func (s *Store) Del(at time.Duration, key string) []StoreHint {
	s.at(at)
	s.remove(key)
	return s.take()
}

// Value returns what the key holds, empty for nothing.
func (s *Store) Value(at time.Duration, key string) string {
	s.moment = at
	if e, ok := s.keys[key]; ok && !s.expired(e) {
		return e.text()
	}
	return ""
}

// Keys returns the living keys, and what each has left to live.
func (s *Store) Keys(at time.Duration) map[string]time.Duration {
	s.moment = at
	living := map[string]time.Duration{}
	s.living(func(key string, e entry) { living[key] = s.left(e) })
	return living
}
