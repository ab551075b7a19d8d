package pool

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
)

// invalidations is the channel on which a server tells which keys have changed
// to a connection that speaks RESP2.
const invalidations = "__redis__:invalidate"

// A listener is a node's second connection, on which hints come. Only messages
// are read from it, so that one that hangs holds up nothing but hints.
type listener struct {
	node  *node
	redis redis.Conn
	began time.Time
	heard atomic.Int64 // messages and answers so far

	once   sync.Once
	broken chan struct{} // closed by fail
}

// errNoHints: the server does not let us listen.
var errNoHints = errors.New("gives no hints")

// listen keeps a listener until nobody wants one.
func (n *node) listen() {
	backoff := time.Duration(0)
	for n.sleep(backoff) && n.hints.goOn() {
		l, to, err := n.openListener()
		backoff = min(max(firstBackoff, 2*backoff), maxBackoff)
		switch {
		case errors.Is(err, errNoHints):
			n.refuseHints()
		case err == nil:
			l.serve(to)
			if time.Since(l.began) > maxBackoff {
				backoff = 0
			}
		}
	}
}

// openListener makes a listener, and tells where hints must be sent to reach it.
func (n *node) openListener() (*listener, redirect, error) {
	ctx, cancel := context.WithTimeout(n.ctx, n.settings.dialTimeout)
	defer cancel()
	c, err := n.dialSecond(ctx)
	if err != nil {
		return nil, redirect{}, err
	}
	var to redirect
	subscribed := false
	err = ask(ctx, c, []question{
		{name: "CLIENT", args: []any{"SETNAME", "redlock-hints"}},
		{name: "CLIENT", args: []any{"ID"}, answer: func(v any) { to.client, _ = v.(int64) }},
		{name: "INFO", args: []any{"server"}, answer: func(v any) { to.run = infoField(v, "run_id") }},
		{name: "SUBSCRIBE", args: []any{invalidations}, answer: func(any) { subscribed = true }},
	})
	if err == nil && (to.client == 0 || !subscribed) {
		err = errNoHints
	}
	if err != nil {
		c.Close()
		return nil, redirect{}, err
	}
	return &listener{node: n, redis: c, began: time.Now(), broken: make(chan struct{})}, to, nil
}

// serve reads hints until the listener fails.
func (l *listener) serve(to redirect) {
	n := l.node
	defer context.AfterFunc(n.ctx, l.fail)()
	if !n.hints.use(l) {
		l.fail()
	}
	pinging := make(chan struct{})
	go func() {
		defer close(pinging)
		l.ping()
	}()
	n.setRedirect(to)
	l.read()
	<-pinging
	n.setRedirect(redirect{})
	n.hints.use(nil)
}

// fail ends the listener, also where it hangs. It may be called again.
func (l *listener) fail() {
	l.once.Do(func() {
		close(l.broken)
		l.redis.Close()
	})
}

func (l *listener) read() {
	defer l.fail()
	for {
		v, err := receive(l.redis)
		if _, isReply := err.(redis.Error); err != nil && !isReply { // to a PING that is not permitted: an answer all the same
			return
		}
		l.heard.Add(1)
		l.tell(v)
	}
}

// tell gives the hints that a message is about.
func (l *listener) tell(message any) {
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

// ping makes sure that the server is still there: silence is what a listener
// hears most of the time.
func (l *listener) ping() {
	for l.pass(l.node.settings.ping) {
		before := l.heard.Load()
		if l.redis.Send("PING") != nil || l.redis.Flush() != nil {
			l.fail()
			return
		}
		if l.pass(l.node.settings.stall) && l.heard.Load() == before {
			l.fail()
		}
	}
}

// pass waits for d. False: the listener has failed.
func (l *listener) pass(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-l.broken:
		return false
	}
}
