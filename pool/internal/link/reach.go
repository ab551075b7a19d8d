package link

import (
	"context"
	"time"

	"github.com/gomodule/redigo/redis"
)

// Times are time limits and intervals.
type Times struct {
	Dial           time.Duration // limit for a connection and its handshake
	Stall          time.Duration // limit for the silence of a server with unanswered requests
	Reauthenticate time.Duration // interval between authentications of a connection; zero: authenticate once
	Linger         time.Duration // time that a listener outlives the last watcher
	Ping           time.Duration // interval between PINGs of a listener
	Idle           time.Duration // idle time after which a connection sends a PING
	AskAgain       time.Duration // delay before a server that refused hints is asked again
}

// A Config connects a Link to its server and to the log. The goroutines of the Link call each
// function one at a time, except Doubt.
type Config struct {
	Times

	// Reach connects to the server that has the node's vote.
	Reach func(context.Context) Greeting

	// Doubt logs doubts about the server. It does not wait.
	Doubt func(doubts ...string)
}

// A Greeting is a new connection, or the reason for its failure.
type Greeting struct {
	Conn   redis.Conn
	Server Server
	Hint   Dial // makes a second connection to the server, for hints
	Doubts []string
	Err    error
}

// A Dial makes a connection that is ready for the handshake. The context limits all of it.
type Dial func(context.Context) (redis.Conn, error)
