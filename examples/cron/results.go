package main

import (
	"sync"
	"time"
)

// Results stands for the database that the job writes to. It remembers the last
// tick together with what was written for it.
type Results struct {
	mu   sync.Mutex
	last time.Time
	rows []string
}

// Last is the last tick that has a result.
func (r *Results) Last() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// Commit writes a result, or returns false if there is one for this tick or a later
// one. Check and write are one step, as in a transaction that begins with
//
//	UPDATE job SET last = ? WHERE name = ? AND last < ?
//
// and goes on only if that has changed a row.
func (r *Results) Commit(tick time.Time, result string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !tick.After(r.last) {
		return false
	}
	r.last = tick
	r.rows = append(r.rows, result)
	return true
}

// Rows are the results.
func (r *Results) Rows() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rows
}
