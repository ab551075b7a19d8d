package link

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/pool/internal/wire"
)

// A conn is one connection of a node, from its handshake to its end. Requests are answered in the
// order in which they were sent, so a queue is all that ties replies to requests. Two goroutines
// share it: the writer and the reader. A field that only one of them uses says whose it is.
type conn struct {
	queue  *queue
	config *Config
	redis  redis.Conn
	server Server
	number int // of the node's connections, in their order
	began  time.Time
	worked bool // the server has answered, and not only with errors; the reader's

	failOnce sync.Once
	broken   chan struct{} // closed by the first fail
	err      error         // the reason; read after broken is closed

	sent         sent
	merger       wire.Merger // the writer's
	confirmation confirmation
	tracking     tracking
	numbers      *numbers
	restored     bool                      // the record is to be deleted, for that reason; the writer's
	auth         atomic.Pointer[wire.Call] // to be sent; nil: nothing
	lostScripts  atomic.Bool               // they are to be loaded again
	ping         atomic.Bool               // is to be sent
}

func newConn(q *queue, h *hints, g Greeting, restored bool) *conn {
	c := &conn{
		queue: q, config: h.config, redis: g.Conn, server: g.Server, began: time.Now(), broken: make(chan struct{}),
		numbers: h.numbers, restored: restored,
	}
	f := &c.confirmation
	f.server, f.run, f.looks = g.Server, g.Server.identity(), g.Server.DataSet != ""
	f.broken, f.fail, f.reply, f.kick = c.broken, c.fail, q.reply, q.kick
	c.tracking = tracking{hints: h, merger: &c.merger, run: g.Server.RunID}
	if !g.Server.scripts {
		c.merger.Stop()
	}
	return c
}

// serve writes and reads until the connection breaks or ctx ends, and returns why. By then every
// request that was sent has had its reply.
func (c *conn) serve(ctx context.Context) error {
	// This works also where the writer hangs in a system call.
	defer context.AfterFunc(ctx, func() { c.fail(ErrClosed) })()
	var others sync.WaitGroup
	others.Go(c.read)
	others.Go(c.watch)
	if own, ok := c.redis.(*Conn); ok && own.Auth != nil {
		go c.reauthenticate(ctx, own.Auth) // not waited for, because the caller's function may take its time
	}
	lasting, end := context.WithCancel(ctx)
	defer end()
	if own, ok := c.redis.(*Conn); ok && own.Stay != nil {
		others.Go(func() {
			if err := own.Stay(lasting); err != nil {
				c.fail(err)
			}
		})
	}
	c.write()
	end()
	others.Wait()
	c.confirmation.end(c.err)
	for _, k := range c.sent.unanswered() {
		c.unanswered(k)
	}
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
func (c *conn) lose(err error) { c.fail(fmt.Errorf("connection lost: %w", Explain(err))) }

// write sends what is queued, all in one go, until the connection breaks.
func (c *conn) write() {
	var spare []wire.Call // the memory of the batch before
	for {
		batch, ok := c.queue.take(spare, c.broken)
		if !ok {
			return
		}
		if batch = c.prepare(batch); len(batch) > 0 {
			if err := sendBatch(c.redis, batch); err != nil {
				c.lose(err)
				return
			}
			c.merger.Sent()
			clear(batch)
		}
		if spare = batch[:0]; cap(batch) > maxIdleCalls {
			spare = nil
		}
	}
}

// prepare returns what is to be written of a batch of requests, with the connection's own commands
// between them. All of it is in sent before it is written, because a reply can come before the last of a
// batch is written.
func (c *conn) prepare(batch []wire.Call) []wire.Call {
	key, forget := recordKey(batch), c.forget(batch)
	batch = c.merger.Merge(batch)
	if key != "" {
		batch = c.confirmation.follow(batch, key)
	}
	batch = c.tracking.insert(batch)
	if !c.server.scripts {
		wire.WithSources(batch)
	}
	if again := c.confirmation.askAgain(); again != nil {
		batch = slices.Insert(batch, 0, again...)
	}
	if c.lostScripts.Swap(false) {
		batch = slices.Insert(batch, 0, c.loadScripts()...)
	}
	if c.ping.Swap(false) {
		batch = append(batch, wire.Command(ping, func(any, redis.Error) {}))
	}
	if forget != nil {
		batch = slices.Insert(batch, 0, *forget)
	}
	if auth := c.auth.Swap(nil); auth != nil {
		batch = slices.Insert(batch, 0, *auth)
	}
	c.sent.push(batch)
	return batch
}

var ping = wire.Begin(1, "PING")

// loadScripts returns the commands by which a server that lost its scripts has them again.
func (c *conn) loadScripts() (load []wire.Call) {
	for _, source := range wire.Scripts() {
		load = append(load, wire.Command(wire.Begin(3, "SCRIPT", "LOAD", source), func(_ any, failure redis.Error) {
			if failure != "" {
				c.merger.Stop()
			}
		}))
	}
	return load
}

// forget returns the command that deletes the record of a server that was restored from a snapshot, before the
// first requests that rest on it. All clients then see that the server has forgotten.
func (c *conn) forget(batch []wire.Call) *wire.Call {
	if !c.restored {
		return nil
	}
	for i := range batch {
		key := batch[i].Request.Epoch
		if batch[i].Request.Op == protocol.OpAdmit {
			key = batch[i].Request.Key
		}
		if key != "" {
			c.restored = false
			call := wire.Command(wire.Begin(2, "DEL", key), c.forgotten)
			return &call
		}
	}
	return nil
}

// forgotten takes the answer to the deletion of the record.
func (c *conn) forgotten(_ any, failure redis.Error) {
	if failure != "" {
		err, _ := wire.Explain(failure)
		c.fail(fmt.Errorf("restored from a snapshot, but its epoch record could not be deleted: %w", err))
		return
	}
	c.numbers.restart(c.server.RunID, c.server.clientID)
	c.config.Doubt("the numbers of its connections went back in the same process: it was restored from a snapshot, " +
		"so its epoch record was deleted, and it is in quarantine")
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
		k, asked := c.sent.answered()
		c.worked = c.worked || !isReply
		switch {
		case !asked:
			c.fail(fmt.Errorf("%w: nothing was asked", wire.ErrUnexpected))
			return
		case len(k.Each()) > 0:
			c.answerMerged(k.Each(), v, failure)
		case k.Own != nil:
			k.Own.Answered(v, failure)
		default:
			a := k.Answer(v, failure)
			c.settle(k, a)
		}
	}
}

// answerMerged hands out the answer to a call that stands for each.
func (c *conn) answerMerged(each []wire.Call, v any, failure redis.Error) {
	switch {
	case wire.LostScripts(failure):
		c.lostScripts.Store(true) // the calls that are sent again come behind their loading
	case wire.StopsMerging(failure):
		c.merger.Stop()
	}
	for i := range each {
		a := wire.AnswerOf(each, i, v, failure)
		c.settle(each[i], a)
	}
}

// settle does what the answer to a request means.
func (c *conn) settle(k wire.Call, a wire.Answer) {
	if a.Lacks != (wire.Abilities{}) {
		c.queue.lacks(a.Lacks)
	}
	if a.Doubt != "" {
		c.config.Doubt(a.Doubt)
	}
	if a.Again {
		c.queue.again(k)
		return
	}
	if a.Retry {
		c.queue.retryLater(k)
	}
	if a.Fatal != nil {
		c.fail(a.Fatal)
	}
	a.Reply.Link = c.number
	switch r := &a.Reply; {
	case k.Request.Op != protocol.OpAdmit || r.Err != nil:
		r.Run = c.confirmation.run
	case !c.server.isNameless() && r.Run != c.confirmation.run: // the record's own answer has it
		c.fail(ErrSucceeded) // before a record of what follows is written
		a.Reply = protocol.Reply{Outcome: protocol.Unknown, Err: ErrSucceeded}
	}
	c.confirmation.deliver(k, a.Reply)
}

// unanswered replies to a call that was sent and not answered. The server may have run it, or may run it
// yet.
func (c *conn) unanswered(k wire.Call) {
	for _, each := range k.Each() {
		c.unanswered(each)
	}
	if k.Request != nil {
		c.queue.retryLater(k)
		c.queue.reply(k, protocol.Reply{Outcome: protocol.Unknown, Err: c.err})
	}
}

// watch ends the connection of a server that leaves requests unanswered, and has pending releases sent
// again, less and less often while the server refuses them. An idle connection is sent a PING now and then,
// so that one that a firewall has dropped is replaced before a caller needs it. It looks at how many
// replies have come rather than at the age of requests, so that sending and receiving need not read a clock.
func (c *conn) watch() {
	period := min(retryInterval, c.config.Stall/4)
	t := time.NewTicker(period)
	defer t.Stop()
	var before uint64                    // replies
	var silent, kept, idle time.Duration // since there were more, since releases were sent again, and since something was asked
	again := retryInterval
	for silent <= c.config.Stall {
		select {
		case <-t.C:
		case <-c.broken:
			return
		}
		if kept += period; kept >= again {
			kept = 0
			if c.queue.sendAgain() {
				again = min(2*again, maxRetryInterval)
			} else {
				again = retryInterval
			}
		}
		silent += period
		idle += period
		replies, isWaiting := c.sent.progress()
		if isWaiting || replies != before {
			idle = 0
		}
		if !isWaiting || replies != before {
			before, silent = replies, 0
		}
		if idle >= c.config.Idle {
			idle = 0
			c.ping.Store(true)
			c.queue.kick()
		}
	}
	c.fail(fmt.Errorf("%w: nothing for %v", ErrStalled, c.config.Stall))
}

// reauthenticate has AUTH sent each time that the period has passed, until the connection breaks.
// Credentials end, and some servers then end the connections that began with them, with the
// requests that are on their way. Without an answer the connection goes on with those that it has,
// which should be good until the next time.
func (c *conn) reauthenticate(ctx context.Context, ask func(context.Context) ([]string, error)) {
	t := time.NewTicker(c.config.Reauthenticate)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-c.broken:
			return
		}
		limited, cancel := context.WithTimeout(ctx, c.config.Dial)
		words, err := ask(limited)
		cancel()
		if err != nil && ctx.Err() == nil {
			c.config.Doubt("it cannot be authenticated again: " + err.Error())
		}
		if len(words) > 0 {
			auth := wire.Command(wire.Begin(1+len(words), append([]string{"AUTH"}, words...)...), c.authenticated)
			c.auth.Store(&auth)
			c.queue.kick()
		}
	}
}

// authenticated takes the answer to AUTH. After a refusal the connection is what it was for the server,
// too, and better than none: credentials may be new to this process before they are to the server.
func (c *conn) authenticated(_ any, failure redis.Error) {
	if failure != "" {
		c.config.Doubt(fmt.Sprintf("it refuses to authenticate again: %.100s", wire.Code(string(failure)))) // the rest may repeat the password
	}
}
