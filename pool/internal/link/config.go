package link

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/gomodule/redigo/redis"
)

// Times are how long things take at most, or how often they are done.
type Times struct {
	Dial           time.Duration // for making a connection, with its handshake
	Stall          time.Duration // for which a server may answer nothing
	Reauthenticate time.Duration // how often a connection is authenticated again; zero: never
	Linger         time.Duration // for which a listener outlives the last watcher
	Ping           time.Duration // how often a listener looks whether its server is still there
	Idle           time.Duration // after which a connection does so that carries no requests
	AskAgain       time.Duration // after which a server that gave no hints is asked for them again
}

// A Config is how a Link reaches its server, and what it tells about that. Its functions are called by
// the Link's goroutines, each by one at a time but for Doubt.
type Config struct {
	Times

	// Reach connects to the server that has the node's vote.
	Reach func(context.Context) Greeting

	// Doubt takes what is to be logged of the server. It does not wait.
	Doubt func(doubts ...string)
}

// A Greeting is a new connection, or why there is none.
type Greeting struct {
	Conn   redis.Conn
	Server Server
	Hint   Dial // makes a second connection to the server, for hints
	Doubts []string
	Err    error
}

// A Dial makes a connection that is ready for the handshake. The context bounds all of it.
type Dial func(context.Context) (redis.Conn, error)

// The waits between attempts to connect: see backoffAfter.
const (
	firstBackoff = 10 * time.Millisecond
	maxBackoff   = time.Second
)

// A connection is what is known of one that has ended. The zero value is one that was not made.
type connection struct {
	lasted time.Duration
	worked bool  // the server answered on it, after the handshake
	err    error // why it ended
}

// backoffAfter returns how long to wait before the next attempt to connect. It is a little for a
// connection that worked until it was cut, because the server is there, and twice the wait before
// for any other that did not last: one that never worked, or that the server's answers ended.
func backoffAfter(c connection, before time.Duration) time.Duration {
	switch {
	case c.lasted > maxBackoff:
		return 0
	case c.worked && IsHangUp(c.err):
		return firstBackoff
	}
	return min(max(firstBackoff, 2*before), maxBackoff)
}

// sleep waits for about d. Half of d is random, so that the clients of a server that comes back do
// not come all at once. It returns false if ctx has ended.
func sleep(ctx context.Context, d time.Duration) bool {
	if d > 0 {
		t := time.NewTimer(d/2 + rand.N(d/2+1))
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}
