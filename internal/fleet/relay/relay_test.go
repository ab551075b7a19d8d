package relay_test

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/fleet/relay"
)

const (
	// silence is the time after which a stream without bytes counts as silent.
	silence = 100 * time.Millisecond
	// failAfter limits all waits. Only failing tests use all of it.
	failAfter = 30 * time.Second
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// An echo answers with the bytes that it gets, and records them.
type echo struct {
	net.Listener
	got chan string
}

// rig is a server behind a relay, and a client's connection to it.
func rig(t *testing.T) (*relay.Relay, *echo, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	e := &echo{l, make(chan string, 100)}
	var serving sync.WaitGroup
	serving.Go(func() { e.serve(&serving) })
	r, err := relay.New(l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() {
		r.Close()
		r.Close()
		l.Close()
		serving.Wait()
	})
	return r, e, connect(t, r)
}

func (e *echo) serve(serving *sync.WaitGroup) {
	for {
		c, err := e.Accept()
		if err != nil {
			return
		}
		serving.Go(func() {
			defer c.Close()
			buf := make([]byte, 100)
			for {
				n, err := c.Read(buf)
				if err != nil {
					return
				}
				e.got <- string(buf[:n])
				c.Write(buf[:n])
			}
		})
	}
}

func connect(t *testing.T, r *relay.Relay) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(r.URL(), "redis://"))
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func send(t *testing.T, c net.Conn, text string) {
	t.Helper()
	_, err := c.Write([]byte(text))
	require.NoError(t, err)
}

func receive(t *testing.T, c net.Conn, want string) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(failAfter)))
	buf := make([]byte, len(want))
	_, err := io.ReadFull(c, buf)
	require.NoError(t, err)
	require.Equal(t, want, string(buf))
}

func (e *echo) expect(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-e.got:
		require.Equal(t, want, got)
	case <-time.After(failAfter):
		t.Fatalf("the server does not get %q", want)
	}
}

func (e *echo) silent(t *testing.T) {
	t.Helper()
	select {
	case got := <-e.got:
		t.Fatalf("the server gets %q", got)
	case <-time.After(silence):
	}
}

// struck waits until faults have struck n pieces. A relay reads them whenever the machine lets it.
func struck(t *testing.T, r *relay.Relay, n int64) {
	t.Helper()
	require.Eventually(t, func() bool { return r.Struck() == n }, failAfter, time.Millisecond)
}

func silent(t *testing.T, c net.Conn) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(silence)))
	n, err := c.Read(make([]byte, 10))
	require.Zero(t, n)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

// broken waits until the connection is broken.
func broken(t *testing.T, c net.Conn) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(failAfter)))
	_, err := c.Read(make([]byte, 10))
	require.Error(t, err)
	require.False(t, errors.Is(err, os.ErrDeadlineExceeded), "still there")
}

func TestBytesPass(t *testing.T) {
	t.Parallel()
	r, e, c := rig(t)
	send(t, c, "one")
	e.expect(t, "one")
	receive(t, c, "one")
	assert.Zero(t, r.Struck())
	require.NoError(t, c.Close())
}

func TestLostRequestsDoNotArriveAndLostRepliesWereMade(t *testing.T) {
	t.Parallel()
	r, e, c := rig(t)
	r.Break(relay.Requests, relay.Fault{Mode: relay.Drop})
	send(t, c, "lost")
	struck(t, r, 1)
	e.silent(t)
	r.Heal()
	broken(t, c)
	e.silent(t)

	c = connect(t, r)
	r.Break(relay.Replies, relay.Fault{Mode: relay.Drop})
	send(t, c, "run")
	e.expect(t, "run")
	struck(t, r, 2)
	silent(t, c)
	r.Heal()
	broken(t, c)
}

// A stream has no gaps: bytes after lost bytes are lost too.
func TestNothingFollowsLostBytes(t *testing.T) {
	t.Parallel()
	r, e, c := rig(t)
	r.Break(relay.Requests, relay.Fault{Mode: relay.Drop})
	send(t, c, "lost")
	struck(t, r, 1)
	r.Break(relay.Requests, relay.Fault{Mode: relay.Pass}) // not healed
	send(t, c, "after")
	e.silent(t)
	c = connect(t, r)
	send(t, c, "new")
	e.expect(t, "new")
}

func TestHeldRequestsArriveAfterTheirSenderLeft(t *testing.T) {
	t.Parallel()
	r, e, c := rig(t)
	r.Break(relay.Requests, relay.Fault{Mode: relay.Hold})
	send(t, c, "late")
	struck(t, r, 1)
	e.silent(t)
	require.NoError(t, c.Close())
	e.silent(t)
	r.Heal()
	e.expect(t, "late")
}

func TestHeldRepliesArriveInOrder(t *testing.T) {
	t.Parallel()
	r, e, c := rig(t)
	r.Break(relay.Replies, relay.Fault{Mode: relay.Hold})
	send(t, c, "one")
	e.expect(t, "one")
	silent(t, c)
	send(t, c, "two")
	e.expect(t, "two")
	silent(t, c)
	r.Heal()
	receive(t, c, "onetwo")
}

func TestDelayedBytesAreLateAndDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	// A busy machine may need the whole delay. The test then tries again with a longer one.
	for delay := 300 * time.Millisecond; ; delay *= 2 {
		r, e, c := rig(t)
		r.Break(relay.Replies, relay.Fault{Mode: relay.Delay, By: delay})
		began := time.Now()
		for range 5 {
			send(t, c, "x")
			e.expect(t, "x")
		}
		requests := time.Since(began)
		receive(t, c, "xxxxx")
		replies := time.Since(began)
		require.GreaterOrEqual(t, replies, delay)
		if requests < delay && replies < 3*delay {
			return
		}
		require.Less(t, delay, failAfter/4, "%v for requests, which are not delayed, and %v for replies", requests, replies)
	}
}

// TestLateBytesAreHeldOnceAndKeepTheirOrder: after the late bytes a connection works like before.
func TestLateBytesAreHeldOnceAndKeepTheirOrder(t *testing.T) {
	t.Parallel()
	r, e, c := rig(t)
	r.Break(relay.Requests, relay.Fault{Mode: relay.Late, By: 24 * time.Hour})
	other := connect(t, r)
	send(t, c, "late")
	struck(t, r, 1)
	e.silent(t)
	send(t, c, "behind")
	e.silent(t)
	r.Heal()
	send(t, other, "another")
	e.expect(t, "another")
	r.Reset()
	broken(t, c)

	c = connect(t, r)
	r.Break(relay.Requests, relay.Fault{Mode: relay.Late, By: 50 * time.Millisecond})
	for range 5 {
		send(t, c, "x")
		receive(t, c, "x")
	}
	assert.EqualValues(t, 2, r.Struck(), "one of each connection")
}

func TestResetBreaksOnlyOpenConnections(t *testing.T) {
	t.Parallel()
	r, e, c := rig(t)
	send(t, c, "one")
	e.expect(t, "one")
	receive(t, c, "one")
	r.Reset()
	broken(t, c)
	c = connect(t, r)
	send(t, c, "two")
	e.expect(t, "two")
	receive(t, c, "two")
}

func TestDownServerRefusesConnections(t *testing.T) {
	t.Parallel()
	r, e, c := rig(t)
	send(t, c, "first") // the server must have accepted this connection before the reset
	e.expect(t, "first")
	receive(t, c, "first")
	e.Close()
	// The reset can arrive as early as in the dial.
	if late, err := net.Dial("tcp", strings.TrimPrefix(r.URL(), "redis://")); err == nil {
		t.Cleanup(func() { late.Close() })
		broken(t, late)
	}
	send(t, c, "still")
	e.expect(t, "still")
}
