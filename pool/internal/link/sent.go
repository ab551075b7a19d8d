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
	calls   fifo[wire.Call]
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
	for i := range batch {
		s.calls.push(batch[i])
	}
	if s.running || s.closed || s.calls.size == 0 {
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
	if first := s.calls.first(); first != nil {
		if s.parts++; s.parts < first.Answers() {
			return *first, true
		}
		s.parts = 0
	}
	return s.calls.pop()
}

// pop returns the call that is the first in line.
func (s *sent) pop() (k wire.Call, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls.pop()
}

func (s *sent) tick() {
	s.mu.Lock()
	if s.closed || s.calls.size == 0 {
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

// close stops the timer.
func (s *sent) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
}

// A fifo is a queue in a ring that grows. The zero value is empty.
type fifo[T any] struct {
	ring []T // its length is zero or a power of two
	head int
	size int
}

func (f *fifo[T]) push(v T) {
	if f.size == len(f.ring) {
		ring := make([]T, max(16, 2*len(f.ring)))
		n := copy(ring, f.ring[f.head:])
		copy(ring[n:], f.ring[:f.head])
		f.ring, f.head = ring, 0
	}
	f.ring[(f.head+f.size)&(len(f.ring)-1)] = v
	f.size++
}

// first returns what is popped next; nil: nothing is.
func (f *fifo[T]) first() *T {
	if f.size == 0 {
		return nil
	}
	return &f.ring[f.head]
}

func (f *fifo[T]) pop() (v T, ok bool) {
	if f.size == 0 {
		return v, false
	}
	v, f.ring[f.head] = f.ring[f.head], v // v is zero: let go of what it held
	f.head = (f.head + 1) & (len(f.ring) - 1)
	f.size--
	return v, true
}
