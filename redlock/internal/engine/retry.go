package engine

import (
	"context"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/redlock/internal/core"
)

// A Schedule is the way a caller waits. The zero Schedule tries once.
type Schedule struct {
	InLine   bool          // waits in line, without tries of its own
	Retries  int           // tries after the first, or Forever
	Interval time.Duration // between the starts of two tries; zero for short, growing pauses
}

// Forever makes a caller try until its context ends, or until its Patience ends in an outage.
const Forever = -1

// maxSettling is the number of extra tries of a caller that tries once, after callers at the same
// moment have split the votes. Without these tries, possibly no caller would get the lock.
const maxSettling = 5

// Get gets the lock by the Schedule. It returns the same as Acquire or Try.
func (e *Engine) Get(ctx context.Context, key string, t *core.Terms, s Schedule) (Lock, *core.Failure, error) {
	if s.InLine {
		return e.Acquire(ctx, key, t)
	}
	return e.Try(ctx, key, t, s)
}

// Try tries to get the lock. Without a lock it returns the failure of the last try. If the context
// ends first, it also returns the context's error, with the failure of the last complete try.
func (e *Engine) Try(ctx context.Context, key string, t *core.Terms, s Schedule) (lock Lock, f *core.Failure, err error) {
	f, err = e.Repeat(ctx, t, s, func(ctx context.Context) (f *core.Failure, worth int, err error) {
		lock, f, err = e.arrive(ctx, key, core.Caller{Terms: t, Try: true})
		return f, 0, err
	})
	return lock, f, err
}

// TryAsking tries once. It calls ask after it has requested the lock, so that the nodes get the
// requests of ask in the same packet, after the request for the lock.
func (e *Engine) TryAsking(ctx context.Context, key string, t *core.Terms, ask func()) (Lock, *core.Failure, error) {
	if err := ctx.Err(); err != nil {
		return Lock{}, nil, err
	}
	c := e.begin(key, core.Caller{Terms: t, Try: true})
	ask()
	return c.grant(ctx)
}

// settling returns the number of extra tries after a failure.
func settling(f *core.Failure) int {
	if f.IsSplit() {
		return maxSettling
	}
	return 0
}

// Repeat calls try according to the Schedule, until it succeeds. Without Retries, try returns the
// number of further tries that its failure justifies, in addition to the tries that settle split
// votes. These tries end when three timeouts have passed since the first try began. For locks
// without a line, a caller that would wait in line tries Forever. Repeat returns the same as Try.
func (e *Engine) Repeat(ctx context.Context, t *core.Terms, s Schedule, try func(context.Context) (f *core.Failure, worth int, err error)) (*core.Failure, error) {
	if s.InLine {
		s.Retries = Forever
	}
	now, inner := e.clock.Now(), ctx
	r := retry{Schedule: s, terms: t, group: &e.group, arrived: now}
	for {
		r.began = now
		f, worth, err := try(inner)
		switch now = e.clock.Now(); {
		case err != nil && r.failure != nil:
			return r.failure.After(now), ctx.Err()
		case err != nil || f == nil:
			return f, err
		}
		pause, again := r.failed(f, max(worth, settling(f)), now)
		if !again {
			return r.failure, nil
		}
		if s.Retries == 0 && inner == ctx {
			var stop context.CancelFunc
			inner, stop = e.Within(ctx, r.arrived.Add(3*t.Timeout))
			defer stop()
		}
		e.sleep(ctx, pause)
		now = e.clock.Now()
	}
}

// Within returns a context that ends at a moment, or with ctx.
func (e *Engine) Within(ctx context.Context, at clock.Instant) (context.Context, context.CancelFunc) {
	inner, cancel := context.WithCancel(ctx)
	timer := e.clock.AfterFunc(at.Sub(e.clock.Now()), cancel)
	return inner, func() { timer.Stop(); cancel() }
}

// A retry is a caller between two tries.
type retry struct {
	Schedule
	terms   *core.Terms
	group   *core.Group
	arrived clock.Instant
	began   clock.Instant // start of the last try
	tries   int           // failed tries before the last
	outage  clock.Instant // start of the current outage; zero without one
	failure *core.Failure // failure of the last try
}

// failed decides whether another try follows a failed one, and after which pause. Without Retries,
// worth decides.
func (r *retry) failed(f *core.Failure, worth int, now clock.Instant) (pause time.Duration, again bool) {
	if f.Kind != core.NoQuorum {
		r.outage = 0
	} else if r.outage == 0 {
		r.outage = r.began
	}
	r.failure = f.During(r.outage, now)
	switch {
	case r.Interval > 0: // counts between starts, so that slow tries do not delay later ones
		pause = max(0, r.Interval-now.Sub(r.began))
	case f.Kind != core.Stale: // no client blocks the lock
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
