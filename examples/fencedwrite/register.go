package main

import (
	"sync"

	"github.com/redquorum/redquorum/fence"
)

// A Register is a resource that many write to. Each write shows the token of its writer's lock, and
// is refused if a writer with a higher one was there before. The zero value is ready.
//
// This one is in memory. Where the resource is a Redis hash, fence.RedisSet does the same, and
// where it is an SQL row, examples/sqlfence.
type Register struct {
	gate  fence.Gate
	mu    sync.Mutex // Read needs no token
	value string
}

// Announce tells the register the token of a lock that has just been granted. From then on holders
// before are refused.
func (r *Register) Announce(token int64) error { return r.gate.Announce("register", token) }

// Write stores the value. The error matches fence.ErrStale if the writer is late.
func (r *Register) Write(token int64, value string) error {
	return r.gate.Do("register", token, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.value = value
		return nil
	})
}

// Read returns the value.
func (r *Register) Read() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.value
}
