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
	// maxOutstanding limits the requests that wait for one node, sent or not.
	maxOutstanding = 1 << 16
	// maxPending limits the pending releases of a node. The keys of further releases expire.
	maxPending = 1 << 14
	// retryInterval is the time after which a refused release is sent again on the same connection.
	// It doubles up to maxRetryInterval while releases are refused.
	retryInterval    = 250 * time.Millisecond
	maxRetryInterval = 5 * time.Second
	// maxIdleCalls limits the calls for which each buffer keeps memory after a burst.
	maxIdleCalls = 1 << 11
)

// A queue holds the requests for a node until the writer of its connection takes them. It outlives
// the connections. Without a connection, requests fail at once.
//
// Releases are retried until confirmed. A release is pending if it did not reach the server, was
// not answered, or was answered with an error, although its caller has already had that reply.
// Pending releases are sent first on the next connection. A connection that lasts sends them
// repeatedly (see retryInterval), until their keys must have expired.
type queue struct {
	outstanding atomic.Int64  // requests without a reply, queued or sent
	wake        chan struct{} // wakes the writer; capacity 1

	mu        sync.Mutex     // guards the fields below
	abilities wire.Abilities // of the server
	offline   error          // error of new requests; nil while there is a connection
	calls     []wire.Call
	kicked    bool        // the connection has commands of its own to send
	idle      bool        // the writer waits for wake
	pending   []wire.Call // oldest first; the receiver of each is a pendingRelease
}

// processStart is the zero of the times of calls. A Duration has a third of the size of a Time, and
// is cheaper to read from the clock.
var processStart = time.Now()

func sinceStart() time.Duration { return time.Since(processStart) }

func newQueue() *queue { return &queue{wake: make(chan struct{}, 1)} }

// submit queues a request, with the meaning of protocol.Node.Submit. The time limit for sending
// belongs to the submission, because a request can be submitted again. A release that may matter is
// always sent.
func (q *queue) submit(r *protocol.Request, slot int, to protocol.Receiver) error {
	k := wire.Call{Request: r, Slot: slot, To: to}
	if !r.MayHold {
		k.Expires = sinceStart() + r.Timeout
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	k.Form = q.abilities.Form(r)
	if q.offline != nil {
		q.addPendingLocked(k)
		return q.offline
	}
	// Each release that may matter follows an accepted acquisition, so their number is bounded,
	// too.
	if q.outstanding.Load() >= maxOutstanding && !r.MayHold {
		return ErrFull
	}
	q.outstanding.Add(1)
	q.calls = append(q.calls, k)
	q.wakeWriter()
	return nil
}

// wakeWriter makes the writer look at the queue. The caller must hold mu.
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

// kick makes take return even without requests.
func (q *queue) kick() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.kicked = true
	q.wakeWriter()
}

// take waits for work and empties the queue, which then uses the memory of spare. It returns false
// if broken is closed and there is no work. It drops requests whose time has expired.
func (q *queue) take(spare []wire.Call, broken <-chan struct{}) (batch []wire.Call, ok bool) {
	for !q.hasWork() {
		select {
		case <-q.wake:
		case <-broken:
			return nil, false
		}
	}
	// Other goroutines that are about to submit run first and share the system call. With 64
	// callers this makes 40 percent more cycles a second.
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

// requeue queues a call again. The call precedes all unsent requests, but follows the requests that
// were requeued before it, so that they keep their order.
func (q *queue) requeue(k wire.Call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	before := len(q.calls)
	for before > 0 && !q.calls[before-1].Form.Requeued {
		before--
	}
	q.calls = slices.Insert(q.calls, before, k)
	q.wakeWriter()
}

// reply settles a call that has left the queue and the connection.
func (q *queue) reply(k wire.Call, r protocol.Reply) {
	q.outstanding.Add(-1)
	k.To.Receive(k.Slot, r)
}

// lacks ends the use of abilities that the server turned out to lack.
func (q *queue) lacks(what wire.Abilities) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.abilities = q.abilities.Without(what)
}

// open accepts requests for a server with these abilities. It first queues the releases that are
// pending from earlier connections. It also sends releases whose keys should have expired: a SET in
// the buffer of a hung server begins its TTL only when the server runs it.
func (q *queue) open(a wire.Abilities) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.offline = nil
	q.kicked = true
	q.abilities = a
	q.sendPending()
}

// isOpen reports whether the queue accepts requests.
func (q *queue) isOpen() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.offline == nil
}

// close makes requests fail with the reason, including the queued ones.
func (q *queue) close(reason error) {
	q.mu.Lock()
	q.offline = reason
	unsent := q.calls
	q.calls = nil
	for _, k := range unsent {
		q.addPendingLocked(k)
	}
	q.mu.Unlock()
	for _, k := range unsent {
		q.reply(k, protocol.Reply{Outcome: protocol.Failed, Err: reason})
	}
}

// A pendingRelease is the receiver of a release that is sent until it is confirmed. It drops the
// reply, because the caller already had one.
type pendingRelease struct{ until time.Time } // expiry of the key

func (pendingRelease) Receive(int, protocol.Reply) {}

// addPendingLocked makes the call a pending release if it is a release that may matter. The caller
// must hold mu.
func (q *queue) addPendingLocked(k wire.Call) {
	if !k.Request.Op.Releases() || !k.Request.MayHold {
		return
	}
	now := time.Now()
	to, isPending := k.To.(pendingRelease)
	if !isPending {
		to = pendingRelease{now.Add(k.Request.TTL)}
	}
	if len(q.pending) == maxPending && now.After(q.pending[0].To.(pendingRelease).until) {
		q.dropExpired(now)
	}
	if len(q.pending) < maxPending {
		q.pending = append(q.pending, wire.Call{Request: k.Request, To: to})
	}
}

// dropExpired drops the pending releases whose keys have expired. The caller must hold mu.
func (q *queue) dropExpired(now time.Time) {
	q.pending = slices.DeleteFunc(q.pending, func(k wire.Call) bool { return !now.Before(k.To.(pendingRelease).until) })
}

// addPending is like addPendingLocked, for calls that the server may not have run.
func (q *queue) addPending(k wire.Call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.addPendingLocked(k)
}

// resendPending sends the pending releases on the current connection, and reports whether there
// were any. Without a connection it does nothing, because the next one begins with them.
func (q *queue) resendPending() (any bool) {
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

// sendPending queues the pending releases before all other requests. The caller must hold mu.
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
