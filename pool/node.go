package pool

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

const (
	// maxOutstanding bounds the requests that wait for one node, sent or not.
	maxOutstanding = 1 << 16

	// Waits between attempts to connect. The first attempt after a connection
	// that lasted is made at once.
	firstBackoff = 10 * time.Millisecond
	maxBackoff   = time.Second
)

// A node is one Redis server. It implements redlock.Node.
//
// Its goroutine run connects, writes for as long as the connection lasts, and
// connects again; each connection has a second goroutine that reads. While somebody
// waits for a lock there is a second connection: see hints.go.
type node struct {
	name       string
	dial       dialer
	dialSecond dialer // for the listener
	settings   *settings
	ctx        context.Context // ends with Close
	cancel     context.CancelFunc
	done       chan struct{} // run has returned
	wake       chan struct{} // capacity 1: there is something in queue

	out atomic.Int64 // requests without a reply, queued or sent

	mu     sync.Mutex
	why    error  // set while requests fail at once: there is no connection
	queue  []call // to be written
	asleep bool   // the writer waits for wake
	kept   kept   // releases to be delivered later
	retry  *time.Timer
	doubts map[string]bool // that have been logged

	redirect redirect // where the server should send hints

	hints hints // has a lock of its own

	attempted sync.Once
	first     chan struct{} // closed when the first attempt to connect has ended
}

// A call is a request that owes a reply, or an aside.
type call struct {
	request *redlock.Request // nil for an aside
	encoded *encoded
	slot    int
	to      redlock.Receiver
}

// newNode returns a node that is about to connect. Each dialer is called by one
// goroutine.
func newNode(name string, dial, dialSecond dialer, s *settings) *node {
	n := &node{
		name: name, dial: dial, dialSecond: dialSecond, settings: s, done: make(chan struct{}), wake: make(chan struct{}, 1), first: make(chan struct{}),
		doubts: map[string]bool{}, hints: hints{watchers: map[string][]*watcher{}},
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	go n.run()
	return n
}

// String implements redlock.Node.
func (n *node) String() string { return n.name }

// Submit implements redlock.Node. While the node is unreachable it fails at
// once, with the reason; before the first attempt to connect has ended, requests
// wait for it, for as long as their timeout lets them.
func (n *node) Submit(r *redlock.Request, slot int, to redlock.Receiver) error {
	e := encode(r)
	n.mu.Lock()
	defer n.mu.Unlock()
	c := call{r, e, slot, to}
	if n.why != nil {
		n.kept.keep(c)
		return n.why
	}
	// A release that matters follows an acquisition that was let in, so their
	// number is bounded as well.
	if n.out.Load() >= maxOutstanding && !r.MayHold {
		return ErrFull
	}
	n.out.Add(1)
	n.queue = append(n.queue, c)
	n.rouse()
	return nil
}

// rouse wakes the writer. mu is held.
func (n *node) rouse() {
	if !n.asleep {
		return
	}
	n.asleep = false
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// Close implements redlock.Node. Requests that were sent get the reply
// Unknown, the others Failed. It may be called twice.
func (n *node) Close() error {
	n.cancel()
	<-n.done
	n.closeHints()
	return nil
}

// run keeps the node connected until it is closed.
func (n *node) run() {
	defer close(n.done)
	var last server
	backoff := time.Duration(0)
	for n.sleep(backoff) {
		c, err := n.connect(last)
		backoff = min(max(firstBackoff, 2*backoff), maxBackoff)
		if err == nil {
			last = c.server
			err = c.serve()
			if c.lasted() {
				backoff = 0
			}
		}
		n.down(err)
	}
	n.down(ErrClosed)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.retry != nil {
		n.retry.Stop()
	}
}

// connected reports whether requests are let in.
func (n *node) connected() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.why == nil
}

// sleep waits for about d: half of it is by lot, so that all clients of a
// server that comes back do not come at once. False means closed.
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

// connect makes a connection and lets requests in: first the releases that
// earlier ones still owe, then what is queued. Its time is bounded.
func (n *node) connect(last server) (*conn, error) {
	ctx, cancel := context.WithTimeout(n.ctx, n.settings.dialTimeout)
	defer cancel()
	rc, err := n.dial(ctx)
	if err != nil {
		return nil, explainDial(err)
	}
	now, doubts, err := vet(ctx, rc)
	if err == nil {
		err = barrier(ctx, rc, now, last)
	}
	if err != nil {
		rc.Close()
		return nil, explainDial(err)
	}
	n.warn(doubts)
	n.permitHints()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.why = nil
	// Those whose time is over are made, too: a SET that stood in a hung
	// server's buffer begins its TTL only when it is run.
	n.makeUp()
	n.attempted.Do(func() { close(n.first) })
	return newConn(n, rc, now), nil
}

// warn logs what has not been logged before.
func (n *node) warn(doubts []string) {
	for _, what := range doubts {
		n.mu.Lock()
		known := n.doubts[what]
		n.doubts[what] = true
		n.mu.Unlock()
		if !known {
			n.settings.log.Warn("pool: a server gives reason for doubt", "node", n.name, "doubt", what)
		}
	}
}

// down makes requests fail with the reason why, those that wait in the queue
// too.
func (n *node) down(why error) {
	n.mu.Lock()
	n.why = why
	unsent := n.queue
	n.queue = nil
	for _, c := range unsent {
		n.kept.keep(c)
	}
	n.mu.Unlock()
	n.attempted.Do(func() { close(n.first) })
	for _, c := range unsent {
		n.reply(c, redlock.Reply{Outcome: redlock.Failed, Err: why})
	}
}

// reply settles a call that has left queue and connection.
func (n *node) reply(c call, r redlock.Reply) {
	n.out.Add(-1)
	c.to.Receive(c.slot, r)
}
