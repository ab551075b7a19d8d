package link

import (
	"sync"
	"time"

	"github.com/redquorum/redquorum/pool/internal/wire"
)

// stallTicks is how often a stall is looked for within the time that a server has.
const stallTicks = 4

// A sent has the calls that were sent and not answered, in their order, and finds out that the server
// leaves them unanswered. Its timer runs only while there are any, and looks at how many replies have
// come rather than at the age of requests, so that sending and receiving need not read a clock.
type sent struct {
	period  time.Duration // of the timer
	stalled func()        // is called when the first in line has not been answered for stallTicks periods

	mu      sync.Mutex // guards all fields below
	calls   []wire.Call
	head    int    // of calls: those before have been answered
	parts   int    // answers that the first of them has had
	replies uint64 // so far
	timer   *time.Timer
	running bool
	closed  bool
	before  uint64 // replies at the last tick
	silent  int    // ticks without a reply since
}

// push appends a batch that is about to be sent.
func (s *sent) push(batch []wire.Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.head > len(s.calls)/2 { // so that a call is moved once at most on average
		n := copy(s.calls, s.calls[s.head:])
		clear(s.calls[n:])
		s.calls, s.head = s.calls[:n], 0
	}
	s.calls = append(s.calls, batch...)
	if s.running || s.closed || s.head == len(s.calls) {
		return
	}
	s.running, s.before, s.silent = true, s.replies, 0
	if s.timer == nil {
		s.timer = time.AfterFunc(s.period, s.tick)
	} else {
		s.timer.Reset(s.period)
	}
}

// answered returns the call that a reply is for.
func (s *sent) answered() (k wire.Call, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replies++
	if s.head < len(s.calls) {
		if s.parts++; s.parts < s.calls[s.head].Answers() {
			return s.calls[s.head], true
		}
		s.parts = 0
	}
	return s.pop()
}

// pop returns the first in line, and lets go of what it holds. The caller holds mu.
func (s *sent) pop() (k wire.Call, ok bool) {
	if s.head == len(s.calls) {
		return k, false
	}
	k, s.calls[s.head] = s.calls[s.head], k
	s.head++
	return k, true
}

func (s *sent) tick() {
	s.mu.Lock()
	if s.closed || s.head == len(s.calls) {
		s.running = false
		s.mu.Unlock()
		return
	}
	if s.before == s.replies {
		s.silent++ // the first call in line was there at the last tick, too
	} else {
		s.before, s.silent = s.replies, 0
	}
	stalled := s.silent >= stallTicks
	if !stalled {
		s.timer.Reset(s.period)
	}
	s.mu.Unlock()
	if stalled {
		s.stalled()
	}
}

// close stops the timer, and returns what has not been answered.
func (s *sent) close() []wire.Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
	return s.calls[s.head:]
}
