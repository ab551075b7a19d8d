package link

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
)

// The hints of a node serve those who watch a key: waiters and holders. While there are any, and for a
// little longer, the goroutine listen keeps a listener: a second connection, on which hints come. It
// carries no requests, so a listener that hangs holds up nothing but hints.
//
// They are Redis's client-side caching put to another use
// (https://redis.io/docs/latest/develop/reference/client-side-caching/). The server remembers a key
// that was read after CLIENT CACHING YES, and tells its next change, of any kind, once; to another
// connection, because the node's speaks RESP2. So a release need not publish anything, and a
// deletion by hand or an expiry is told as well.
type hints struct {
	ctx      context.Context // ends when the node is closed
	config   *Config
	wake     func()                   // has the node's connection look at redirect
	redirect atomic.Pointer[redirect] // where the server should send hints
	linger   *time.Timer              // ends listen if there are no watchers any more
	numbers  *numbers                 // of both connections

	mu       sync.Mutex            // guards the fields below
	watchers map[string][]*watcher // by key; those of all keys by the empty one
	dial     Dial                  // makes a listener; nil: the node was not connected yet
	run      string                // of the server that the node was connected to last
	refused  *time.Timer           // the server gives none; until it fires, or the node's next connection; nil: it may
	stop     context.CancelFunc    // ends listen; nil: it does not run, or is about to end
	ended    chan struct{}         // closed when all calls of listen have ended
}

// A redirect is the connection that hints are sent to. A client number is only valid in the process
// that gave it.
type redirect struct {
	client int64 // zero: none
	run    string
}

// A watcher is identified by its address.
type watcher struct{ hint func(key string) }

func newHints(ctx context.Context, config *Config, wake func()) *hints {
	h := &hints{ctx: ctx, config: config, wake: wake, watchers: map[string][]*watcher{}, ended: make(chan struct{}), numbers: new(numbers)}
	close(h.ended)
	h.redirect.Store(&redirect{})
	h.linger = time.AfterFunc(config.Linger, h.endUnused)
	return h
}

// watch is that of protocol.Watchable.
func (h *hints) watch(key string, hint func(key string)) (stop func()) {
	w := &watcher{hint}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watchers[key] = append(h.watchers[key], w)
	h.start()
	return func() { h.unwatch(key, w) }
}

// unwatch may be called again. Waiters who come and go should not cost a connection each, so the listener
// outlives them for a while.
func (h *hints) unwatch(key string, w *watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	left := slices.DeleteFunc(h.watchers[key], func(o *watcher) bool { return o == w })
	if len(left) > 0 {
		h.watchers[key] = left
		return
	}
	delete(h.watchers, key)
	if len(h.watchers) == 0 {
		h.linger.Reset(h.config.Linger)
	}
}

// start starts listen if there are watchers and it does not run. The caller holds mu.
func (h *hints) start() {
	if len(h.watchers) == 0 || h.dial == nil || h.refused != nil || h.stop != nil || h.ctx.Err() != nil {
		return
	}
	before, ended := h.ended, make(chan struct{})
	ctx, stop := context.WithCancel(h.ctx)
	h.stop, h.ended = stop, ended
	go func() {
		defer close(ended)
		<-before
		h.listen(ctx)
	}()
}

// end has listen return. The caller holds mu.
func (h *hints) end() {
	if h.stop != nil {
		h.stop()
		h.stop = nil
	}
}

func (h *hints) endUnused() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.watchers) == 0 {
		h.end()
	}
}

// retry is called for a new connection: what the one before was refused may be permitted by
// now, and the listener may hear another server.
func (h *hints) retry(run string, dial Dial) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.permit()
	h.run, h.dial = run, dial
	if to := h.redirect.Load(); to.client != 0 && to.run != run {
		h.end()
	}
	h.start()
}

// permit ends a refusal. The caller holds mu.
func (h *hints) permit() {
	if h.refused != nil {
		h.refused.Stop()
		h.refused = nil
	}
}

// refuse is called when the server gives no hints. It is asked again on the next connection, or after a
// while, because its rights may have been mended.
func (h *hints) refuse() {
	h.mu.Lock()
	if h.refused == nil {
		h.refused = time.AfterFunc(h.config.AskAgain, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.permit()
			h.start()
		})
	}
	h.end()
	h.mu.Unlock()
	h.config.Doubt("it sends no hints when a lock is free, so waiters poll, " +
		"and holders learn of a loss at the next renewal: " +
		"permit CLIENT TRACKING, CLIENT CACHING, CLIENT ID and SUBSCRIBE to __redis__:invalidate (Redis 6 or later)")
}

// close returns when listen has ended. It is called after the end of ctx.
func (h *hints) close() {
	h.linger.Stop()
	h.mu.Lock()
	h.permit()
	ended := h.ended
	h.mu.Unlock()
	<-ended
}

// hasLeft reports whether the node is connected to another server than that of this process. An empty run
// is that of a server which does not tell.
func (h *hints) hasLeft(run string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return run != "" && h.run != "" && run != h.run
}

func (h *hints) setRedirect(r redirect) {
	h.redirect.Store(&r)
	h.wake()
}

// give gives a hint to those who watch the key; to all, if it is empty. It calls them without the lock,
// because they may stop watching.
func (h *hints) give(key string) {
	h.mu.Lock()
	watchers := slices.Concat(h.watchers[key], h.watchers[""])
	if key == "" {
		watchers = slices.Concat(slices.Collect(maps.Values(h.watchers))...)
	}
	h.mu.Unlock()
	for _, w := range watchers {
		w.hint(key)
	}
}

// listen keeps a listener until ctx ends.
func (h *hints) listen(ctx context.Context) {
	backoff := time.Duration(0)
	for sleep(ctx, backoff) {
		var had connection
		c, to, err := h.openListener(ctx)
		switch {
		case err == nil:
			had = h.hear(ctx, c, to)
		case errors.Is(err, errNoHints) && !h.hasLeft(to.run):
			h.refuse()
		}
		backoff = backoffAfter(had, backoff)
	}
}

var errNoHints = errors.New("sends no hints")

// invalidations is the channel on which a server tells changed keys to a connection that speaks
// RESP2.
const invalidations = "__redis__:invalidate"

// openListener makes a listener, and returns where hints must be sent to reach it.
func (h *hints) openListener(ctx context.Context) (c redis.Conn, to redirect, err error) {
	ctx, cancel := context.WithTimeout(ctx, h.config.Dial)
	defer cancel()
	h.mu.Lock()
	dial := h.dial
	h.mu.Unlock()
	if c, err = dial(ctx); err != nil {
		return nil, to, err
	}
	subscribed := false
	err = Ask(ctx, c,
		Question{Name: "CLIENT", Args: []any{"SETNAME", "redlock-hints"}},
		Question{Name: "CLIENT", Args: []any{"ID"}, Answered: func(v any) { to.client, _ = v.(int64) }},
		Question{Name: "INFO", Args: []any{"server"}, Answered: func(v any) { to.run = infoField(v, "run_id") }},
		Question{Name: "SUBSCRIBE", Args: []any{invalidations}, Answered: func(any) { subscribed = true }},
	)
	if err == nil && (to.client == 0 || !subscribed) {
		err = errNoHints
	}
	if h.numbers.known().run == to.run {
		h.numbers.enter(to.run, to.client)
	}
	if err != nil {
		c.Close()
	}
	return c, to, err
}

// hear gives the hints that come on a listener, until it breaks or ctx ends. Most of the time there is
// nothing to hear, so the server is asked whether it is still there.
//
// From a client that subscribes a server takes no AUTH with RESP2. So a listener whose credentials end is
// given up before, and its successor has those who watch look again (see tracked).
func (h *hints) hear(ctx context.Context, c redis.Conn, to redirect) (had connection) {
	ctx, fail := context.WithCancel(ctx)
	defer fail()
	shut := sync.OnceFunc(func() { c.Close() })
	defer context.AfterFunc(ctx, shut)()
	if own, ok := c.(*Conn); ok && own.Auth != nil {
		defer time.AfterFunc(h.config.Reauthenticate, fail).Stop()
	}
	patience := h.config.Ping + h.config.Stall
	silent := time.AfterFunc(patience, fail)
	defer silent.Stop()
	var pinging sync.WaitGroup
	pinging.Go(func() { h.ping(ctx, c) })
	h.setRedirect(to)
	if h.hasLeft(to.run) { // since the listener was made
		fail()
	}
	began := time.Now()
	for {
		v, err := receive(c)
		// An error reply is an answer, too: to a PING that is not permitted.
		if _, isReply := err.(redis.Error); err != nil && !isReply {
			had.lasted, had.err = time.Since(began), err
			break
		}
		had.worked = true
		silent.Reset(patience)
		h.giveHints(v)
	}
	fail()
	shut()
	pinging.Wait()
	h.setRedirect(redirect{})
	return had
}

// giveHints gives the hints that a message is about.
func (h *hints) giveHints(message any) {
	list, _ := message.([]any)
	if len(list) != 3 {
		return // the answer to PING
	}
	switch keys := list[2].(type) {
	case nil: // FLUSHALL
		h.give("")
	case []any:
		for _, key := range keys {
			if key, ok := key.([]byte); ok {
				h.give(string(key))
			}
		}
	}
}

// ping has the server say something, until ctx ends.
func (h *hints) ping(ctx context.Context, c redis.Conn) {
	t := time.NewTicker(h.config.Ping)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			if c.Send("PING") != nil || c.Flush() != nil {
				return // and there is nothing more to hear
			}
		case <-ctx.Done():
			return
		}
	}
}
