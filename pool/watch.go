package pool

import (
	"fmt"
	"time"
)

// stallTicks is how often a stall is looked for within the StallTimeout.
const stallTicks = 4

// A watch finds out that a server leaves requests unanswered. It runs only
// while there are any, and looks at how many replies have come rather than at
// the age of requests, so that sending and receiving need not read a clock.
// It is guarded by the conn's mu.
type watch struct {
	timer   *time.Timer
	running bool
	stopped bool
	replies uint64 // at the last tick
	strikes int    // ticks without a reply since
}

func (c *conn) watchPeriod() time.Duration { return c.node.settings.stall / stallTicks }

// armWatch starts the watch if there is something to wait for. mu is held.
func (c *conn) armWatch() {
	w := &c.watch
	if w.running || w.stopped || c.sent.size == 0 {
		return
	}
	w.running, w.replies, w.strikes = true, c.replies, 0
	if w.timer == nil {
		w.timer = time.AfterFunc(c.watchPeriod(), c.tickWatch)
	} else {
		w.timer.Reset(c.watchPeriod())
	}
}

func (c *conn) tickWatch() {
	c.mu.Lock()
	w := &c.watch
	if w.stopped || c.sent.size == 0 {
		w.running = false
		c.mu.Unlock()
		return
	}
	if w.replies == c.replies {
		w.strikes++ // the first request in line was there at the last tick, too
	} else {
		w.replies, w.strikes = c.replies, 0
	}
	stalled := w.strikes >= stallTicks
	if !stalled {
		w.timer.Reset(c.watchPeriod())
	}
	c.mu.Unlock()
	if stalled {
		c.fail(fmt.Errorf("%w: nothing for %v", ErrStalled, c.node.settings.stall))
	}
}

func (c *conn) stopWatch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watch.stopped = true
	if c.watch.timer != nil {
		c.watch.timer.Stop()
	}
}
