package link

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
)

// The hints of a node serve those who watch a key: waiters and holders. While there are any, and for a
// little longer, the goroutine listen keeps a listener.
//
// They are Redis's client-side caching put to another use
// (https://redis.io/docs/latest/develop/reference/client-side-caching/). The server remembers a key
// that was read after CLIENT CACHING YES, and tells its next change, of any kind, once. It tells
// another connection, the listener, because the node's connection speaks RESP2. So a release need
// not publish anything, and a deletion by hand or an expiry is told as well.
type hints struct {
	ctx      context.Context // ends when the node is closed
	config   *Config
	wake     func()                   // has the node's connection look at redirect
	redirect atomic.Pointer[redirect] // where the server should send hints

	mu        sync.Mutex            // guards the fields below
	watchers  map[string][]*watcher // by key; those of all keys by the empty one
	wanted    bool                  // from the first watch until soon after the last stop
	refused   bool                  // the server gives none; until the node's next connection
	listening bool                  // listen runs
	listener  *listener             // while it lives
	linger    *time.Timer           // ends wanted

	ended sync.WaitGroup // of listen
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
	h := &hints{ctx: ctx, config: config, wake: wake, watchers: map[string][]*watcher{}}
	h.redirect.Store(&redirect{})
	return h
}

// watch is that of protocol.Watchable. Where the server gives no hints, none ever come.
func (h *hints) watch(key string, hint func(key string)) (stop func()) {
	w := &watcher{hint}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watchers[key] = append(h.watchers[key], w)
	h.start()
	return func() { h.unwatch(key, w) }
}

func (h *hints) unwatch(key string, w *watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	left := slices.DeleteFunc(h.watchers[key], func(o *watcher) bool { return o == w })
	if len(left) > 0 {
		h.watchers[key] = left
		return
	}
	if _, here := h.watchers[key]; !here {
		return // stopped before
	}
	delete(h.watchers, key)
	if len(h.watchers) == 0 && h.wanted && h.ctx.Err() == nil {
		h.stopLinger()
		h.linger = time.AfterFunc(h.config.Linger, h.endUnused)
	}
}

// start starts listen if there are watchers and it does not run. The caller holds mu.
func (h *hints) start() {
	if len(h.watchers) == 0 || h.refused || h.ctx.Err() != nil {
		return
	}
	h.wanted = true
	if !h.listening {
		h.listening = true
		h.ended.Go(h.listen)
	}
}

// endUnused is called some time after the last stop, because waiters who come and go should not
// cost a connection each.
func (h *hints) endUnused() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.watchers) == 0 {
		h.end()
	}
}

// end has listen return. The caller holds mu.
func (h *hints) end() {
	h.wanted = false
	if h.listener != nil {
		h.listener.fail()
	}
}

// retry is called for a new connection: what the one before was refused may be permitted by
// now, and the listener may hear another server.
func (h *hints) retry() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refused = false
	h.start()
	if h.listener != nil && h.listener.isElsewhere() {
		h.listener.fail()
	}
}

// refuse is called when the server gives no hints. It is not asked again before the next
// connection.
func (h *hints) refuse() {
	h.mu.Lock()
	h.refused = true
	h.end()
	h.mu.Unlock()
	h.config.Doubt("it gives no hints when a lock is free, so those who wait have to poll, " +
		"and holders learn of a loss at the next renewal: " +
		"permit CLIENT TRACKING, CLIENT CACHING, CLIENT ID and SUBSCRIBE to __redis__:invalidate (Redis 6 or later)")
}

// close returns when listen has ended. It is called after the end of ctx.
func (h *hints) close() {
	h.mu.Lock()
	h.stopLinger()
	h.mu.Unlock()
	h.ended.Wait()
}

// stopLinger stops the timer. The caller holds mu.
func (h *hints) stopLinger() {
	if h.linger != nil {
		h.linger.Stop()
	}
}

// goOn reports whether listen should go on. If not, the next watch starts it again.
func (h *hints) goOn() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.listening = h.wanted
	return h.listening
}

// setListener makes l the listener that end ends. It reports whether one is still wanted, because
// end may have been called before.
func (h *hints) setListener(l *listener) (wanted bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.listener = l
	return h.wanted
}

func (h *hints) setRedirect(r redirect) {
	h.redirect.Store(&r)
	h.wake()
}

// give gives a hint to those who watch the key. It calls them without the lock, because they may
// stop watching.
func (h *hints) give(key string) {
	h.mu.Lock()
	watchers := slices.Concat(h.watchers[key], h.watchers[""])
	h.mu.Unlock()
	for _, w := range watchers {
		w.hint(key)
	}
}

// giveAll gives a hint to all who watch a key.
func (h *hints) giveAll() {
	h.mu.Lock()
	var watchers []*watcher
	for _, w := range h.watchers {
		watchers = append(watchers, w...)
	}
	h.mu.Unlock()
	for _, w := range watchers {
		w.hint("")
	}
}

// listen keeps a listener for as long as one is wanted.
func (h *hints) listen() {
	backoff := time.Duration(0)
	for sleep(h.ctx, backoff) && h.goOn() {
		l, to, err := h.openListener()
		var had connection
		switch {
		case errors.Is(err, errNoHints):
			h.refuse()
		case err == nil:
			err = l.serve(to)
			had = connection{lasted: time.Since(l.began), worked: l.heard.Load() > 0, err: err}
		}
		backoff = backoffAfter(had, backoff)
	}
}

// A listener is a node's second connection, on which hints come. It carries no requests, so a
// listener that hangs holds up nothing but hints.
type listener struct {
	hints       *hints
	redis       redis.Conn
	isElsewhere func() bool // reports whether the node has connected to another of its servers since
	began       time.Time
	heard       atomic.Int64 // messages and answers so far

	failOnce sync.Once
	broken   chan struct{} // closed by fail
}

var (
	// errNoHints is for a server that does not let us listen.
	errNoHints = errors.New("gives no hints")
	// errElsewhere is for one that the node has left meanwhile.
	errElsewhere = errors.New("the node has failed over")
)

// invalidations is the channel on which a server tells changed keys to a connection that speaks
// RESP2.
const invalidations = "__redis__:invalidate"

// openListener makes a listener, and returns where hints must be sent to reach it.
func (h *hints) openListener() (*listener, redirect, error) {
	ctx, cancel := context.WithTimeout(h.ctx, h.config.Dial)
	defer cancel()
	var to redirect
	c, isElsewhere, err := h.config.Hint(ctx)
	if err != nil {
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
	if err != nil && isElsewhere() {
		err = errElsewhere
	}
	if err != nil {
		c.Close()
		return nil, to, err
	}
	return &listener{hints: h, redis: c, isElsewhere: isElsewhere, began: time.Now(), broken: make(chan struct{})}, to, nil
}

// serve reads hints until the listener fails, and returns why.
//
// From a client that subscribes a server takes no AUTH with RESP2. So a listener whose credentials end is
// given up before, and its successor, which asks for credentials as every new connection does, has those
// who watch look again (see tracked). To unsubscribe, authenticate and subscribe in its place would need
// one more right, and lose hints as well.
func (l *listener) serve(to redirect) error {
	h := l.hints
	defer context.AfterFunc(h.ctx, l.fail)()
	if c, ok := l.redis.(*Conn); ok && c.Auth != nil {
		defer time.AfterFunc(h.config.Reauthenticate, l.fail).Stop()
	}
	if !h.setListener(l) || l.isElsewhere() {
		l.fail()
	}
	pinging := make(chan struct{})
	go func() {
		defer close(pinging)
		l.ping()
	}()
	h.setRedirect(to)
	err := l.read()
	<-pinging
	h.setRedirect(redirect{})
	h.setListener(nil)
	return err
}

// fail ends the listener, even where it hangs. It may be called again.
func (l *listener) fail() {
	l.failOnce.Do(func() {
		close(l.broken)
		l.redis.Close()
	})
}

// read returns why there is no more to hear.
func (l *listener) read() error {
	defer l.fail()
	for {
		v, err := receive(l.redis)
		// An error reply is an answer, too: to a PING that is not permitted.
		if _, isReply := err.(redis.Error); err != nil && !isReply {
			return err
		}
		l.heard.Add(1)
		l.giveHints(v)
	}
}

// giveHints gives the hints that a message is about.
func (l *listener) giveHints(message any) {
	list, _ := message.([]any)
	if len(list) != 3 {
		return // the answer to PING
	}
	switch keys := list[2].(type) {
	case nil: // FLUSHALL
		l.hints.giveAll()
	case []any:
		for _, key := range keys {
			if key, ok := key.([]byte); ok {
				l.hints.give(string(key))
			}
		}
	}
}

// ping makes sure that the server is still there, because most of the time there is nothing to
// hear.
func (l *listener) ping() {
	for l.sleep(l.hints.config.Ping) {
		before := l.heard.Load()
		if l.isElsewhere() || l.redis.Send("PING") != nil || l.redis.Flush() != nil {
			l.fail()
			return
		}
		if l.sleep(l.hints.config.Stall) && l.heard.Load() == before {
			l.fail()
		}
	}
}

// sleep waits for d. It returns false if the listener has failed.
func (l *listener) sleep(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-l.broken:
		return false
	}
}
