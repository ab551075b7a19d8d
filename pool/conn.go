package pool

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/redlock"
)

// A conn is one connection of a node, from its handshake to its end. Requests
// are answered in the order in which they were sent, so a queue is all that
// ties replies to requests.
type conn struct {
	node   *node
	redis  redis.Conn
	wire   wire // on redis
	server server
	began  time.Time

	once   sync.Once
	broken chan struct{} // closed by the first fail
	err    error         // why; read after broken is closed

	spare    []call // the memory of the batch before, for the writer
	look     call   // see lookBehind
	tracking tracking

	votes []vote // until the epoch record behind them has been read; the reader's

	mu      sync.Mutex
	sent    fifo[call] // and not answered
	replies uint64     // so far
	watch   watch
}

func newConn(n *node, c redis.Conn, s server) *conn {
	return &conn{node: n, redis: c, wire: wireOf(c), server: s, began: time.Now(), broken: make(chan struct{})}
}

// serve writes and reads until the connection breaks or the node is closed,
// and returns why. Every request that was sent has had its reply then.
func (c *conn) serve() error {
	// Also where the writer hangs in a system call.
	defer context.AfterFunc(c.node.ctx, func() { c.fail(ErrClosed) })()
	read := make(chan struct{})
	go func() {
		defer close(read)
		c.read()
	}()
	c.write()
	<-read
	c.stopWatch()
	c.abandon()
	return c.err
}

// fail ends the connection, for the first reason that it is called with.
func (c *conn) fail(err error) {
	c.once.Do(func() {
		c.err = err
		close(c.broken)
		// The one way to end a Receive or a Flush that hangs on a connection
		// of somebody else's making. redigo guards it with a mutex.
		c.redis.Close()
	})
}

func (c *conn) lose(err error) { c.fail(fmt.Errorf("connection lost: %w", explainDial(err))) }

// lasted reports whether the connection was of use. A server that hangs up on
// every new one must not be called again at once.
func (c *conn) lasted() bool { return time.Since(c.began) > maxBackoff }

// write sends whatever is queued, all in one go, until the connection breaks.
func (c *conn) write() {
	for c.await() {
		// Whoever is about to submit goes first, and shares the system call.
		// That costs a lone caller nothing, and gives many of them larger
		// batches: with 64, four tenths more cycles a second.
		runtime.Gosched()
		batch := c.take()
		if err := c.wire.send(batch); err != nil {
			c.lose(err)
			return
		}
		clear(batch)
		c.spare = batch[:0]
	}
}

// await returns when there is something to write, or false when there never
// will be.
func (c *conn) await() bool {
	n := c.node
	for {
		n.mu.Lock()
		ready := len(n.queue) > 0 || c.toTell() != c.tracking.told
		n.asleep = !ready
		n.mu.Unlock()
		if ready {
			return true
		}
		select {
		case <-n.wake:
		case <-c.broken:
			return false
		}
	}
}

// take empties the queue into sent, since a reply can come before the last of
// a batch is written, and returns it. What nobody waits for any more is dropped.
func (c *conn) take() []call {
	n := c.node
	n.mu.Lock()
	batch := n.queue
	n.queue, c.spare = c.spare, nil
	listener := c.toTell()
	n.mu.Unlock()

	var late []call
	now := time.Now()
	isLate := func(k call) bool { return !k.request.MayHold && now.After(k.encoded.expires) }
	if slices.ContainsFunc(batch, isLate) {
		late = slices.DeleteFunc(slices.Clone(batch), func(k call) bool { return !isLate(k) })
		batch = slices.DeleteFunc(batch, isLate)
	}
	if key := epochOf(batch); key != "" {
		batch = append(batch, c.lookBehind(key))
	}
	if listener != 0 || c.tracking.told != 0 {
		batch = c.withTracking(batch, listener)
	}
	if !c.server.scripts {
		spellOut(batch)
	}
	c.mu.Lock()
	for _, k := range batch {
		c.sent.push(k)
	}
	c.armWatch()
	c.mu.Unlock()
	for _, k := range late {
		n.reply(k, redlock.Reply{Outcome: redlock.Failed, Err: ErrExpired})
	}
	return batch
}

// read hands the replies out until the connection breaks.
func (c *conn) read() {
	for {
		v, err := receive(c.redis)
		failure, isReply := err.(redis.Error) // errors.As would cost an allocation for each reply
		if err != nil && !isReply {
			c.lose(err)
			return
		}
		c.mu.Lock()
		k, asked := c.sent.pop()
		c.replies++
		c.mu.Unlock()
		switch {
		case !asked:
			c.fail(fmt.Errorf("%w: nothing was asked", errStrange))
			return
		case k.request == nil:
			k.to.(aside)(v, failure)
		case commands[k.request.Op].script != nil && !k.encoded.full && strings.HasPrefix(string(failure), "NOSCRIPT"):
			c.again(k)
		default:
			c.hear(k, c.understand(k, v, failure))
		}
	}
}

// receive waits for a reply for as long as it takes, also where a foreign dial
// set a read timeout: an idle connection is not a broken one.
func receive(c redis.Conn) (any, error) {
	if ct, ok := c.(redis.ConnWithTimeout); ok {
		return ct.ReceiveWithTimeout(0)
	}
	return c.Receive()
}

// understand makes a reply of what the server said.
func (c *conn) understand(k call, v any, failure redis.Error) redlock.Reply {
	if failure != "" {
		meaning, sick := explain(failure)
		if !errors.Is(meaning, ErrWrongType) && !errors.Is(meaning, ErrPermission) { // else in vain
			c.node.keep(k)
		}
		if sick {
			c.fail(meaning)
		}
		outcome := redlock.Failed
		if commands[k.request.Op].once && !errors.Is(meaning, ErrWrongType) {
			outcome = redlock.Unknown // the script may have failed with the key already made
		}
		return redlock.Reply{Outcome: outcome, Err: meaning, Run: c.server.runID}
	}
	reply, err := commands[k.request.Op].decode(v)
	if err != nil {
		c.node.keep(k)
		return redlock.Reply{Outcome: redlock.Unknown, Err: err}
	}
	reply.Run = c.server.runID
	return reply
}

// again sends a script's request in full, to a server that has forgotten the
// script. It comes before all that has not been sent yet, but behind what has,
// such as the release of what it acquires: then the connection is made anew,
// with all scripts, instead.
func (c *conn) again(k call) {
	n := c.node
	if commands[k.request.Op].once {
		n.reply(k, redlock.Reply{Outcome: redlock.Failed, Err: errScripts})
		c.fail(errScripts)
		return
	}
	k.encoded = k.encoded.inFull(k.request.Op)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.queue = slices.Insert(n.queue, 0, k)
	n.rouse()
}

// abandon replies to what was sent and not answered. The server may have run
// it, or may run it yet.
func (c *conn) abandon() {
	for _, v := range c.votes {
		if v.reply.Outcome == redlock.Granted {
			v.reply.Outcome, v.reply.Err = redlock.Unknown, c.err
		}
		c.node.reply(v.call, v.reply)
	}
	for {
		c.mu.Lock()
		k, ok := c.sent.pop()
		c.mu.Unlock()
		if !ok {
			return
		}
		if k.request == nil {
			continue
		}
		c.node.keep(k)
		c.node.reply(k, redlock.Reply{Outcome: redlock.Unknown, Err: c.err})
	}
}
