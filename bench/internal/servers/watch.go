// Package servers asks the nodes for the costs of a trial, for the locks that it left behind, and,
// all the while, whether they answer.
//
// It talks to the servers on connections of its own. A Watch counts its own requests to each node
// and leaves them out of its reports. A node that cannot be asked is waited for a second, and its
// costs are zero.
//
// Errors name nodes by their address, never by their URL, which may hold a password.
package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/bench/internal/endpoint"
)

// A Watch asks every node. It is safe for concurrent use; questions to one node wait for each
// other.
type Watch struct{ nodes []*node }

// A node is one server, and the connection to it while there is one.
type node struct {
	number int // from 1, for messages
	server *endpoint.Endpoint

	mu   sync.Mutex
	conn *conn    // nil: not yet, or broken
	own  *traffic // over all its connections
}

// Dial connects to every node. Give it the nodes' own URLs: a relay before a node would delay the
// answers.
func Dial(ctx context.Context, urls []string) (*Watch, error) {
	w := &Watch{}
	for i, raw := range urls {
		e, err := endpoint.Parse(raw)
		if err != nil {
			return nil, fmt.Errorf("servers: node %d: %w", i+1, err)
		}
		w.nodes = append(w.nodes, &node{number: i + 1, server: e, own: newTraffic()})
	}
	err := w.each(func(_ int, n *node) error {
		return n.use(ctx, func(*conn) error { return nil })
	})
	if err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// Close ends the connections.
func (w *Watch) Close() {
	for _, n := range w.nodes {
		n.mu.Lock()
		n.drop()
		n.mu.Unlock()
	}
}

// each calls do for all nodes at once.
func (w *Watch) each(do func(i int, n *node) error) error {
	errs := make([]error, len(w.nodes))
	var all sync.WaitGroup
	for i, n := range w.nodes {
		all.Go(func() {
			if err := do(i, n); err != nil {
				errs[i] = fmt.Errorf("servers: node %d (%s): %w", n.number, n.server.Address, err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// use has the node's connection to itself, dialled anew if it was broken.
func (n *node) use(ctx context.Context, do func(*conn) error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.conn != nil {
		err := do(n.conn)
		stale := n.conn.Err() != nil && ctx.Err() == nil && !timedOut(err)
		n.dropBroken()
		if !stale {
			return err
		}
		// It was broken before, by a restart say, which only a use shows.
	}
	c, err := dial(ctx, n.server, n.own)
	if err != nil {
		return err
	}
	n.conn = c
	err = do(c)
	n.dropBroken()
	return err
}

func (n *node) dropBroken() {
	if n.conn.Err() != nil {
		n.drop()
	}
}

func (n *node) drop() {
	if n.conn != nil {
		n.conn.Close()
		n.conn = nil
	}
}

func (n *node) ask(ctx context.Context, command string, args ...any) (reply any, err error) {
	err = n.use(ctx, func(c *conn) error {
		reply, err = c.ask(ctx, command, args...)
		return err
	})
	return reply, err
}

func timedOut(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// askTimeout bounds one question: a node that hangs must not hold up the others.
const askTimeout = time.Second

// traffic is the part of a server's counters that is due to us. Commands are counted when they are
// sent.
type traffic struct {
	commands map[string]int64
	in, out  int64 // bytes, as the server calls them: requests are in
}

func newTraffic() *traffic { return &traffic{commands: map[string]int64{}} }

// A conn is a connection to one server. It is not safe for concurrent use, but for Close.
type conn struct {
	redis.Conn
	raw net.Conn
	own *traffic
}

func newConn(raw net.Conn, own *traffic) *conn {
	return &conn{Conn: redis.NewConn(&counted{raw, own}, 0, askTimeout), raw: raw, own: own}
}

// dial connects and logs in. It is not redigo's DialURL, since that knows no unix sockets and lets
// a TLS handshake outlive the context.
func dial(ctx context.Context, e *endpoint.Endpoint, own *traffic) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	raw, err := e.Dial(ctx)
	if err != nil {
		return nil, err
	}
	c := newConn(raw, own)
	if err := c.login(ctx, e); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *conn) login(ctx context.Context, e *endpoint.Endpoint) error {
	if e.Password != "" {
		args := []any{e.Password}
		if e.User != "" {
			args = []any{e.User, e.Password}
		}
		if _, err := c.ask(ctx, "AUTH", args...); err != nil {
			return withoutArguments(err)
		}
	}
	if e.Database != 0 {
		if _, err := c.ask(ctx, "SELECT", e.Database); err != nil {
			return fmt.Errorf("select the database of the URL: %w", err)
		}
	}
	return nil
}

// withoutArguments hides all but the code of an answer to AUTH: a server that does not know the
// command repeats the password.
func withoutArguments(err error) error {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return err
	}
	code, _, _ := strings.Cut(string(reply), " ")
	return fmt.Errorf("it does not accept the user or password (%s)", code)
}

// ask sends one command and waits for its answer until ctx ends, a second at most. After that the
// connection is of no more use.
func (c *conn) ask(ctx context.Context, command string, args ...any) (any, error) {
	// The connection is closed, because redigo sets deadlines of its own.
	defer context.AfterFunc(ctx, func() { c.raw.Close() })()
	c.own.commands[strings.ToLower(command)]++
	reply, err := redis.DoWithTimeout(c.Conn, askTimeout, command, args...)
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return reply, err
}

// counted counts bytes as the server does: above TLS.
type counted struct {
	net.Conn
	own *traffic
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.own.out += int64(n)
	return n, err
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.own.in += int64(n)
	return n, err
}
