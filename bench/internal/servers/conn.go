package servers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

// askTimeout bounds one question: a node that hangs must not hold up the others.
const askTimeout = time.Second

// A meter counts what the server sees of us. Commands are counted when they are sent.
type meter struct {
	commands map[string]int64
	in, out  int64 // bytes, as the server calls them: requests are in
}

func newMeter() *meter { return &meter{commands: map[string]int64{}} }

// A conn is a connection to one server. It is not safe for concurrent use, but for
// Close.
type conn struct {
	redis.Conn
	raw   net.Conn
	meter *meter
}

func newConn(raw net.Conn, m *meter) *conn {
	return &conn{Conn: redis.NewConn(&metered{raw, m}, 0, askTimeout), raw: raw, meter: m}
}

// dial connects and logs in. It is not redigo's DialURL, since that knows no unix
// sockets and lets a TLS handshake outlive the context.
func dial(ctx context.Context, t target, m *meter) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var raw net.Conn
	var err error
	switch t.scheme {
	case "rediss":
		raw, err = new(tls.Dialer).DialContext(ctx, "tcp", t.address)
	case "unix":
		raw, err = new(net.Dialer).DialContext(ctx, "unix", t.address)
	default:
		raw, err = new(net.Dialer).DialContext(ctx, "tcp", t.address)
	}
	if err != nil {
		return nil, err
	}
	c := newConn(raw, m)
	if err := c.login(ctx, t); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *conn) login(ctx context.Context, t target) error {
	if t.password != "" {
		args := []any{t.password}
		if t.user != "" {
			args = []any{t.user, t.password}
		}
		if _, err := c.ask(ctx, "AUTH", args...); err != nil {
			return withoutArguments(err)
		}
	}
	if t.database != "" {
		if _, err := c.ask(ctx, "SELECT", t.database); err != nil {
			return fmt.Errorf("select the database of the URL: %w", err)
		}
	}
	return nil
}

// withoutArguments hides all but the code of an answer to AUTH: a server that does
// not know the command repeats the password.
func withoutArguments(err error) error {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return err
	}
	code, _, _ := strings.Cut(string(reply), " ")
	return fmt.Errorf("it does not accept the user or password (%s)", code)
}

// ask sends one command and waits for its answer until ctx ends, a second at most.
// After that the connection is of no more use.
func (c *conn) ask(ctx context.Context, command string, args ...any) (any, error) {
	// Closing, since redigo sets deadlines of its own.
	defer context.AfterFunc(ctx, func() { c.raw.Close() })()
	c.meter.commands[strings.ToLower(command)]++
	reply, err := redis.DoWithTimeout(c.Conn, askTimeout, command, args...)
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return reply, err
}

// metered counts bytes as the server does: above TLS.
type metered struct {
	net.Conn
	meter *meter
}

func (c *metered) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.meter.out += int64(n)
	return n, err
}

func (c *metered) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.meter.in += int64(n)
	return n, err
}
