package main

import (
	"sync"
	"time"
)

// A State is what a cache has for a key.
type State int

const (
	Missing State = iota
	Stale         // expired, but kept
	Fresh
)

// A Cache is shared by all processes.
type Cache interface {
	Get(key string) (value string, state State)
	Set(key, value string)
}

// Memory is a Cache in the memory of this process. It stands for one in Redis or
// memcached, where a stale entry is one that is stored for longer than it is
// fresh, together with the time of its expiry.
type Memory struct {
	For time.Duration    // how long an entry is fresh
	Now func() time.Time // time.Now, or a clock that a test moves

	mu      sync.Mutex
	entries map[string]entry
}

type entry struct {
	value   string
	expires time.Time
}

// Get returns the value, fresh or stale.
func (m *Memory) Get(key string) (string, State) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.entries[key]
	switch {
	case !ok:
		return "", Missing
	case m.Now().Before(e.expires):
		return e.value, Fresh
	}
	return e.value, Stale
}

// Set stores a fresh value.
func (m *Memory) Set(key, value string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.entries == nil {
		m.entries = map[string]entry{}
	}
	m.entries[key] = entry{value: value, expires: m.Now().Add(m.For)}
}
