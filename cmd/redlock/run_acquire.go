package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// acquire takes the lock as the flags say.
func (r *runFlags) acquire(ctx context.Context, l *redlock.Locker, name string) (*redlock.Lock, error) {
	var opts []redlock.Option
	if r.fenced {
		opts = append(opts, redlock.Fenced())
	}
	if r.fair {
		opts = append(opts, redlock.Fair())
	}
	if r.noWait {
		return tryAcquire(ctx, l, name, opts)
	}
	if r.flags.Changed("retries") {
		opts = append(opts, redlock.Retries(r.retries))
	}
	if r.flags.Changed("retry-interval") {
		opts = append(opts, redlock.RetryInterval(r.interval))
	}
	if r.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.wait)
		defer cancel()
	}
	return l.Acquire(ctx, name, opts...)
}

// tryAcquire does not wait for a holder. But where several try at the same moment,
// as cron has them do, each may get some votes and none enough: then there is no
// holder, and somebody must get the lock.
func tryAcquire(ctx context.Context, l *redlock.Locker, name string, opts []redlock.Option) (*redlock.Lock, error) {
	const most = 10
	for try := 1; ; try++ {
		lock, err := l.TryAcquire(ctx, name, opts...)
		if try == most || !errors.Is(err, redlock.ErrHeld) {
			return lock, err
		}
		if in, e := l.Inspect(ctx, name); e != nil {
			return nil, err
		} else if _, _, held := in.Holder(); held {
			return nil, err
		}
		select {
		case <-time.After(rand.N(time.Duration(try) * 20 * time.Millisecond)):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// refused gives the error of an acquisition its exit code. When the time for
// waiting was over, what the last try met with decides.
func (r *runFlags) refused(ctx context.Context, err error, t *tries) error {
	held := errors.Is(err, redlock.ErrHeld)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		kind := redlock.ErrNoQuorum
		if held = errors.Is(t.last(), redlock.ErrHeld); held {
			kind = redlock.ErrHeld
		}
		err = fmt.Errorf("waited %v: %w: %w", r.wait, kind, err)
	}
	var vote *redlock.QuorumError
	switch {
	case ctx.Err() != nil:
		return err
	case held:
		return &exitError{code: r.heldCode, err: err}
	case errors.As(err, &vote):
		return err
	}
	return &exitError{code: exitUsage, err: err} // a name or an option that is refused without asking anybody
}

// tries remembers what the last try to acquire met with.
type tries struct {
	mu  sync.Mutex
	err error
}

// Observe implements redlock.Observer.
func (t *tries) Observe(e redlock.Event) {
	if e.Kind != redlock.EventAttempt || errors.Is(e.Err, context.DeadlineExceeded) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = e.Err
}

func (t *tries) last() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}
