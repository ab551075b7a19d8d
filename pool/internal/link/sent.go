package link

import (
	"sync"

	"github.com/redquorum/redquorum/pool/internal/wire"
)

// A sent has the calls that were sent and not answered, in their order.
type sent struct {
	mu      sync.Mutex // guards all fields below
	calls   []wire.Call
	head    int    // of calls: those before have been answered
	replies uint64 // so far
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
}

// answered returns the call that a reply is for, and lets go of what it holds with its last.
func (s *sent) answered() (k wire.Call, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.head == len(s.calls) {
		return k, false
	}
	s.replies++
	k, s.calls[s.head] = s.calls[s.head], k
	s.head++
	if s.head == len(s.calls) && cap(s.calls) > maxIdleCalls { // after a burst
		s.calls, s.head = nil, 0
	}
	return k, true
}

// progress returns how many replies there were so far, and whether more are to come.
func (s *sent) progress() (replies uint64, isWaiting bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.replies, s.head < len(s.calls)
}

// unanswered returns what has not been answered.
func (s *sent) unanswered() []wire.Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[s.head:]
}
