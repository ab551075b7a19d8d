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

	"github.com/redquorum/redquorum/internal/record"
)

// The hints of a node serve the watchers of its keys: waiters and holders. While there are
// watchers, and for a little longer, the goroutine listen keeps a listener: a second connection,
// which receives the hints. It carries no requests, so a listener that hangs delays only hints.
//
// Hints use Redis's client-side caching
// (https://redis.io/docs/latest/develop/reference/client-side-caching/). The server tracks a key
// that was read after CLIENT CACHING YES, and reports its next change, of any kind, once. It
// reports the change to another connection, because the node's connection speaks RESP2. So a
// release need not publish anything, and a deletion by hand or an expiry is reported as well.
type hints struct {
	ctx      context.Context // ends when the node is closed
	config   *Config
	wake     func()                   // makes the node's connection read redirect
	redirect atomic.Pointer[redirect] // destination of hints
	linger   *time.Timer              // ends listen if there are no watchers left
	numbers  *numbers                 // CLIENT IDs of both connections

	mu       sync.Mutex            // guards the fields below
	watchers map[string][]*watcher // by key; the empty key has the watchers of all keys
	dial     Dial                  // makes a listener; nil before the first connection of the node
	runID    string                // run_id of the server of the node's last connection
	refused  *time.Timer           // not nil after the server refused hints, until it fires or the node reconnects
	stop     context.CancelFunc    // ends listen; nil if listen does not run or is about to end
	ended    chan struct{}         // closed when all calls of listen have ended
}

// A redirect is the connection that receives hints. A client number is only valid in the process
// that assigned it.
type redirect struct {
	client int64 // zero: none
	runID  string
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

// watch implements protocol.Watchable.
func (h *hints) watch(key string, hint func(key string)) (stop func()) {
	w := &watcher{hint}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watchers[key] = append(h.watchers[key], w)
	h.start()
	return func() { h.unwatch(key, w) }
}

// unwatch removes a watcher. It may be called again. The listener outlives the last watcher for a
// while, so that frequent waiters do not cost a connection each.
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

// start starts listen if there are watchers and listen does not run. The caller must hold mu.
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

// end makes listen return. The caller must hold mu.
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

// connected is called for a new connection. The server may now permit hints that it refused on the
// previous one, and the listener may be connected to another server.
func (h *hints) connected(runID string, dial Dial) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.permit()
	h.runID, h.dial = runID, dial
	if to := h.redirect.Load(); to.client != 0 && to.runID != runID {
		h.end()
	}
	h.start()
}

// permit ends a refusal. The caller must hold mu.
func (h *hints) permit() {
	if h.refused != nil {
		h.refused.Stop()
		h.refused = nil
	}
}

// refuse is called when the server refuses hints. The server is asked again on the next connection,
// or after a while, because the rights of the user may have been corrected.
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

// hasLeft reports whether the node is connected to a process other than runID. An empty runID
// belongs to a server that hides it.
func (h *hints) hasLeft(runID string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return runID != "" && h.runID != "" && runID != h.runID
}

func (h *hints) setRedirect(r redirect) {
	h.redirect.Store(&r)
	h.wake()
}

// give sends a hint to the watchers of the key, or to all watchers if the key is empty. It calls
// them without the lock, because they may stop watching.
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
		case errors.Is(err, errNoHints) && !h.hasLeft(to.runID):
			h.refuse()
		}
		backoff = backoffAfter(had, backoff)
	}
}

var errNoHints = errors.New("sends no hints")

// invalidations is the channel on which a server reports changed keys to a connection that speaks
// RESP2.
const invalidations = "__redis__:invalidate"

// openListener makes a listener, and returns the redirect that reaches it.
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
		Question{Name: "INFO", Args: []any{"server"}, Answered: text(func(info []byte) { to.runID = record.Field(info, "run_id") })},
		Question{Name: "SUBSCRIBE", Args: []any{invalidations}, Answered: func(any) { subscribed = true }},
	)
	if err == nil && (to.client == 0 || !subscribed) {
		err = errNoHints
	}
	if h.numbers.known().runID == to.runID {
		h.numbers.enter(to.runID, to.client)
	}
	if err != nil {
		c.Close()
	}
	return c, to, err
}

// hear delivers the hints of a listener until it breaks or ctx ends. A listener is silent most of
// the time, so PINGs check that the server is still there.
//
// With RESP2 a server accepts no AUTH from a client that subscribes. So hear ends a listener before
// its credentials expire, and the next listener gives every watcher a hint (see tracked).
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
	if h.hasLeft(to.runID) { // the node has reconnected since the listener was made
		fail()
	}
	began := time.Now()
	for {
		v, err := receive(c)
		// An error reply is an answer, too, for example to a PING that is not permitted.
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

// giveHints delivers the hints in a message.
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

// ping makes the server send replies, until ctx ends.
func (h *hints) ping(ctx context.Context, c redis.Conn) {
	t := time.NewTicker(h.config.Ping)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			if c.Send("PING") != nil || c.Flush() != nil {
				return // the connection is broken
			}
		case <-ctx.Done():
			return
		}
	}
}
