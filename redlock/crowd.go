package redlock

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/redquorum/redquorum/clock"
)

// A crowd is the callers of a Locker who have been woken by a reply and have not run since. Most of
// them ask for the next thing at once: who has waited for a lock releases it, and who has released one
// acquires the next. So nodes keep back what they are to write until the crowd that they find has run
// (protocol.Crowd). Where 64 callers come and go, a packet then has the requests of nearly all of
// them: a third fewer system calls here and on the servers.
//
// Who waits for a crowd waits for as many callers as it had then, and not for those who are woken later:
// in a busy program some always are. A caller that the Go scheduler leaves lying, on a machine with more
// to run than it can, is waited for for maxCrowded at most.
type crowd struct {
	woke  atomic.Uint64 // callers so far
	ran   atomic.Uint64 // of those
	until atomic.Uint64 // when so many have run, what waits is called; noCrowd: nothing waits

	mu      sync.Mutex
	waiting []func()
	spare   []func() // the memory of the waiting before
	clock   clock.Clock
	timer   clock.Timer // calls what waits anyway, and is not stopped if it need not; nil: none so far
}

// maxCrowded is how long requests are kept back at most. It is below minAnswerLimit, so that no node
// seems silent that has not been asked.
const maxCrowded = minAnswerLimit / 2

const noCrowd = math.MaxUint64

func newCrowd(c clock.Clock) *crowd {
	made := &crowd{clock: c}
	made.until.Store(noCrowd)
	return made
}

// woken counts a caller that was woken. It is not counted again before it has run.
func (c *crowd) woken() { c.woke.Add(1) }

// running is called by each caller that was counted, as soon as it runs.
func (c *crowd) running() {
	if c.ran.Add(1) >= c.until.Load() {
		c.disperse()
	}
}

// coming returns how many callers were woken and have not run.
func (c *crowd) coming() int { return int(c.woke.Load() - c.ran.Load()) }

// Await implements protocol.Crowd.
func (c *crowd) Await(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 {
		until := c.woke.Load()
		c.until.Store(until)
		if c.ran.Load() >= until { // read after until was stored: the last may have run before, and called nothing
			c.until.Store(noCrowd)
			return false
		}
		c.arm()
	}
	c.waiting = append(c.waiting, f)
	return true
}

// arm sets the timer. The crowd must be locked.
func (c *crowd) arm() {
	if c.timer == nil {
		c.timer = c.clock.AfterFunc(maxCrowded, c.disperse)
	} else {
		c.timer.Reset(maxCrowded)
	}
}

// disperse calls what waits.
func (c *crowd) disperse() {
	c.mu.Lock()
	waiting := c.waiting
	if len(waiting) == 0 {
		c.mu.Unlock()
		return
	}
	c.waiting, c.spare = c.spare, nil
	c.until.Store(noCrowd)
	c.mu.Unlock()
	for _, f := range waiting {
		f()
	}
	clear(waiting)
	c.mu.Lock()
	c.spare = waiting[:0]
	c.mu.Unlock()
}
