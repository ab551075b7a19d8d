package pool

import (
	"fmt"
	"time"
)

// stallTicks is how often a stall is looked for within the StallTimeout.
const stallTicks = 4

// A stallTimer finds out that a server leaves requests unanswered. It runs only while there are
// any, and looks at how many replies have come rather than at the age of requests, so that sending
// and receiving need not read a clock. The conn's mu guards it.
type stallTimer struct {
	timer   *time.Timer
	running bool
	stopped bool
	replies uint64 // at the last tick
	silent  int    // ticks without a reply since
}

func (c *conn) stallPeriod() time.Duration { return c.node.settings.stall / stallTicks }

// startStallTimer starts the timer if a reply is awaited. The caller holds mu.
func (c *conn) startStallTimer() {
	s := &c.stall
	if s.running || s.stopped || c.sent.size == 0 {
		return
	}
	s.running, s.replies, s.silent = true, c.replies, 0
	if s.timer == nil {
		s.timer = time.AfterFunc(c.stallPeriod(), c.checkStall)
	} else {
		s.timer.Reset(c.stallPeriod())
	}
}

// checkStall is called at each tick.
func (c *conn) checkStall() {
	c.mu.Lock()
	s := &c.stall
	if s.stopped || c.sent.size == 0 {
		s.running = false
		c.mu.Unlock()
		return
	}
	if s.replies == c.replies {
		s.silent++ // the first request in line was there at the last tick, too
	} else {
		s.replies, s.silent = c.replies, 0
	}
	stalled := s.silent >= stallTicks
	if !stalled {
		s.timer.Reset(c.stallPeriod())
	}
	c.mu.Unlock()
	if stalled {
		c.fail(fmt.Errorf("%w: nothing for %v", ErrStalled, c.node.settings.stall))
	}
}

func (c *conn) stopStallTimer() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stall.stopped = true
	if c.stall.timer != nil {
		c.stall.timer.Stop()
	}
}
