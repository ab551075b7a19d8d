package pool

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/internal/lockorder"
	"github.com/redquorum/redquorum/internal/protocol"
)

// A conn is one connection of a node, from its handshake to its end. Requests are answered in the
// order in which they were sent, so a queue is all that ties replies to requests. Two goroutines
// share it: the writer and the reader. A field that only one of them uses says whose it is.
type conn struct {
	node   *node
	redis  redis.Conn
	writer batchWriter // on redis
	server server
	began  time.Time
	worked bool // the server has answered, and not only with errors; the reader's

	failOnce sync.Once
	broken   chan struct{} // closed by the first fail
	err      error         // the reason; read after broken is closed

	merges atomic.Bool // see merge.go
	merger merger      // the writer's

	spare        []call // the memory of the batch before; the writer's
	confirmation confirmation
	tracking     tracking
	plain        plainAnswer            // so far; the reader's
	takePlain    func(any, redis.Error) // adds to it; the writer's; nil: not needed so far
	auth         *encoded               // to be sent; nil: nothing; guarded by the node's mu

	mu      lockorder.Mutex[lockorder.Conn] // guards the fields below
	sent    fifo[call]                      // and not answered
	replies uint64                          // so far
	stall   stallTimer
}

func newConn(n *node, c redis.Conn, s server) *conn {
	made := &conn{
		node: n, redis: c, writer: newBatchWriter(c), server: s, began: time.Now(),
		broken: make(chan struct{}), confirmation: confirmation{run: s.identity()},
	}
	made.merges.Store(s.scripts && !n.cautious)
	return made
}

// serve writes and reads until the connection breaks or the node is closed, and returns why. By
// then every request that was sent has had its reply.
func (c *conn) serve() error {
	// This works also where the writer hangs in a system call.
	defer context.AfterFunc(c.node.ctx, func() { c.fail(ErrClosed) })()
	read := make(chan struct{})
	go func() {
		defer close(read)
		c.read()
	}()
	if ask := asksForAuth(c.redis); ask != nil {
		go c.reauthenticate(ask) // not waited for, because the caller's function may take its time
	}
	c.write()
	<-read
	c.stopStallTimer()
	c.failVotes()
	c.failSent()
	return c.err
}

// fail ends the connection, for the first reason that it is called with.
func (c *conn) fail(err error) {
	c.failOnce.Do(func() {
		c.err = err
		close(c.broken)
		// The one way to end a Receive or a Flush that hangs on a connection from the caller's
		// dial function. redigo guards it with a mutex.
		c.redis.Close()
	})
}

// lose ends a connection that failed.
func (c *conn) lose(err error) { c.fail(fmt.Errorf("connection lost: %w", explainDial(err))) }

// write sends what is queued, all in one go, until the connection breaks.
func (c *conn) write() {
	for c.awaitWork() {
		// Other goroutines that are about to submit go first, and share the system call. That
		// costs a lone caller nothing, and gives many callers larger batches: with 64, four tenths
		// more cycles a second.
		runtime.Gosched()
		batch := c.nextBatch()
		if err := c.writer.send(batch); err != nil {
			c.lose(err)
			return
		}
		c.merger.sent()
		clear(batch)
		c.spare = batch[:0]
	}
}

// awaitWork returns true when there is something to write, and false when the connection is broken.
func (c *conn) awaitWork() bool {
	n := c.node
	for {
		n.mu.Lock()
		ready := len(n.queue) > 0 || c.wantedListener() != c.tracking.listener || c.auth != nil
		n.idle = !ready
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

// nextBatch empties the queue and returns what is to be written of it, with the connection's own
// commands between the requests. All of it is in sent before it is written, because a reply can
// come before the last of a batch is written. Requests whose time is over are dropped.
func (c *conn) nextBatch() []call {
	n := c.node
	n.mu.Lock()
	batch := n.queue
	n.queue, c.spare = c.spare, nil
	listener := c.wantedListener()
	auth := c.auth
	c.auth = nil
	n.mu.Unlock()

	var late []call
	now := time.Since(processStart)
	isLate := func(k call) bool { return k.expires != 0 && now > k.expires }
	if slices.ContainsFunc(batch, isLate) {
		late = slices.DeleteFunc(slices.Clone(batch), func(k call) bool { return !isLate(k) })
		batch = slices.DeleteFunc(batch, isLate)
	}
	key := recordKey(batch)
	if c.merges.Load() {
		batch = c.merger.merge(batch)
	}
	if key != "" {
		batch = c.withConfirmation(batch, key, now)
	}
	if listener != 0 || c.tracking.listener != 0 {
		batch = c.withTracking(batch, listener)
	}
	if !c.server.scripts {
		withSources(batch)
	}
	batch = c.withPlain(batch)
	if auth != nil {
		batch = slices.Insert(batch, 0, call{encoded: auth, answered: c.authenticated})
	}
	c.mu.Lock()
	for _, k := range batch {
		c.sent.push(k)
	}
	c.startStallTimer()
	c.mu.Unlock()
	for _, k := range late {
		n.reply(k, protocol.Reply{Outcome: protocol.Failed, Err: ErrExpired})
	}
	return batch
}

// withSources gives the requests that cannot be sent again their scripts' sources, for a server
// that did not let us load scripts.
func withSources(batch []call) {
	for i, k := range batch {
		if k.request != nil && commands[k.request.Op].makesKey && k.encoded.form == (form{}) {
			batch[i].encoded = k.encoded.inFull(k.request.Op)
		}
	}
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
		c.worked = c.worked || !isReply
		switch {
		case !asked:
			c.fail(fmt.Errorf("%w: nothing was asked", errUnexpected))
			return
		case len(k.encoded.each) > 0:
			c.answerMerged(k.encoded.each, v, failure)
		case k.request == nil:
			k.answered(v, failure)
		case k.encoded == lastOfPlain:
			c.answerPlain(k, answer{v, failure})
		case k.encoded.deletion != nil && !deleted(v, failure):
			c.releaseByScript(k, failure)
		case strings.HasPrefix(string(failure), "NOSCRIPT") && k.callsScript():
			c.resend(k)
		default:
			c.deliver(k, c.decode(k, v, failure))
		}
	}
}

// op returns the operation whose row of the table the call is.
func (k *call) op() protocol.Op { return k.encoded.op(k.request) }

// callsScript reports whether the call is to a script by its digest.
func (k *call) callsScript() bool {
	return commands[k.op()].script != nil && !k.encoded.withSource && k.encoded.deletion == nil
}

// decode makes a reply of the server's answer.
func (c *conn) decode(k call, v any, failure redis.Error) protocol.Reply {
	if failure != "" {
		return c.decodeFailure(k, failure)
	}
	reply, err := commands[k.op()].decode(v)
	if err != nil {
		c.node.retryLater(k)
		return protocol.Reply{Outcome: protocol.Unknown, Err: err}
	}
	switch {
	case k.request.Op != protocol.OpAdmit: // whose own answer has it
		reply.Run = c.confirmation.run
	case c.server.runID != "" && c.server.dataSet != "" && reply.Run != c.confirmation.run:
		c.fail(errSucceeded) // before a record of what follows is written
		return protocol.Reply{Outcome: protocol.Unknown, Err: errSucceeded}
	}
	return reply
}

// decodeFailure makes a reply of a server's error.
func (c *conn) decodeFailure(k call, failure redis.Error) protocol.Reply {
	said := withoutSecret(withoutArguments(string(failure)), k.request.Value)
	meaning, fatal := explain(redis.Error(said))
	switch permanent := isPermanent(meaning); {
	case !permanent:
		c.node.retryLater(k)
	case k.request.Op == protocol.OpQueue:
		c.node.warnNoQueue()
	}
	if fatal {
		c.fail(meaning)
	}
	outcome := protocol.Failed
	switch {
	case errors.Is(meaning, ErrCounter):
		meaning = fmt.Errorf("key %q: %w", k.request.Counter, ErrCounter)
		outcome = k.unsent()
	case commands[k.request.Op].makesKey && !errors.Is(meaning, ErrWrongType):
		outcome = protocol.Unknown // the script may have failed with the key already made
	}
	return protocol.Reply{Outcome: outcome, Err: meaning, Run: c.confirmation.run}
}

// resend queues a script's request with its source, for a server that has lost the script. It goes
// behind all that has been sent, such as the release of what it acquires. A request that makes a
// key therefore fails, and the connection is made anew, with all scripts.
func (c *conn) resend(k call) {
	n := c.node
	if commands[k.op()].makesKey {
		n.reply(k, protocol.Reply{Outcome: protocol.Failed, Err: errScriptsLost})
		c.fail(errScriptsLost)
		return
	}
	if k.encoded == unencoded {
		k.encoded = newEncoded(k.request, form{})
	}
	k.encoded = k.encoded.inFull(k.op())
	n.sendAgain(k)
}

// sendAgain queues a call whose encoding is its own. It goes before all that has not been sent yet,
// and behind the requests that are sent again already, so that these keep their order.
func (n *node) sendAgain(k call) {
	k.encoded.again = true
	n.mu.Lock()
	defer n.mu.Unlock()
	before := len(n.queue)
	for before > 0 && !n.queue[before-1].encoded.again {
		before--
	}
	n.queue = slices.Insert(n.queue, before, k)
	n.wakeWriter()
}

// failSent replies to what was sent and not answered. The server may have run it, or may run it
// yet.
func (c *conn) failSent() {
	for {
		c.mu.Lock()
		k, ok := c.sent.pop()
		c.mu.Unlock()
		if !ok {
			return
		}
		for _, each := range k.encoded.each {
			c.node.retryLater(each)
			c.node.reply(each, protocol.Reply{Outcome: protocol.Unknown, Err: c.err})
		}
		if k.request == nil {
			continue
		}
		c.node.retryLater(k)
		c.node.reply(k, protocol.Reply{Outcome: protocol.Unknown, Err: c.err})
	}
}

// receive waits for a reply for as long as it takes, even where the caller's dial function set a
// read timeout: an idle connection is not a broken one.
func receive(c redis.Conn) (reply any, err error) {
	defer panicToError(&err)
	if ct, ok := c.(redis.ConnWithTimeout); ok {
		return ct.ReceiveWithTimeout(0)
	}
	return c.Receive()
}

// receiveAnswer waits for a reply for as long as the connection's own read timeout lets it.
func receiveAnswer(c redis.Conn) (reply any, err error) {
	defer panicToError(&err)
	return c.Receive()
}

// panicToError makes an error of a panic while a reply is read. redigo panics on a reply whose
// length is absurd. The connections that we make refuse such a reply (see bounds.go), those of the
// caller's dial function do not.
func panicToError(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: reading it panics: %v", errUnexpected, p)
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
		f.grow()
	}
	f.ring[(f.head+f.size)&(len(f.ring)-1)] = v
	f.size++
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

func (f *fifo[T]) grow() {
	ring := make([]T, max(16, 2*len(f.ring)))
	n := copy(ring, f.ring[f.head:])
	copy(ring[n:], f.ring[:f.head])
	f.ring, f.head = ring, 0
}
