package pool

import (
	"context"
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"
)

// Credentials end, and some servers then end the connections that began with them, with the requests
// that are on their way. So a connection is authenticated again while it is open: AUTH is a command of
// the connection's own, before the requests of a batch, and its answer is taken in the order of all.
//
// A listener speaks RESP2 and subscribes, and from such a client a server takes no AUTH. It ends after
// the same time, and its successor, which asks for credentials as every new connection does, has those
// who watch look again (see tracked). To unsubscribe, authenticate and subscribe in its place would need
// one more right, and lose hints as well.

// asksForAuth returns the function that asks for what follows AUTH; nil: the connection is authenticated
// once.
func asksForAuth(c redis.Conn) func(context.Context) ([]string, error) {
	if own, ok := c.(*ownConn); ok {
		return own.auth
	}
	return nil
}

// reauthenticate has AUTH sent each time that the period of Reauthenticate has passed, until the
// connection breaks.
func (c *conn) reauthenticate(ask func(context.Context) ([]string, error)) {
	t := time.NewTicker(c.node.settings.reauthenticate)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			c.queueAuth(ask)
		case <-c.broken:
			return
		}
	}
}

// queueAuth asks for the credentials of this moment and has them sent. Without an answer the connection
// goes on with those that it has, which should be good until the next time.
func (c *conn) queueAuth(ask func(context.Context) ([]string, error)) {
	n := c.node
	ctx, cancel := context.WithTimeout(n.ctx, n.settings.dialTimeout)
	defer cancel()
	words, err := ask(ctx)
	if err != nil && n.ctx.Err() == nil {
		n.doubts.enter(fmt.Sprintf("it cannot be authenticated again: %v", err))
	}
	if len(words) == 0 {
		return
	}
	p := begin(1+len(words), "AUTH")
	for _, w := range words {
		p = p.text(w)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	c.auth = &encoded{packet: p}
	n.wakeWriter()
}

// authenticated takes the answer to AUTH. After a refusal the connection is what it was for the server,
// too, and better than none: credentials may be new to this process before they are to the server.
func (c *conn) authenticated(_ any, failure redis.Error) {
	if failure != "" {
		c.node.doubts.enter(fmt.Sprintf("it cannot be authenticated again: %.100s", code(string(failure)))) // the rest may repeat the password
	}
}
