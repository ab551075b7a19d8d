package pool

import (
	"slices"
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/redlock"
)

// Hints are Redis's client-side caching put to another use
// (https://redis.io/docs/latest/develop/reference/client-side-caching/). The
// server remembers a key that was read after CLIENT CACHING YES, and tells its
// next change, of whatever kind, once: to another connection, since this one
// speaks RESP2 (see listener.go). So a release need not publish anything, and a
// deletion by hand or an expiry is told as well.
//
// NOLOOP: what this connection changes is not told to it. It uses up what was
// remembered, too.

// A redirect is the connection that hints are sent to. A number is only good
// for the process that gave it.
type redirect struct {
	client int64 // zero: none
	run    string
}

// setRedirect has the connection that there is, and those to come, send hints
// to r.
func (n *node) setRedirect(r redirect) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.redirect = r
	n.rouse()
}

// tracking is what a connection has been told, and has answered.
type tracking struct {
	told    int64 // the client that was named last; the writer's
	granted bool  // the answer to that; the reader's
}

// toTell returns the client that hints should go to. The node's mu is held.
func (c *conn) toTell() int64 {
	if r := c.node.redirect; r.run == c.server.runID {
		return r.client
	}
	return 0
}

// withTracking puts in what the batch needs so that its watches give hints.
func (c *conn) withTracking(batch []call, client int64) []call {
	tell := client != c.tracking.told
	isWatch := func(k call) bool { return k.request != nil && k.request.Op == redlock.OpWatch }
	if !tell && !slices.ContainsFunc(batch, isWatch) {
		return batch
	}
	with := make([]call, 0, 2*len(batch)+1)
	if tell {
		c.tracking.told = client
		with = append(with, c.tell(client))
	}
	for _, k := range batch {
		if client != 0 && isWatch(k) {
			with = append(with, call{encoded: cacheNext, to: aside(c.cached)}) // holds for one command
		}
		with = append(with, k)
	}
	return with
}

var (
	trackOff  = &encoded{packet: begin(3, "CLIENT", "TRACKING", "OFF")}
	cacheNext = &encoded{packet: begin(3, "CLIENT", "CACHING", "YES")}
)

// tell turns tracking on or off.
func (c *conn) tell(client int64) call {
	if client == 0 {
		return call{encoded: trackOff, to: aside(func(any, redis.Error) { c.tracking.granted = false })}
	}
	on := begin(7, "CLIENT", "TRACKING", "ON", "REDIRECT").number(client).text("OPTIN").text("NOLOOP")
	return call{encoded: &encoded{packet: on}, to: aside(c.tracked)}
}

// tracked takes the answer to CLIENT TRACKING ON. What was asked before it was
// not remembered, so all who wait are given a hint.
func (c *conn) tracked(_ any, failure redis.Error) {
	c.tracking.granted = failure == ""
	switch {
	case failure == "":
		c.node.hints.giveAll()
	case strings.Contains(string(failure), "does not exist"):
		// The listener has just ended, and its successor will be told.
	default:
		c.node.refuseHints()
	}
}

// cached takes the answer to CLIENT CACHING. Without tracking it fails, and
// means nothing.
func (c *conn) cached(_ any, failure redis.Error) {
	if failure != "" && c.tracking.granted {
		c.node.refuseHints()
	}
}
