// Package link connects a node to its server for as long as the node is open. It makes a
// connection, uses it until it breaks, and makes the next one. Package pool finds the server, and
// package wire encodes the commands and decodes the replies.
//
//	Link.Submit --> queue --take--> conn: writer --> server --> conn: reader --> Receiver
//
// A [Link] has a queue and the hints, which outlive its connections. Each conn has the calls in
// flight, the votes that wait for their confirmation, and the state of its key tracking. None of
// them uses the fields of another. Each mutex is held for a few lines that take no other mutex.
//
// The goroutine run connects, writes until the connection breaks, and connects again. Each
// connection has a second goroutine that reads, and a third that ends the connection if no reply
// arrives. While a caller waits for a lock or holds one, a second connection receives hints.
package link

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/pool/internal/wire"
)

// A Link serves the requests to a node and the watchers of its keys.
type Link struct {
	config Config
	queue  *queue
	hints  *hints
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	done   chan struct{} // closed when run has returned

	tried    chan struct{} // closed when the first attempt to connect has ended
	hasTried func()        // closes tried once
}

// New returns a Link and starts to connect it.
func New(config Config) *Link {
	l := &Link{config: config, queue: newQueue(), done: make(chan struct{}), tried: make(chan struct{})}
	l.hasTried = sync.OnceFunc(func() { close(l.tried) })
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.hints = newHints(l.ctx, &l.config, l.queue.kick)
	go l.run()
	return l
}

// Submit implements protocol.Node. Without a connection it fails at once, with the reason. Before
// the first attempt to connect has ended, requests wait for it until they time out.
func (l *Link) Submit(r *protocol.Request, slot int, to protocol.Receiver) error {
	return l.queue.submit(r, slot, to)
}

// Watch implements protocol.Watchable.
func (l *Link) Watch(key string, hint func(key string)) (stop func()) {
	return l.hints.watch(key, hint)
}

// Tried is closed when the first attempt to connect has ended.
func (l *Link) Tried() <-chan struct{} { return l.tried }

// Connected reports whether the Link accepts requests.
func (l *Link) Connected() bool { return l.queue.isOpen() }

// Close implements protocol.Node. Requests that were sent get the reply Unknown, other requests get
// Failed. It may be called twice.
func (l *Link) Close() error {
	l.cancel()
	<-l.done
	l.hints.close()
	return nil
}

// run keeps the node connected until it is closed.
func (l *Link) run() {
	defer close(l.done)
	var last Server
	merges := true
	backoff := time.Duration(0)
	for made := 0; sleep(l.ctx, backoff); {
		c, err := l.connect(last)
		var had connection
		if err == nil {
			c.number = made
			made++
			if !merges {
				c.merger.Stop()
			}
			last = c.server
			err = c.serve(l.ctx)
			merges = !errors.Is(err, wire.ErrReplyTooLarge) // otherwise one bad key could end a second connection
			had = connection{lasted: time.Since(c.began), worked: c.worked, err: err}
		}
		backoff = backoffAfter(had, backoff)
		if l.ctx.Err() != nil { // err is from the attempt that Close ended
			break
		}
		l.goOffline(err)
	}
	l.goOffline(ErrClosed)
}

// connect makes a connection and opens the queue. It takes at most the time in config.Dial.
func (l *Link) connect(last Server) (*conn, error) {
	ctx, cancel := context.WithTimeout(l.ctx, l.config.Dial)
	defer cancel()
	known := l.hints.numbers.known()
	g := l.config.Reach(ctx)
	if g.Err != nil {
		return nil, Explain(g.Err)
	}
	doubts, err := barrier(ctx, g.Conn, g.Server, last)
	if err != nil {
		g.Conn.Close()
		return nil, Explain(err)
	}
	l.config.Doubt(append(g.Doubts, doubts...)...)
	l.hints.connected(g.Server.RunID, g.Hint)
	l.queue.open(g.Server.Abilities)
	l.hasTried()
	restored := known.wentBack(g.Server.RunID, g.Server.clientID)
	if !restored {
		l.hints.numbers.enter(g.Server.RunID, g.Server.clientID)
	}
	return newConn(l.queue, l.hints, g, restored), nil
}

func (l *Link) goOffline(reason error) {
	l.queue.close(reason)
	l.hasTried()
}
