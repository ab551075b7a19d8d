package sim

import (
	"maps"
	"slices"
	"time"

	"github.com/redquorum/redquorum/internal/protocol"
)

// A Store is a server alone: it runs a request immediately, at the time that the caller passes. So
// a test can try any order of requests, and run requests on a copy. A Store is not safe for
// concurrent use.
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

// Run runs a client's request at a time, which must not be before the time of an earlier request.
// It returns the reply and the hints that other clients get. The hints are valid until the next
// call.
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

// Forget makes the server lose all keys and become another process: a restart without persistence.
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

// Del deletes a key without a client's request.
func (s *Store) Del(at time.Duration, key string) []StoreHint {
	s.at(at)
	s.remove(key)
	return s.take()
}

// Value returns the value of the key, or an empty string.
func (s *Store) Value(at time.Duration, key string) string {
	s.moment = at
	if e, ok := s.keys[key]; ok && !s.expired(e) {
		return e.text()
	}
	return ""
}

// Keys returns the living keys, with their remaining TTLs.
func (s *Store) Keys(at time.Duration) map[string]time.Duration {
	s.moment = at
	living := map[string]time.Duration{}
	s.living(func(key string, e entry) { living[key] = s.left(e) })
	return living
}
