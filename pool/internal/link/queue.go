package link

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/pool/internal/wire"
)

const (
	// maxOutstanding bounds the requests that wait for one node, sent or not.
	maxOutstanding = 1 << 16
	// maxPending bounds the pending releases of a node. Beyond it keys are left to expire.
	maxPending = 1 << 14
	// retryInterval is how long after it was refused a release is sent again on the same connection. The
	// wait doubles up to maxRetryInterval while releases are refused.
	retryInterval    = 250 * time.Millisecond
	maxRetryInterval = 5 * time.Second
	// maxIdleCalls bounds the calls for which memory is kept after a burst, in each place.
	maxIdleCalls = 1 << 11
)

// A queue has the requests for a node until the writer of its connection takes them. It outlives the
// connections: while there is none, requests fail at once.
//
// Releases are retried until confirmed. One that did not reach the server, was not answered, or was
// answered with an error is pending, though its caller has had that reply. Pending releases are sent
// first on the next connection, and again and again on a connection that lasts (see retryInterval), until
// their keys must have expired.
type queue struct {
	outstanding atomic.Int64  // requests without a reply, queued or sent
	wake        chan struct{} // capacity 1: there is work for the writer

	mu        sync.Mutex     // guards the fields below
	abilities wire.Abilities // of the server
	offline   error          // set while there is no connection: requests fail with it at once
	calls     []wire.Call
	kicked    bool        // the connection has something of its own to send
	idle      bool        // the writer waits for wake
	pending   []wire.Call // the oldest first; a retry is the receiver of each
}

// processStart is what the times of calls count from: a Duration is a third of a Time, and cheaper to
// read from the clock.
var processStart = time.Now()

func sinceStart() time.Duration { return time.Since(processStart) }

func newQueue() *queue { return &queue{wake: make(chan struct{}, 1)} }

// submit queues a request, as protocol.Node has it. The time after which it must not be sent belongs to
// the submission, because a request can be submitted again. A release that matters is always sent.
func (q *queue) submit(r *protocol.Request, slot int, to protocol.Receiver) error {
	k := wire.Call{Request: r, Slot: slot, To: to}
	if !r.MayHold {
		k.Expires = sinceStart() + r.Timeout
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	k.Form = q.abilities.Form(r)
	if q.offline != nil {
		q.keep(k)
		return q.offline
	}
	// A release that matters follows an acquisition that was let in, so their number is bounded, too.
	if q.outstanding.Load() >= maxOutstanding && !r.MayHold {
		return ErrFull
	}
	q.outstanding.Add(1)
	q.calls = append(q.calls, k)
	q.wakeWriter()
	return nil
}

// wakeWriter has the writer look at the queue. The caller holds mu.
func (q *queue) wakeWriter() {
	if !q.idle {
		return
	}
	q.idle = false
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// kick has take return though there may be no requests.
func (q *queue) kick() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.kicked = true
	q.wakeWriter()
}

// take waits for work and empties the queue, which goes on with the memory of spare. It returns false
// when broken is closed and there is no work. Requests whose time is over are dropped.
func (q *queue) take(spare []wire.Call, broken <-chan struct{}) (batch []wire.Call, ok bool) {
	for !q.hasWork() {
		select {
		case <-q.wake:
		case <-broken:
			return nil, false
		}
	}
	// Other goroutines that are about to submit go first, and share the system call: with 64 callers
	// that gives four tenths more cycles a second.
	runtime.Gosched()
	q.mu.Lock()
	batch, q.calls, q.kicked = q.calls, spare, false
	q.mu.Unlock()

	now := sinceStart()
	kept := batch[:0]
	for i := range batch {
		if k := &batch[i]; k.Expires == 0 || now <= k.Expires {
			kept = append(kept, *k)
		} else {
			q.reply(*k, protocol.Reply{Outcome: protocol.Failed, Err: ErrExpired})
		}
	}
	clear(batch[len(kept):])
	return kept, true
}

func (q *queue) hasWork() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.idle = len(q.calls) == 0 && !q.kicked
	return !q.idle
}

// again queues a call for the second time. It goes before all that has not
// been sent yet, and behind the requests that are sent again already, so that these keep their order.
func (q *queue) again(k wire.Call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	before := len(q.calls)
	for before > 0 && !q.calls[before-1].Form.Again {
		before--
	}
	q.calls = slices.Insert(q.calls, before, k)
	q.wakeWriter()
}

// reply settles a call that has left queue and connection.
func (q *queue) reply(k wire.Call, r protocol.Reply) {
	q.outstanding.Add(-1)
	k.To.Receive(k.Slot, r)
}

// lacks ends the use of what the server turned out not to have.
func (q *queue) lacks(what wire.Abilities) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.abilities = q.abilities.Without(what)
}

// open lets requests in, for a server with these abilities: first the releases that are pending from
// earlier connections, then the queue. Releases whose keys should have expired are sent, too, because a
// SET that stood in a hung server's buffer begins its TTL only when it is run.
func (q *queue) open(a wire.Abilities) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.offline = nil
	q.kicked = true
	q.abilities = a
	q.sendPending()
}

// isOpen reports whether requests are let in.
func (q *queue) isOpen() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.offline == nil
}

// close makes requests fail with the reason, those in the queue too.
func (q *queue) close(reason error) {
	q.mu.Lock()
	q.offline = reason
	unsent := q.calls
	q.calls = nil
	for _, k := range unsent {
		q.keep(k)
	}
	q.mu.Unlock()
	for _, k := range unsent {
		q.reply(k, protocol.Reply{Outcome: protocol.Failed, Err: reason})
	}
}

// A retry is the receiver of a release that is sent again. The reply is dropped, because the caller has
// had one.
type retry struct{ until time.Time } // the key has expired then

func (retry) Receive(int, protocol.Reply) {}

// keep makes the call a pending release if it is one that may matter. The caller holds mu.
func (q *queue) keep(k wire.Call) {
	if !k.Request.Op.Releases() || !k.Request.MayHold {
		return
	}
	now := time.Now()
	to, isRetry := k.To.(retry)
	if !isRetry {
		to = retry{now.Add(k.Request.TTL)}
	}
	if len(q.pending) == maxPending && now.After(q.pending[0].To.(retry).until) {
		q.dropExpired(now)
	}
	if len(q.pending) < maxPending {
		q.pending = append(q.pending, wire.Call{Request: k.Request, To: to})
	}
}

// dropExpired drops the pending releases whose keys have expired. The caller holds mu.
func (q *queue) dropExpired(now time.Time) {
	q.pending = slices.DeleteFunc(q.pending, func(k wire.Call) bool { return !now.Before(k.To.(retry).until) })
}

// retryLater has a call that may not have been run sent again if it is a release that may matter.
func (q *queue) retryLater(k wire.Call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.keep(k)
}

// sendAgain sends the pending releases on the connection that there is, and reports whether there are any.
// If there is no connection, the next one begins with them anyway.
func (q *queue) sendAgain() (any bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.offline != nil {
		return false
	}
	q.dropExpired(time.Now())
	any = len(q.pending) > 0
	q.sendPending()
	return any
}

// sendPending queues the pending releases before all else. The caller holds mu.
func (q *queue) sendPending() {
	if len(q.pending) == 0 {
		return
	}
	q.outstanding.Add(int64(len(q.pending)))
	for i := range q.pending {
		q.pending[i].Form = q.abilities.Form(q.pending[i].Request)
	}
	q.calls = append(q.pending, q.calls...)
	q.pending = nil
	q.wakeWriter()
}
