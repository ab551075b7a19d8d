package link

import (
	"sync"

	"github.com/redquorum/redquorum/pool/internal/wire"
)

// inFlight holds the calls that were sent and not answered, in their order.
type inFlight struct {
	mu      sync.Mutex // guards all fields below
	calls   []wire.Call
	head    int    // index of the first unanswered call
	replies uint64 // number of replies received
}

// push appends a batch that is about to be sent.
func (f *inFlight) push(batch []wire.Call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.head > len(f.calls)/2 { // then each call moves at most once on average
		n := copy(f.calls, f.calls[f.head:])
		clear(f.calls[n:])
		f.calls, f.head = f.calls[:n], 0
	}
	f.calls = append(f.calls, batch...)
}

// answered removes and returns the call that the next reply answers. After the last call of a burst
// it frees the memory.
func (f *inFlight) answered() (k wire.Call, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.head == len(f.calls) {
		return k, false
	}
	f.replies++
	k, f.calls[f.head] = f.calls[f.head], k
	f.head++
	if f.head == len(f.calls) && cap(f.calls) > maxIdleCalls { // after a burst
		f.calls, f.head = nil, 0
	}
	return k, true
}

// progress returns the number of replies received, and whether calls are still unanswered.
func (f *inFlight) progress() (replies uint64, isWaiting bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.replies, f.head < len(f.calls)
}

// unanswered returns the calls without a reply.
func (f *inFlight) unanswered() []wire.Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[f.head:]
}
