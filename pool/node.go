package pool

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/internal/lockorder"
	"github.com/redquorum/redquorum/internal/protocol"
)

const (
	// maxOutstanding bounds the requests that wait for one node, sent or not.
	maxOutstanding = 1 << 16

	// The waits between attempts to connect: see backoffAfter.
	firstBackoff = 10 * time.Millisecond
	maxBackoff   = time.Second
)

// A node is one Redis server, or several of which one is the primary: see standby.go. It implements
// protocol.Node.
//
// Its goroutine run connects, writes for as long as the connection lasts, and connects again; each
// connection has a second goroutine that reads. While a caller waits for a lock, or holds one,
// there is a second connection: see tracking.go.
type node struct {
	name     string
	members  []member
	at       atomic.Int32 // the member that it is connected to, or was last
	settings *settings
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	done     chan struct{} // closed when run has returned
	cautious bool          // the last connection ended by a reply that is too large: the next merges nothing; run's
	met      []string      // the servers so far: see addresses.go; run's
	several  error         // it leads to more than one; run's
	wake     chan struct{} // capacity 1: there is something in queue

	tried     chan struct{} // closed when the first attempt to connect has ended
	triedOnce sync.Once     // closes tried

	outstanding atomic.Int64             // requests without a reply, queued or sent
	deletion    atomic.Pointer[deletion] // of the server; nil: it has none, or does not permit it
	plain       atomic.Bool              // tokens are accepted by plain commands: see fenced.go

	mu         lockorder.Mutex[lockorder.Node] // guards the fields below
	offline    error                           // set while there is no connection: requests fail with it at once
	queue      []call                          // to be written
	idle       bool                            // the writer waits for wake
	pending    pendingReleases                 // to be sent again later
	retryTimer *time.Timer                     // sends the pending releases; nil: it does not run
	redirect   redirect                        // where the server should send hints

	hints  hints    // has a lock of its own, as has doubts
	doubts doubtLog // of the server
}

// A call is one submission of a request, or a command of the connection's own. It lies in the
// node's queue until it is sent, and then in the connection's list of what was sent.
type call struct {
	request *protocol.Request // nil: a command of the connection's own, which ends with the connection
	encoded *encoded
	slot    int
	to      protocol.Receiver
	expires time.Duration // since processStart: not to be sent later than this; zero: always to be sent

	answered func(answer any, failure redis.Error) // takes the answer where there is no request
}

// processStart is what expiries count from: a Duration is a third of a Time, and cheaper to read
// from the clock.
var processStart = time.Now()

// expiry returns the time after which a request that is submitted now must not be sent. It belongs
// to the submission, because a request can be submitted again. A release that matters is always
// sent.
func expiry(r *protocol.Request) time.Duration {
	if r.MayHold {
		return 0
	}
	return time.Since(processStart) + r.Timeout
}

// newNode returns a node that is about to connect.
func newNode(name string, members []member, s *settings) *node {
	n := &node{
		name: name, members: members, settings: s,
		done: make(chan struct{}), wake: make(chan struct{}, 1), tried: make(chan struct{}),
		doubts: doubtLog{log: s.log, node: name, known: map[string]bool{}},
		hints:  hints{watchers: map[string][]*watcher{}},
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	go n.run()
	return n
}

// String implements protocol.Node.
func (n *node) String() string { return n.name }

// Forgets implements protocol.Forgetful: a standby that is promoted lacks the last locks.
func (n *node) Forgets() bool { return len(n.members) > 1 }

// Submit implements protocol.Node. While the node is offline it fails at once, with the reason.
// Before the first attempt to connect has ended, requests wait for it, for as long as their timeout
// lets them.
func (n *node) Submit(r *protocol.Request, slot int, to protocol.Receiver) error {
	e := encode(r, n.formOf(r))
	n.mu.Lock()
	defer n.mu.Unlock()
	if e.plain && !n.plain.Load() { // the server is another since
		e = encode(r, n.formOf(r))
	}
	k := call{request: r, encoded: e, slot: slot, to: to, expires: expiry(r)}
	if n.offline != nil {
		n.pending.add(k)
		return n.offline
	}
	// A release that matters follows an acquisition that was let in, so their number is bounded as
	// well.
	if n.outstanding.Load() >= maxOutstanding && !r.MayHold {
		return ErrFull
	}
	n.outstanding.Add(1)
	n.queue = append(n.queue, k)
	n.wakeWriter()
	return nil
}

// wakeWriter has the writer look at the queue. The caller holds mu.
func (n *node) wakeWriter() {
	if !n.idle {
		return
	}
	n.idle = false
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// reply settles a call that has left queue and connection.
func (n *node) reply(k call, r protocol.Reply) {
	n.outstanding.Add(-1)
	k.to.Receive(k.slot, r)
}

// Close implements protocol.Node. Requests that were sent get the reply Unknown, the others Failed.
// It may be called twice.
func (n *node) Close() error {
	n.cancel()
	<-n.done
	n.closeHints()
	n.doubts.await(logPatience)
	return nil
}

// run keeps the node connected until it is closed.
func (n *node) run() {
	defer close(n.done)
	var last server
	backoff := time.Duration(0)
	for n.sleep(backoff) {
		c, err := n.connect(last)
		var had connection
		if err == nil {
			last = c.server
			err = c.serve()
			n.cautious = errors.Is(err, ErrReplyTooLarge)
			had = connection{lasted: time.Since(c.began), worked: c.worked, err: err}
		}
		backoff = backoffAfter(had, backoff)
		n.goOffline(err)
	}
	n.goOffline(ErrClosed)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.retryTimer != nil {
		n.retryTimer.Stop()
	}
}

// A connection is what is known of one that has ended. The zero value is one that was not made.
type connection struct {
	lasted time.Duration
	worked bool  // the server answered on it, after the handshake
	err    error // why it ended
}

// backoffAfter returns how long to wait before the next attempt to connect. It is a little for a
// connection that worked until it was cut, because the server is there, and twice the wait before
// for any other that did not last: one that never worked, or that the server's answers ended.
func backoffAfter(c connection, before time.Duration) time.Duration {
	switch {
	case c.lasted > maxBackoff:
		return 0
	case c.worked && isHangUp(c.err):
		return firstBackoff
	}
	return min(max(firstBackoff, 2*before), maxBackoff)
}

// sleep waits for about d. Half of d is random, so that the clients of a server that comes back do
// not come all at once. It returns false if the node was closed.
func (n *node) sleep(d time.Duration) bool {
	if d > 0 {
		t := time.NewTimer(d/2 + rand.N(d/2+1))
		defer t.Stop()
		select {
		case <-t.C:
		case <-n.ctx.Done():
		}
	}
	return n.ctx.Err() == nil
}

// connect makes a connection and lets requests in: first the releases that are pending from earlier
// connections, then the queue. Its time is bounded by the DialTimeout.
func (n *node) connect(last server) (*conn, error) {
	ctx, cancel := context.WithTimeout(n.ctx, n.settings.dialTimeout)
	defer cancel()
	if n.several != nil {
		return nil, n.several
	}
	rc, now, doubts, err := n.reach(ctx)
	if err == nil {
		if err = n.meet(now); err != nil {
			rc.Close()
		}
	}
	if errors.Is(err, errSeveral) {
		n.doubts.enter("it " + err.Error())
	}
	if err != nil {
		return nil, explainDial(err)
	}
	more, err := barrier(ctx, rc, now, last)
	if err != nil {
		rc.Close()
		return nil, explainDial(err)
	}
	n.doubts.enter(append(doubts, more...)...)
	n.retryHints()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.offline = nil
	n.deletion.Store(now.deletion)
	n.plain.Store(now.plain)
	// Releases whose keys should have expired are sent, too, because a SET that stood in a hung
	// server's buffer begins its TTL only when it is run.
	n.sendPending()
	n.triedOnce.Do(func() { close(n.tried) })
	return newConn(n, rc, now), nil
}

// connected reports whether requests are let in.
func (n *node) connected() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.offline == nil
}

// goOffline makes requests fail with the reason, those in the queue too.
func (n *node) goOffline(reason error) {
	n.mu.Lock()
	n.offline = reason
	unsent := n.queue
	n.queue = nil
	for _, k := range unsent {
		n.pending.add(k)
	}
	n.mu.Unlock()
	n.triedOnce.Do(func() { close(n.tried) })
	for _, k := range unsent {
		n.reply(k, protocol.Reply{Outcome: k.unsent(), Err: reason})
	}
}

// unsent is the outcome of a call that was not sent.
func (k *call) unsent() protocol.Outcome {
	if k.encoded.raises {
		return protocol.Unknown // what it follows has taken the lock
	}
	return protocol.Failed
}

// warnNoQueue logs that an OpQueue failed and will fail again. Waiters then turn to another node,
// and lock without an order where no node keeps one.
func (n *node) warnNoQueue() {
	n.doubts.enter("it keeps no queue, so those who wait are not served in order " +
		"unless another server does: permit ZADD, ZREM, ZRANGE, ZRANK, ZCARD, HSET, HGET and HDEL on the keys redlock:queue:*")
}
