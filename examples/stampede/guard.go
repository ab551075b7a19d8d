package main

import (
	"context"
	"errors"

	"github.com/redquorum/redquorum/redlock"
)

// A Guard answers from a cache, and lets one caller of all processes refill an
// entry.
type Guard struct {
	Locker *redlock.Locker
	Cache  Cache
	Load   func(ctx context.Context, key string) (string, error) // asks the database
}

// Get returns the value of key: fresh, or stale while somebody refills it.
func (g *Guard) Get(ctx context.Context, key string) (string, error) {
	old, state := g.Cache.Get(key)
	switch state {
	case Fresh:
		return old, nil
	case Stale:
		// One try, for there is something to serve. If several ask in the same
		// moment and split the votes among them, none is granted the lock; then
		// the next request refills.
		value, err := g.refill(ctx, key, redlock.Retries(0))
		if err != nil {
			return old, nil
		}
		return value, nil
	}
	value, err := g.refill(ctx, key)
	if errors.Is(err, redlock.ErrNoQuorum) {
		// This lock saves work, it protects no data: without it the site is slow,
		// which is better than down. If your database would be down then, too,
		// return the error instead.
		return g.Load(ctx, key)
	}
	return value, err
}

// refill loads and caches the value, under the lock.
func (g *Guard) refill(ctx context.Context, key string, opts ...redlock.Option) (value string, err error) {
	done := false
	err = g.Locker.Do(ctx, "refill:"+key, func(ctx context.Context) error {
		// Look again: whoever waited for the lock waited for somebody who has
		// refilled the entry. Without this all would, one after the other.
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
