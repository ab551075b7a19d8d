package pool

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/internal/lockorder"
	"github.com/redquorum/redquorum/internal/protocol"
)

// Hints are Redis's client-side caching put to another use
// (https://redis.io/docs/latest/develop/reference/client-side-caching/). The server remembers a key
// that was read after CLIENT CACHING YES, and tells its next change, of any kind, once. It tells
// another connection, the listener, because the node's connection speaks RESP2. So a release need
// not publish anything, and a deletion by hand or an expiry is told as well.
//
// The node's connection tracks with NOLOOP: its own changes give no hints. They use up
// what the server remembered all the same, so the script of an extension ends with another look at
// the key. (Redis 6.0 does tell what a script changes. That costs each renewal a look: see redlock's
// lease watch.)

var _ protocol.Watchable = (*node)(nil)

// The hints of a node serve those who watch a key: waiters and holders. While there are any, and
// for a little longer, the goroutine listen keeps a listener.
type hints struct {
	mu        lockorder.Mutex[lockorder.Hints]
	watchers  map[string][]*watcher // by key; those of all keys by the empty one
	wanted    bool                  // from the first Watch until soon after the last stop
	refused   bool                  // the server gives none; until the node's next connection
	listening bool                  // listen runs
	listener  *listener             // while it lives
	linger    *time.Timer           // ends wanted

	ended sync.WaitGroup // of listen
}

// A watcher is identified by its address.
type watcher struct{ hint func(key string) }

// Watch implements protocol.Watchable. Where the server gives no hints, none ever come.
func (n *node) Watch(key string, hint func(key string)) (stop func()) {
	h := &n.hints
	w := &watcher{hint}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watchers[key] = append(h.watchers[key], w)
	n.startListening()
	return func() { n.unwatch(key, w) }
}

func (n *node) unwatch(key string, w *watcher) {
	h := &n.hints
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
	if len(h.watchers) == 0 && h.wanted && n.ctx.Err() == nil {
		h.stopLinger()
		h.linger = time.AfterFunc(n.settings.linger, h.endUnused)
	}
}

// startListening starts listen if there are watchers and it does not run. The caller holds
// hints.mu.
func (n *node) startListening() {
	h := &n.hints
	if len(h.watchers) == 0 || h.refused || n.ctx.Err() != nil {
		return
	}
	h.wanted = true
	if !h.listening {
		h.listening = true
		h.ended.Go(n.listen)
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

// retryHints is called for a new connection: what the one before was refused may be permitted by
// now, and the listener may hear another server.
func (n *node) retryHints() {
	n.hints.mu.Lock()
	defer n.hints.mu.Unlock()
	n.hints.refused = false
	n.startListening()
	if l := n.hints.listener; l != nil && l.isElsewhere() {
		l.fail()
	}
}

// refuseHints is called when the server gives no hints. It is not asked again before the next
// connection.
func (n *node) refuseHints() {
	n.hints.mu.Lock()
	n.hints.refused = true
	n.hints.end()
	n.hints.mu.Unlock()
	n.doubts.enter("it gives no hints when a lock is free, so those who wait have to poll, " +
		"and holders learn of a loss at the next renewal: " +
		"permit CLIENT TRACKING, CLIENT CACHING, CLIENT ID and SUBSCRIBE to __redis__:invalidate (Redis 6 or later)")
}

// closeHints returns when listen has ended. It is called after the end of n.ctx.
func (n *node) closeHints() {
	n.hints.mu.Lock()
	n.hints.stopLinger()
	n.hints.mu.Unlock()
	n.hints.ended.Wait()
}

// stopLinger stops the timer. The caller holds mu.
func (h *hints) stopLinger() {
	if h.linger != nil {
		h.linger.Stop()
	}
}

// goOn reports whether listen should go on. If not, the next Watch starts it again.
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

// invalidations is the channel on which a server tells changed keys to a connection that speaks
// RESP2.
const invalidations = "__redis__:invalidate"

// A listener is a node's second connection, on which hints come. It carries no requests, so a
// listener that hangs holds up nothing but hints.
type listener struct {
	node   *node
	member int32 // that it hears
	redis  redis.Conn
	began  time.Time
	heard  atomic.Int64 // messages and answers so far

	failOnce sync.Once
	broken   chan struct{} // closed by fail
}

// errNoHints is for a server that does not let us listen.
var errNoHints = errors.New("gives no hints")

// errElsewhere is for one that the node has left meanwhile.
var errElsewhere = errors.New("the node has failed over")

// listen keeps a listener for as long as one is wanted.
func (n *node) listen() {
	backoff := time.Duration(0)
	for n.sleep(backoff) && n.hints.goOn() {
		l, to, err := n.openListener()
		var had connection
		switch {
		case errors.Is(err, errNoHints):
			n.refuseHints()
		case err == nil:
			err = l.serve(to)
			had = connection{lasted: time.Since(l.began), worked: l.heard.Load() > 0, err: err}
		}
		backoff = backoffAfter(had, backoff)
	}
}

// openListener makes a listener, and returns where hints must be sent to reach it.
func (n *node) openListener() (*listener, redirect, error) {
	ctx, cancel := context.WithTimeout(n.ctx, n.settings.dialTimeout)
	defer cancel()
	at := n.at.Load()
	c, err := n.members[at].hint(ctx)
	if err != nil {
		return nil, redirect{}, err
	}
	var to redirect
	subscribed := false
	err = ask(ctx, c, []question{
		{name: "CLIENT", args: []any{"SETNAME", "redlock-hints"}},
		{name: "CLIENT", args: []any{"ID"}, answered: func(v any) { to.client, _ = v.(int64) }},
		{name: "INFO", args: []any{"server"}, answered: func(v any) { to.run = infoField(v, "run_id") }},
		{name: "SUBSCRIBE", args: []any{invalidations}, answered: func(any) { subscribed = true }},
	})
	if err == nil && (to.client == 0 || !subscribed) {
		err = errNoHints
	}
	if err != nil && at != n.at.Load() {
		err = errElsewhere
	}
	if err != nil {
		c.Close()
		return nil, redirect{}, err
	}
	return &listener{node: n, member: at, redis: c, began: time.Now(), broken: make(chan struct{})}, to, nil
}

// serve reads hints until the listener fails, and returns why.
func (l *listener) serve(to redirect) error {
	n := l.node
	defer context.AfterFunc(n.ctx, l.fail)()
	if asksForAuth(l.redis) != nil { // its successor asks for credentials
		defer time.AfterFunc(n.settings.reauthenticate, l.fail).Stop()
	}
	if !n.hints.setListener(l) || l.isElsewhere() {
		l.fail()
	}
	pinging := make(chan struct{})
	go func() {
		defer close(pinging)
		l.ping()
	}()
	n.setRedirect(to)
	err := l.read()
	<-pinging
	n.setRedirect(redirect{})
	n.hints.setListener(nil)
	return err
}

// isElsewhere reports whether the node has connected to another of its servers since.
func (l *listener) isElsewhere() bool { return l.member != l.node.at.Load() }

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
		l.node.hints.giveAll()
	case []any:
		for _, key := range keys {
			if key, ok := key.([]byte); ok {
				l.node.hints.give(string(key))
			}
		}
	}
}

// ping makes sure that the server is still there, because most of the time there is nothing to
// hear.
func (l *listener) ping() {
	for l.sleep(l.node.settings.ping) {
		before := l.heard.Load()
		if l.isElsewhere() || l.redis.Send("PING") != nil || l.redis.Flush() != nil {
			l.fail()
			return
		}
		if l.sleep(l.node.settings.stall) && l.heard.Load() == before {
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

// A redirect is the connection that hints are sent to. A client number is only valid in the process
// that gave it.
type redirect struct {
	client int64 // zero: none
	run    string
}

// setRedirect has the node's connection, and those to come, send hints to r.
func (n *node) setRedirect(r redirect) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.redirect = r
	n.wakeWriter()
}

// A tracking is the listener that a connection has named to its server, and the server's answer.
type tracking struct {
	listener int64 // the client that was named last; zero: none; the writer's
	granted  bool  // the answer to that; the reader's
}

// wantedListener returns the client that hints should go to. The caller holds the node's mu.
func (c *conn) wantedListener() int64 {
	if r := c.node.redirect; r.run == c.server.runID {
		return r.client
	}
	return 0
}

// withTracking inserts the commands by which the watches of a batch give hints.
func (c *conn) withTracking(batch []call, listener int64) []call {
	changed := listener != c.tracking.listener
	if !changed && !slices.ContainsFunc(batch, call.watches) {
		return batch
	}
	with := make([]call, 0, 2*len(batch)+1)
	if changed {
		c.tracking.listener = listener
		with = append(with, c.track(listener))
	}
	for _, k := range batch {
		if listener == 0 || !k.watches() {
			with = append(with, k)
			continue
		}
		cache := call{encoded: cacheNext, answered: c.cached} // holds for one command
		if each := k.encoded.each; len(each) > 0 && each[0].request.Op.Extends() {
			with = append(with, k, cache, c.readEach(each))
		} else {
			with = append(with, cache, k)
		}
	}
	return with
}

var (
	trackOff  = &encoded{packet: begin(3, "CLIENT", "TRACKING", "OFF")}
	cacheNext = &encoded{packet: begin(3, "CLIENT", "CACHING", "YES")}
)

// track makes the command that turns tracking on, or off if there is no listener.
func (c *conn) track(listener int64) call {
	if listener == 0 {
		return call{encoded: trackOff, answered: func(any, redis.Error) { c.tracking.granted = false }}
	}
	on := begin(7, "CLIENT", "TRACKING", "ON", "REDIRECT").number(listener).text("OPTIN").text("NOLOOP")
	return call{encoded: &encoded{packet: on}, answered: c.tracked}
}

// tracked takes the answer to CLIENT TRACKING ON. The server does not remember what was asked
// before it, so all who watch are given a hint.
func (c *conn) tracked(_ any, failure redis.Error) {
	c.tracking.granted = failure == ""
	switch {
	case failure == "":
		c.node.hints.giveAll()
	case strings.Contains(string(failure), "does not exist"):
		// The listener has just ended, and its successor will be named.
	default:
		c.node.refuseHints()
	}
}

// cached takes the answer to CLIENT CACHING. Without tracking the command fails, and means nothing.
func (c *conn) cached(_ any, failure redis.Error) {
	if failure != "" && c.tracking.granted {
		c.node.refuseHints()
	}
}

// watches reports whether the server is to hint at the next change of what the call reads.
func (k call) watches() bool {
	r := k.request
	if len(k.encoded.each) > 0 {
		r = k.encoded.each[0].request
	}
	return r != nil && (r.Op == protocol.OpWatch || r.Watch)
}

// readEach makes the command by which the server remembers the keys of a merged call, of which it is
// to tell the next change. It is not left to the script: up to Redis 7.0 each reading in a script has
// the server remember all of the script's keys, so that a hundred keys cost as much as ten thousand.
func (c *conn) readEach(each []call) call {
	keys := make([]string, len(each)) // the group is used again before the answer comes
	p := c.merger.packets.array(1 + len(each)).text("EXISTS")
	for i := range each {
		keys[i] = each[i].request.Key
		p = p.text(keys[i])
	}
	return call{encoded: &encoded{packet: c.merger.added(p)}, answered: func(answer any, failure redis.Error) {
		if failure != "" { // not permitted: each extension has its key remembered by itself
			c.merges.Store(false)
		}
		if answer != int64(len(keys)) { // a key went before it was remembered: the server does not tell
			for _, key := range keys {
				c.node.hints.give(key)
			}
		}
	}}
}
