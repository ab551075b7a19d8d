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

// A conn is one connection of a node, from its handshake to its end. The server answers requests in
// the order in which they were sent, so a queue is enough to match replies to requests. Two
// goroutines share a conn: the writer and the reader. If only one of them uses a field, the comment
// of the field names it.
type conn struct {
	queue  *queue
	config *Config
	redis  redis.Conn
	server Server
	number int // index among the connections of the node
	began  time.Time
	worked bool // the server has sent a reply other than an error; used by the reader

	failOnce sync.Once
	broken   chan struct{} // closed by the first fail
	err      error         // reason of the end; read after broken is closed

	inFlight     inFlight
	merger       wire.Merger // used by the writer
	confirmation confirmation
	tracking     tracking
	numbers      *numbers
	restored     bool                      // restored from a snapshot, so the writer must delete the record
	auth         atomic.Pointer[wire.Call] // AUTH to send; nil: none
	lostScripts  atomic.Bool               // the writer must load the scripts again
	ping         atomic.Bool               // the writer must send a PING
}

func newConn(q *queue, h *hints, g Greeting, restored bool) *conn {
	c := &conn{
		queue: q, config: h.config, redis: g.Conn, server: g.Server, began: time.Now(), broken: make(chan struct{}),
		numbers: h.numbers, restored: restored,
	}
	f := &c.confirmation
	f.server, f.identity, f.looks = g.Server.Server, g.Server.Identity(), g.Server.Replication.ID != ""
	f.broken, f.fail, f.reply, f.kick = c.broken, c.fail, q.reply, q.kick
	c.tracking = tracking{hints: h, merger: &c.merger, runID: g.Server.RunID}
	if !g.Server.scripts {
		c.merger.Stop()
	}
	return c
}

// serve writes and reads until the connection breaks or ctx ends, and returns the reason. Before it
// returns, every request that was sent has had its reply.
func (c *conn) serve(ctx context.Context) error {
	// This works even if the writer hangs in a system call.
	defer context.AfterFunc(ctx, func() { c.fail(ErrClosed) })()
	var others sync.WaitGroup
	others.Go(c.read)
	others.Go(c.watch)
	if own, ok := c.redis.(*Conn); ok && own.Auth != nil {
		go c.reauthenticate(ctx, own.Auth) // without others.Go, because the caller's function may be slow
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
	for _, k := range c.inFlight.unanswered() {
		c.unanswered(k)
	}
	return c.err
}

// fail ends the connection. Only the first call has an effect, and gives the reason.
func (c *conn) fail(err error) {
	c.failOnce.Do(func() {
		c.err = err
		close(c.broken)
		// Only Close ends a Receive or a Flush that hangs on a connection from the caller's dial
		// function. redigo guards it with a mutex.
		c.redis.Close()
	})
}

// lose ends a connection after a failure to read or write.
func (c *conn) lose(err error) { c.fail(fmt.Errorf("connection lost: %w", Explain(err))) }

// write sends all queued requests at once, again and again until the connection breaks.
func (c *conn) write() {
	var spare []wire.Call // memory of the previous batch
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

// prepare adds the connection's own commands to a batch of requests. It records the result as in
// flight before it is written, because a reply can arrive before the last call of a batch is
// written.
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
	c.inFlight.push(batch)
	return batch
}

var ping = wire.Begin(1, "PING")

// loadScripts returns the commands that load all scripts, for a server that lost them.
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

// forget returns the command that deletes the record of a server that was restored from a snapshot.
// It precedes the first requests that depend on the record. All clients then see that the server
// has forgotten.
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

// forgotten handles the reply to the deletion of the record.
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

// read delivers replies until the connection breaks.
func (c *conn) read() {
	for {
		v, err := receive(c.redis)
		failure, isReply := err.(redis.Error) // errors.As would cost an allocation for each reply
		if err != nil && !isReply {
			c.lose(err)
			return
		}
		k, asked := c.inFlight.answered()
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

// answerMerged delivers the reply to a merged call to each of its calls.
func (c *conn) answerMerged(each []wire.Call, v any, failure redis.Error) {
	switch {
	case wire.LostScripts(failure):
		c.lostScripts.Store(true) // the repeated calls follow the loading
	case wire.StopsMerging(failure):
		c.merger.Stop()
	}
	for i := range each {
		a := wire.AnswerOf(each, i, v, failure)
		c.settle(each[i], a)
	}
}

// settle applies the answer to a request.
func (c *conn) settle(k wire.Call, a wire.Answer) {
	if a.Lacks != (wire.Abilities{}) {
		c.queue.lacks(a.Lacks)
	}
	if a.Doubt != "" {
		c.config.Doubt(a.Doubt)
	}
	if a.Requeue {
		c.queue.requeue(k)
		return
	}
	if a.Pending {
		c.queue.addPending(k)
	}
	if a.Fatal != nil {
		c.fail(a.Fatal)
	}
	a.Reply.Link = c.number
	switch r := &a.Reply; {
	case k.Request.Op != protocol.OpAdmit || r.Err != nil:
		r.Run = c.confirmation.identity
	case !c.server.IsNameless() && r.Run != c.confirmation.identity: // the answer to OpAdmit names the server itself
		c.fail(ErrSucceeded) // before a record of the new data set is written
		a.Reply = protocol.Reply{Outcome: protocol.Unknown, Err: ErrSucceeded}
	}
	c.confirmation.deliver(k, a.Reply)
}

// unanswered replies to a call that was sent and not answered. The server may have run it, or may
// still run it.
func (c *conn) unanswered(k wire.Call) {
	for _, each := range k.Each() {
		c.unanswered(each)
	}
	if k.Request != nil {
		c.queue.addPending(k)
		c.queue.reply(k, protocol.Reply{Outcome: protocol.Unknown, Err: c.err})
	}
}

// watch ends a connection whose server leaves requests unanswered. It also sends pending releases
// again, less and less often while the server refuses them. It sends PINGs on an idle connection,
// so that a connection dropped by a firewall is replaced before a caller needs it. It counts
// replies and ignores the age of requests, so that sending and receiving need not read a clock.
func (c *conn) watch() {
	period := min(retryInterval, c.config.Stall/4)
	t := time.NewTicker(period)
	defer t.Stop()
	var before uint64                    // number of replies
	var silent, kept, idle time.Duration // time since the last reply, the last sending of releases, and the last request
	again := retryInterval
	for silent <= c.config.Stall {
		select {
		case <-t.C:
		case <-c.broken:
			return
		}
		if kept += period; kept >= again {
			kept = 0
			if c.queue.resendPending() {
				again = min(2*again, maxRetryInterval)
			} else {
				again = retryInterval
			}
		}
		silent += period
		idle += period
		replies, isWaiting := c.inFlight.progress()
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

// reauthenticate sends AUTH once per period until the connection breaks. Credentials expire, and
// some servers then end the connections that began with them, together with the requests in flight.
// Without new credentials the connection keeps its present ones, which should last until the next
// time.
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

// authenticated handles the reply to AUTH. After a refusal the connection stays open, because it is
// unchanged for the server and better than none: this process may get new credentials before the
// server does.
func (c *conn) authenticated(_ any, failure redis.Error) {
	if failure != "" {
		c.config.Doubt(fmt.Sprintf("it refuses to authenticate again: %.100s", wire.Code(string(failure)))) // only the code, because the rest may contain the password
	}
}
