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

// Connections are those of clients to a listener, of which there is a limit. What it logs of them is told at most
// once a minute.
type connections struct {
	net.Listener
	most  int
	limit string // what most is, for the log
	log   func(string)
	open  atomic.Int64
	told  time.Time // when it was logged why clients cannot connect; of the goroutine that accepts them
}

// Accept implements net.Listener, and logs why clients cannot connect: they are not told.
func (c *connections) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		c.tell("clients cannot connect: " + err.Error())
	}
	return conn, err
}

// tell logs why clients cannot connect, at most once a minute.
func (c *connections) tell(text string) {
	if time.Since(c.told) >= time.Minute {
		c.told = time.Now()
		c.log(text)
	}
}

// server returns a server of them, which bounds what a client that is slow, or means harm, can cost.
func (c *connections) server(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ConnContext: serve.ConnContext, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 5 * time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // what is wrong with clients is theirs to see
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

const (
	mostProbes = 64 // connections to --probes

	// Descriptors that are kept from clients: for files, sockets and pipes of this process, and for each Redis
	// server, to which there is more than one connection while it fails over or the page is open.
	keptFiles  = 32
	keptServer = 4
)

// fitConnections lowers --max-connections to what the descriptors of this process have room for, and says so.
// Otherwise clients could take those of the connections to the Redis servers, and of --state.
func (s *serveCommand) fitConnections(sets []serverSet, most int) error {
	kept := keptFiles
	for _, set := range sets {
		kept += keptServer * len(set.urls)
	}
	if s.probesAt != "" {
		kept += mostProbes
	}
	switch {
	case most == 0: // not known
	case most <= kept:
		return configErrorf("this process may open %d files (ulimit -n), and needs %d for the Redis servers and itself, and one for each client: raise the limit", most, kept)
	case most-kept < s.maxConnections:
		fmt.Fprintf(s.stderr, "redlock: --max-connections is %d, not %d: this process may open %d files (ulimit -n), and keeps %d for the Redis servers and itself\n",
			most-kept, s.maxConnections, most, kept)
		s.maxConnections = most - kept
	}
	return nil
}
