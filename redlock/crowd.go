package redlock

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
)

// A crowd is the callers of a Locker who have been woken by a reply and have not run since. Most of
// them ask for the next thing at once: who has waited for a lock releases it, and who has released one
// acquires the next. So nodes keep back what they are to write until the last of the crowd has run
// (protocol.Crowd). Where 64 callers come and go, a packet then has the requests of nearly all of
// them: a third fewer system calls here and on the servers.
//
// The last caller to run has the packets sent, so nothing waits by a clock. The exception is a caller
// that the Go scheduler leaves lying, on a machine with more to run than it can: others wait for it for
// maxCrowded at most.
type crowd struct {
	coming atomic.Int32 // callers that were woken and have not run

	mu      sync.Mutex
	waiting []func() // to be called when nobody is coming
	spare   []func() // the memory of the waiting before
	clock   clock.Clock
	timer   clock.Timer // calls them anyway; nil: not needed so far
}

// maxCrowded is how long requests are kept back at most. The timer fires for nothing as often, so it is
// no shorter.
const maxCrowded = 2 * time.Millisecond

// woken counts a caller that was woken. It is not counted again before it has run.
func (c *crowd) woken() { c.coming.Add(1) }

// running is called by each caller that was counted, as soon as it runs.
func (c *crowd) running() {
	if c.coming.Add(-1) == 0 {
		c.disperse()
	}
}

// Await implements protocol.Crowd.
func (c *crowd) Await(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.coming.Load() == 0 { // read under mu: the last to run may have looked for what waits already
		return false
	}
	if c.waiting = append(c.waiting, f); len(c.waiting) > 1 {
		return true
	}
	if c.timer == nil {
		c.timer = c.clock.AfterFunc(maxCrowded, c.disperse)
	} else {
		c.timer.Reset(maxCrowded)
	}
	return true
}

// disperse calls what waits.
func (c *crowd) disperse() {
	c.mu.Lock()
	waiting := c.waiting
	c.waiting, c.spare = c.spare, nil
	c.mu.Unlock()
	if len(waiting) == 0 {
		return
	}
	for _, f := range waiting {
		f()
	}
	clear(waiting)
	c.mu.Lock()
	c.spare = waiting[:0]
	c.mu.Unlock()
}
