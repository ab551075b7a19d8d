package fleet_test

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/fleet"
)

const (
	// silence is the time after which a silent node counts as hanging.
	silence = 150 * time.Millisecond
	// longEnough limits the waits for events; only failing tests use all of it.
	longEnough = 30 * time.Second
	tick       = 10 * time.Millisecond
)

func TestMain(m *testing.M) {
	if kind := os.Getenv(parentEnv); kind != "" {
		parent(fleet.Kind(kind))
		return
	}
	goleak.VerifyTestMain(m)
}

// addr is the host and port of a node that a fleet started.
func addr(f fleet.Fleet, i int) string {
	return strings.TrimPrefix(f.URLs()[i], "redis://")
}

// connect returns a connection to node i on which a missing answer becomes an error after a while.
func connect(t *testing.T, f fleet.Fleet, i int) *conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr(f, i), longEnough)
	require.NoError(t, err, "connect to node %d", i)
	t.Cleanup(func() { c.Close() })
	return &conn{t: t, raw: c, Conn: redis.NewConn(c, longEnough, longEnough)}
}

type conn struct {
	redis.Conn
	t   *testing.T
	raw net.Conn
}

func (c *conn) do(cmd string, args ...any) any {
	c.t.Helper()
	reply, err := c.Do(cmd, args...)
	require.NoError(c.t, err, "%s %v", cmd, args)
	return reply
}

func (c *conn) str(cmd string, args ...any) string {
	c.t.Helper()
	s, err := redis.String(c.do(cmd, args...), nil)
	require.NoError(c.t, err, "%s %v", cmd, args)
	return s
}

// send queues a command without waiting for its answer.
func (c *conn) send(cmd string, args ...any) {
	c.t.Helper()
	require.NoError(c.t, c.Send(cmd, args...))
	require.NoError(c.t, c.Flush())
}

// silent fails the test if anything arrives, or the connection breaks, in a while.
func (c *conn) silent(why string) {
	c.t.Helper()
	require.NoError(c.t, c.raw.SetReadDeadline(time.Now().Add(silence)))
	n, err := c.raw.Read(make([]byte, 1))
	require.NoError(c.t, c.raw.SetReadDeadline(time.Time{}))
	var timeout net.Error
	require.ErrorAs(c.t, err, &timeout, "%s: got %d bytes and %v", why, n, err)
	require.True(c.t, timeout.Timeout(), "%s: the connection broke: %v", why, err)
}

// broken fails the test unless the other side ends the connection without sending anything.
func (c *conn) broken(why string) {
	c.t.Helper()
	require.NoError(c.t, c.raw.SetReadDeadline(time.Now().Add(longEnough)))
	rest, err := io.ReadAll(c.raw)
	require.Empty(c.t, rest, why)
	var timeout net.Error
	require.False(c.t, errors.As(err, &timeout) && timeout.Timeout(), "%s: the connection is still open", why)
}

// runID returns the run_id in INFO, which shows a client that a server was restarted.
func (c *conn) runID() string { return c.info("run_id") }

func (c *conn) info(field string) string {
	c.t.Helper()
	for line := range strings.Lines(c.str("INFO", "server")) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	require.Fail(c.t, "INFO server has no "+field)
	return ""
}
