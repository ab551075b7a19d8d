package schedules

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// A call is one request for a lock, from its beginning to its end.
type call struct {
	*client
	names  []string // sorted
	permit int      // permits of the name; zero: a lock without permits
	weight int      // permits that the caller wants
	reads  bool
	fair   bool
	tries  bool // waits for no holder
	lines  bool // waits in line
	ctx    context.Context

	timeout, patience time.Duration

	came  time.Duration // like the times below, true time since the schedule's start
	left  time.Duration // when its context ended; zero: the context did not end
	over  time.Duration // when it returned; zero: not yet
	gone  time.Duration // when the lock ended; zero: not yet, or no lock
	err   error
	lock  *redlock.Lock
	ended [redlock.EventReleased + 1]int // number of its events, by kind
}

// draw draws a call of any kind.
func (w *worker) draw() (c *call, opts []redlock.Option) {
	c = &call{client: w.client, names: []string{"a"}, timeout: w.timeout, patience: w.patience}
	isSet := w.dice.IntN(8) < w.sets
	c.reads = w.dice.IntN(8) < w.readers && !isSet
	if w.dice.IntN(8) < w.fenced && !c.reads {
		opts = append(opts, redlock.Fenced())
	}
	if c.fair = w.dice.IntN(8) < w.fair; c.fair {
		opts = append(opts, redlock.Fair())
	}
	switch {
	case isSet:
		names := []string{"a", "b", "c", "d"}
		w.dice.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		c.names = names[:2+w.dice.IntN(3)]
	case c.reads:
		opts = append(opts, redlock.Shared())
	case w.permits > 0:
		if c.permit = w.permits; w.one(4) && !w.calm {
			c.permit = 1 + w.dice.IntN(w.permits)
		}
		if c.weight = 1; w.fenced == 0 && w.one(4) {
			c.weight = 1 + w.dice.IntN(c.permit)
		}
		opts = append(opts, redlock.Permits(c.permit), redlock.Weight(c.weight))
	}
	if w.one(6) {
		c.timeout = timeouts[w.dice.IntN(len(timeouts))]
		opts = append(opts, redlock.NodeTimeout(c.timeout))
	}
	switch {
	case w.one(8):
		c.tries = true
	case w.one(12):
		opts = append(opts, redlock.RetryInterval(upTo(w.dice, 50*time.Millisecond)))
	default:
		c.lines = true
	}
	return c, opts
}

// timeouts lists the timeouts of nodes.
var timeouts = []time.Duration{longest / 20, longest / 10, longest / 4, longest / 2}

// ask makes the call.
func (c *call) ask(ctx context.Context, opts []redlock.Option) (*redlock.Lock, error) {
	c.ctx, c.came = context.WithValue(ctx, theCall{}, c), c.elapsed()
	defer context.AfterFunc(ctx, func() { c.note(&c.left) })()
	c.mu.Lock()
	c.calls = append(c.calls, c)
	c.mu.Unlock()
	switch names := slices.Clone(c.names); {
	case len(names) > 1 && c.tries:
		c.lock, c.err = c.locker.TryAcquireAll(c.ctx, names, opts...)
	case len(names) > 1:
		c.lock, c.err = c.locker.AcquireAll(c.ctx, names, opts...)
	case c.tries:
		c.lock, c.err = c.locker.TryAcquire(c.ctx, names[0], opts...)
	default:
		c.lock, c.err = c.locker.Acquire(c.ctx, names[0], opts...)
	}
	slices.Sort(c.names)
	if c.note(&c.over); ctx.Err() != nil && c.left == 0 {
		c.left = c.over
	}
	if c.lock != nil {
		context.AfterFunc(c.lock.Context(), func() { c.note(&c.gone) })
	}
	return c.lock, c.err
}

// theCall is the key under which a context stores its call.
type theCall struct{}

// Observe implements redlock.Observer.
func (c *client) Observe(e redlock.Event) {
	of, ok := e.Context.Value(theCall{}).(*call)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	of.ended[e.Kind]++
}

// vote returns the error of the attempt if the call has no lock because of it, otherwise nil.
func (c *call) vote() *redlock.QuorumError {
	var vote *redlock.QuorumError
	errors.As(c.err, &vote)
	return vote
}
