package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/cmd/redlock/internal/serve"
)

// connections are the connections of clients to a listener, up to a limit. They log at most one message a minute.
type connections struct {
	net.Listener
	most  int
	limit string // name of the limit most, for the log
	log   func(string)
	open  atomic.Int64
	told  time.Time // time of the last message; used only by the accepting goroutine
}

// Accept implements net.Listener. It logs the reason clients cannot connect, because they get no
// answer.
func (c *connections) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		c.tell("clients cannot connect: " + err.Error())
	}
	return conn, err
}

// tell logs the reason clients cannot connect, at most once a minute.
func (c *connections) tell(text string) {
	if time.Since(c.told) >= time.Minute {
		c.told = time.Now()
		go c.log(text) // the reader of the log may hang, and others want to connect
	}
}

// server returns the HTTP server for the connections. It bounds the cost of slow and hostile
// clients.
func (c *connections) server(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ConnContext: serve.ConnContext, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 5 * time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // faults of clients are not logged here
		ConnState: func(conn net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				if c.open.Add(1) > int64(c.most) {
					conn.Close()
					c.tell(fmt.Sprintf("clients are refused: there are %d connections, which is %s", c.most, c.limit))
				}
			case http.StateClosed, http.StateHijacked:
				c.open.Add(-1)
			}
		},
	}
}
