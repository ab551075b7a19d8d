package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// A Candidate is a process that leads, or waits for its turn.
type Candidate struct {
	Name   string
	Locker *redlock.Locker

	// Lead does the leader's work, and returns soon after ctx has ended, for another one may lead
	// from then on. What it writes should show lock.Fence() wherever two leaders for a moment would
	// do harm: see examples/fencedwrite.
	Lead func(ctx context.Context, lock *redlock.Lock) error

	Tell func(Transition) // for logs and metrics
}

// Run leads whenever it can, until ctx ends (the result is nil), Lead returns by itself (the result
// is Lead's), or there is no hope.
func (c *Candidate) Run(ctx context.Context, office string) error {
	for tries := 0; ; {
		lock, err := c.Locker.Acquire(ctx, office) // waits while another one leads
		switch {
		case err == nil:
			tries = 0
			if over, err := c.lead(ctx, lock); over {
				return err
			}
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, redlock.ErrNoQuorum):
			c.Tell(Transition{Who: c.Name, What: NoQuorum, Why: err})
			pause(ctx, backoff(tries))
			tries++
		default: // the Locker was closed, or the name is not fit
			return err
		}
	}
}

// lead is one term of office. It is not over for good if the lock was lost.
func (c *Candidate) lead(ctx context.Context, lock *redlock.Lock) (over bool, err error) {
	// The lock is released when the work has ended, never before, because the next one starts at
	// once; and even if ctx has ended, which bounds only how long Release waits for confirmation.
	defer lock.Release(ctx)

	work, cancel := context.WithCancelCause(lock.Context())
	defer cancel(nil)
	unlink := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	defer unlink()

	c.Tell(Transition{Who: c.Name, What: Leads})
	err = c.Lead(work, lock)
	c.Tell(Transition{Who: c.Name, What: StepsDown, Why: context.Cause(work)})

	switch {
	case ctx.Err() != nil:
		return true, nil
	case lock.Context().Err() != nil:
		return false, nil // lost: a candidate like any other again
	}
	return true, err
}

// Waits between tries during an outage double from firstWait to lastWait. A part is random, so that
// candidates do not come all at once when it is over.
const (
	firstWait = 50 * time.Millisecond
	lastWait  = 2 * time.Second
)

func backoff(tries int) time.Duration {
	limit := min(firstWait<<min(tries, 10), lastWait)
	return limit/2 + rand.N(limit/2)
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// What says how a candidate's state changes.
type What string

const (
	Leads     What = "leads"
	StepsDown What = "steps down"
	NoQuorum  What = "reaches too few servers, and tries again"
)

// A Transition is a change of a candidate's state.
type Transition struct {
	Who  string
	What What
	Why  error // of StepsDown and NoQuorum; nil if it does so by itself
}

func (t Transition) String() string {
	if t.What == StepsDown && t.Why != nil {
		return fmt.Sprintf("%s %s: %v", t.Who, t.What, t.Why)
	}
	return fmt.Sprintf("%s %s", t.Who, t.What) // the servers' answers would fill the screen
}
