package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// A Guard answers from a cache, and lets one caller of all processes refill an entry.
type Guard struct {
	Locker *redlock.Locker
	Cache  Cache
	Load   func(ctx context.Context, key string) (string, error) // asks the database
	Warn   func(err error)                                       // hears why an entry is not refilled, or without a lock
}

// Get returns the value of key: fresh, or stale while another caller refills it.
func (g *Guard) Get(ctx context.Context, key string) (string, error) {
	old, state := g.Cache.Get(key)
	switch state {
	case Fresh:
		return old, nil
	case Stale:
		// One try, for there is something to serve. If several ask in the same moment and split the
		// votes among them, none is granted the lock; then the next request refills.
		value, err := g.refill(ctx, key, redlock.Retries(0))
		if err == nil {
			return value, nil
		}
		if !errors.Is(err, redlock.ErrHeld) {
			g.Warn(err)
		}
		return old, nil
	}
	value, err := g.refill(ctx, key)
	if errors.Is(err, redlock.ErrNoQuorum) {
		// This lock saves work, it protects no data: without it the site is slow, which is better
		// than down. If your database would be down then, too, return the error instead.
		g.Warn(err)
		return g.Load(ctx, key)
	}
	return value, err
}

// refill loads and caches the value, under the lock.
func (g *Guard) refill(ctx context.Context, key string, opts ...redlock.Option) (value string, err error) {
	done := false
	err = g.Locker.Do(ctx, "refill:"+key, func(ctx context.Context) error {
		// Look again: a caller that waited for the lock waited for one that has refilled the entry.
		// Without this all would, one after the other.
		cached, state := g.Cache.Get(key)
		if state == Fresh {
			value, done = cached, true
			return nil
		}
		loaded, err := g.Load(ctx, key) // ends with the lock
		if err != nil {
			return err
		}
		g.Cache.Set(key, loaded)
		value, done = loaded, true
		return nil
	}, opts...)
	if done {
		return value, nil // even if the lock was lost at the last moment: the value is as good
	}
	return "", err
}

// A State is the state of a key in a cache.
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

// Memory is a Cache in the memory of this process. It stands for one in Redis or memcached, where a
// stale entry is one that is stored for longer than it is fresh, together with the time of its
// expiry.
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
