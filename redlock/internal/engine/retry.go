package engine

import (
	"context"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/redlock/internal/core"
)

// A Schedule is how a caller waits. The zero Schedule tries once.
type Schedule struct {
	InLine   bool          // behind the callers that came before, without tries of its own
	Retries  int           // how many tries follow the first, or Forever
	Interval time.Duration // from the start of a try to that of the next; zero: short pauses that grow
}

// Forever are the Retries of a caller that tries until its context ends, or its Patience through an outage.
const Forever = -1

// maxSettling is how many times a caller that tries once tries again after callers that came at the same
// moment have split the votes. Without it none of them might get the lock.
const maxSettling = 5

// Get gets the lock as the Schedule says. It returns what Acquire or Try does.
func (e *Engine) Get(ctx context.Context, key string, t *core.Terms, s Schedule) (Lock, *core.Failure, error) {
	if s.InLine {
		return e.Acquire(ctx, key, t)
	}
	return e.Try(ctx, key, t, s)
}

// Try tries to get the lock, or says why the last try has not got it. With a context's error the failure is
// that of the last try that was not cut short.
func (e *Engine) Try(ctx context.Context, key string, t *core.Terms, s Schedule) (lock Lock, f *core.Failure, err error) {
	f, err = e.Repeat(ctx, t, s, func() (f *core.Failure, worth int, err error) {
		lock, f, err = e.arrive(ctx, key, core.Caller{Terms: t, Try: true})
		return f, 0, err
	})
	return lock, f, err
}

// TryAsking is Try without a Schedule. It calls ask when a try has asked for the lock, so that the nodes get the Poll
// in the same packet, behind that. It returns the Poll of the last try.
func (e *Engine) TryAsking(ctx context.Context, key string, t *core.Terms, ask func() *Poll) (lock Lock, p *Poll, f *core.Failure, err error) {
	f, err = e.Repeat(ctx, t, Schedule{}, func() (f *core.Failure, worth int, err error) {
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		c := e.begin(key, core.Caller{Terms: t, Try: true})
		p = ask()
		lock, f, err = c.grant(ctx)
		return f, 0, err
	})
	return lock, p, f, err
}

// settling is how many more tries a failure is worth by itself.
func settling(f *core.Failure) int {
	if f.IsSplit() {
		return maxSettling
	}
	return 0
}

// Repeat calls try as the Schedule says, until it has no failure. Without Retries, try says how many more its
// failure is worth, beside those that settle split votes. What has no line is tried Forever by a caller that would wait
// in one. Repeat returns what Try does.
func (e *Engine) Repeat(ctx context.Context, t *core.Terms, s Schedule, try func() (f *core.Failure, worth int, err error)) (*core.Failure, error) {
	if s.InLine {
		s.Retries = Forever
	}
	now := e.clock.Now()
	r := retry{Schedule: s, terms: t, group: &e.group, arrived: now}
	for {
		r.began = now
		f, worth, err := try()
		switch now = e.clock.Now(); {
		case err != nil && r.failure != nil:
			return r.failure.After(now), err
		case err != nil || f == nil:
			return f, err
		}
		pause, again := r.failed(f, max(worth, settling(f)), now)
		if !again {
			return r.failure, nil
		}
		e.sleep(ctx, pause)
		now = e.clock.Now()
	}
}

// A retry is a caller between two tries.
type retry struct {
	Schedule
	terms   *core.Terms
	group   *core.Group
	arrived clock.Instant
	began   clock.Instant // the last try
	tries   int           // that have failed, but the last
	outage  clock.Instant // since when no quorum has answered; zero: one has
	failure *core.Failure // of the last try
}

// failed decides whether another try follows one that has failed, and after what pause. Without Retries the
// worth decides.
func (r *retry) failed(f *core.Failure, worth int, now clock.Instant) (pause time.Duration, again bool) {
	if f.Kind != core.NoQuorum {
		r.outage = 0
	} else if r.outage == 0 {
		r.outage = r.began
	}
	r.failure = f.During(r.outage, now)
	switch {
	case r.Interval > 0: // from start to start, so that slow tries do not shift the rest
		pause = max(0, r.Interval-now.Sub(r.began))
	case f.Kind != core.Stale: // no other client is in the way
		pause = r.group.Delay(r.tries, f)
	}
	switch {
	case f.Kind == core.AfterClose:
	case r.Retries == 0:
		again = r.tries < worth && now.Add(pause) < r.arrived.Add(r.terms.Timeout)
	case r.Retries > 0:
		again = r.tries < r.Retries
	case f.Kind == core.NoQuorum:
		again = !f.IsPermanent() && now.Sub(r.outage) < r.terms.Patience
	default:
		again = true
	}
	r.tries++
	return pause, again
}
