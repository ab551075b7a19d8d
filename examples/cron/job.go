package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// A Job is to run once per tick, on any one of the machines that try.
type Job struct {
	Name    string
	Locker  *redlock.Locker
	Results *Results
	Work    func(ctx context.Context, tick time.Time) (result string, err error) // stops when ctx ends
}

// An Outcome is the end of a tick on one machine.
type Outcome string

const (
	Ran    Outcome = "ran"
	Busy   Outcome = "skipped, another machine is at it"
	Done   Outcome = "skipped, another machine has done it"
	NotRun Outcome = "did not run" // there is an error, for a human to see
)

// tries is how often a machine asks again for the lock. TryAcquire, which asks once, would not do:
// all machines ask at the same moment, and where they split the votes among them, all are told that
// it is held, and none runs the job. So they ask again, after random waits, a quarter of a second
// in all.
const tries = 5

// Run runs the job for a tick, unless another machine does or did.
func (j *Job) Run(ctx context.Context, tick time.Time) (Outcome, error) {
	outcome := NotRun
	err := j.Locker.Do(ctx, j.Name, func(ctx context.Context) error {
		if !tick.After(j.Results.Last()) {
			outcome = Done
			return nil
		}
		result, err := j.Work(ctx, tick)
		if err != nil {
			return err
		}
		outcome = Ran
		if !j.Results.Commit(tick, result) {
			outcome = Done // while this machine was paused, and its lock expired
		}
		return nil
	}, redlock.Retries(tries))
	switch {
	case outcome != NotRun:
		return outcome, nil // even if the lock was lost since: the result is there
	case errors.Is(err, redlock.ErrHeld):
		return Busy, nil
	}
	// Above all ErrNoQuorum: too few servers answer. It is not known then whether another machine
	// is at it, and a report that is missing does less harm than two at the same time. A job for
	// which that is not so runs here without the lock, and lets Commit sort it out.
	return NotRun, err
}

// Results stands for the database that the job writes to. It remembers the last tick together with
// what was written for it.
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

// Commit writes a result, or returns false if there is one for this tick or a later one. Check and
// write are one step, as in a transaction that begins with
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
