package pool

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/pool/internal/wire"
	"github.com/redquorum/redquorum/redlock"
)

// A hostile is a server that answers correctly until it gets the command at, or a command that
// contains the part of at after a space. It answers that command with the stream, and sends nothing
// after it.
type hostile struct {
	net.Listener
	at      string
	stream  func(io.Writer) error
	once    bool          // the server accepts no other client
	hangsUp bool          // after the stream; otherwise it waits for the client to hang up
	left    chan struct{} // a client that got the stream has hung up

	ids    atomic.Int64 // numbers of connections
	ended  sync.WaitGroup
	mu     sync.Mutex
	served []net.Conn
}

func newHostile(t testing.TB, at string, stream func(io.Writer) error) *hostile {
	return startHostile(t, &hostile{at: at, stream: stream})
}

func startHostile(t testing.TB, h *hostile) *hostile {
	dir, err := os.MkdirTemp("", "hostile") // the names of TempDir are too long for a socket
	require.NoError(t, err)
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	require.NoError(t, err)
	h.Listener, h.left = l, make(chan struct{}, 1000)
	h.ended.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			h.mu.Lock()
			h.served = append(h.served, c)
			h.mu.Unlock()
			h.ended.Go(func() { h.serve(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		h.mu.Lock()
		for _, c := range h.served {
			c.Close()
		}
		h.mu.Unlock()
		h.ended.Wait()
		os.RemoveAll(dir)
	})
	return h
}

func (h *hostile) url() string { return "unix://:word@" + h.Addr().String() }

func (h *hostile) serve(c net.Conn) {
	defer c.Close()
	commands := redis.NewConn(c, 0, 0) // a command has the format of a reply, so redigo can read it
	for {
		words, err := redis.Strings(commands.Receive())
		if err != nil {
			return
		}
		command := strings.Join(words, " ")
		switch {
		case strings.HasPrefix(command, h.at) || h.at[0] == ' ' && strings.Contains(command, h.at):
			if h.once {
				h.Close()
			}
			if h.stream(c) == nil && !h.hangsUp {
				io.Copy(io.Discard, c)
			}
			h.left <- struct{}{}
			return
		case h.at == "CLIENT KILL" && words[0] == "SET":
			return // the client then connects again
		}
		if _, err := io.WriteString(c, h.answer(command)); err != nil {
			return
		}
	}
}

func (h *hostile) answer(command string) string {
	switch name, _, _ := strings.Cut(command, " "); {
	case command == "CLIENT ID":
		return fmt.Sprintf(":%d\r\n", h.ids.Add(1))
	case name == "INFO":
		return fmt.Sprintf("$%d\r\nrun_id:%s\r\n", len("run_id:")+len(h.run()), h.run())
	case command == "GET "+primaryKey:
		return "$-1\r\n"
	case name == "ROLE":
		return "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n"
	case name == "EVALSHA" || name == "EVAL":
		return ":1\r\n"
	case name == "SUBSCRIBE":
		return "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"
	}
	return "+OK\r\n"
}

// run returns a unique text that replaces a run_id.
func (h *hostile) run() string { return h.Addr().String() }

// gone waits until a client that got the stream has hung up.
func (h *hostile) gone(t *testing.T) {
	t.Helper()
	select {
	case <-h.left:
	case <-time.After(testTimeout):
		require.FailNow(t, "the client reads on")
	}
}

func text(s string) func(io.Writer) error {
	b := []byte(s) // converted once, because the tests measure allocations
	return func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	}
}

// endless writes begin, and then repeats rest until the client hangs up.
func endless(begin, rest string) func(io.Writer) error {
	chunk := bytes.Repeat([]byte(rest), 1+(1<<16)/len(rest))
	return func(w io.Writer) error {
		_, err := io.WriteString(w, begin)
		for err == nil {
			_, err = w.Write(chunk)
		}
		return err
	}
}

// maxString is the longest allowed string of a server.
const maxString = 1 << 20

// hostileStreams are streams that no client may read to the end; package wire tests the limits.
// Without the limits most of these would end the test process.
var hostileStreams = map[string]func(io.Writer) error{
	"a string that makes make panic": text("$9223372036854775807\r\n"),
	"an array of 16 GB":              text("*1000000000\r\n"),
	"an endless error":               endless("-ERR ", "x "),
	"endless nesting":                endless("", "*1\r\n"),
	"an array of strings":            endless("*65536\r\n", "$1000000\r\n"+strings.Repeat("x", 1_000_000)+"\r\n"),
}

// onlyBounds returns options that let only the limits end a connection.
func onlyBounds() []Option { return []Option{StallTimeout(time.Hour), DialTimeout(time.Hour)} }

func TestServerThatSendsTooMuchLosesItsConnection(t *testing.T) {
	t.Parallel()
	fails := func(t *testing.T, h *hostile) {
		assert.ErrorIs(t, trouble(t, openNode(t, h.url(), onlyBounds()...), acquire("k", "v")), ErrReplyTooLarge)
	}
	for name, stream := range hostileStreams {
		for at, meet := range map[string]func(t *testing.T, h *hostile){
			"AUTH": fails, "CLIENT SETNAME": fails, "INFO": fails, "ROLE": fails,
			"CLIENT KILL": func(t *testing.T, h *hostile) {
				n := openNode(t, h.url(), onlyBounds()...)
				assert.Equal(t, protocol.Unknown, do(t, n, acquire("k", "v")).Outcome)
			},
			"SET": func(t *testing.T, h *hostile) {
				reply := do(t, openNode(t, h.url(), onlyBounds()...), acquire("k", "v"))
				assert.Equal(t, protocol.Unknown, reply.Outcome)
				assert.ErrorIs(t, reply.Err, ErrReplyTooLarge)
			},
			"SUBSCRIBE": func(t *testing.T, h *hostile) {
				n := openNode(t, h.url(), onlyBounds()...)
				wait(t, n, "k")
				assert.Equal(t, protocol.Granted, do(t, n, acquire("k", "v")).Outcome, "on the other connection")
			},
			"GET k": func(t *testing.T, h *hostile) { // of a tool
				_, dial, err := Dialer(h.url(), onlyBounds()...)
				require.NoError(t, err)
				c, err := dial(t.Context())
				require.NoError(t, err)
				defer c.Close()
				defer time.AfterFunc(testTimeout, func() { c.Close() }).Stop()
				_, err = c.Do("GET", "k")
				assert.ErrorIs(t, err, ErrReplyTooLarge)
			},
		} {
			t.Run(name+" to "+at, func(t *testing.T) {
				t.Parallel()
				h := newHostile(t, at, stream)
				meet(t, h)
				h.gone(t)
			})
		}
	}
}

// TestTooLargeReplyIsNotRequestedAgain: the next connection sends merged requests separately, so
// that one bad key does not end that connection, too.
func TestTooLargeReplyIsNotRequestedAgain(t *testing.T) {
	t.Parallel()
	requests := []protocol.Request{lookAt("k0", "v0"), lookAt("k1", "v1")}
	h := newHostile(t, " 2 k0 k1 ", text("$8002732032\r\n"))
	n := openGated(t, h.url(), onlyBounds()...)
	require.Equal(t, protocol.Granted, do(t, n, acquire("k", "v")).Outcome)
	for _, to := range submitTogether(t, n, requests...) {
		assert.ErrorIs(t, to.next(t).Err, ErrReplyTooLarge)
	}
	h.gone(t)
	eventually(t, func() bool { return h.ids.Load() == 2 && n.(*node).Connected() }, "it connects again")
	grantedTogether(t, n, requests)
	require.NoError(t, n.Close())
	assert.Empty(t, h.left)
}

// Two of five servers send too much, at various stages of a connection. The test is not parallel,
// because it measures the allocations of the process.
func TestLockOutlivesTwoHostileServers(t *testing.T) {
	for name, stream := range hostileStreams {
		for _, at := range []string{"AUTH", "SET", "SUBSCRIBE"} {
			t.Run(name+" to "+at, func(t *testing.T) {
				two := []*hostile{
					startHostile(t, &hostile{at: at, stream: stream, once: true}),
					startHostile(t, &hostile{at: at, stream: stream, once: true}),
				}
				var nodes []protocol.Node
				for i := range 3 {
					r := newRig(t)
					r.runID = fmt.Sprint("good", i)
					n := r.open()
					require.Equal(t, protocol.Granted, do(t, n, acquire("warm", "v")).Outcome)
					nodes = append(nodes, n)
				}
				runtime.GC()
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				for _, h := range two {
					n := openNode(t, h.url(), onlyBounds()...)
					wait(t, n, "k")
					nodes = append(nodes, n)
				}
				locker, err := redlock.New(nodes, redlock.MemoryGuard(false), redlock.TTL(testTTL), redlock.NodeTimeout(testTimeout))
				require.NoError(t, err)
				defer locker.Close()
				lock, err := locker.Acquire(t.Context(), "k")
				require.NoError(t, err)
				for _, h := range two {
					h.gone(t)
				}
				require.NoError(t, lock.Release(t.Context()))
				runtime.ReadMemStats(&after)
				assert.Less(t, (after.TotalAlloc-before.TotalAlloc)>>20, uint64(32), "MiB")
			})
		}
	}
}

// redigo reads a connection of the caller's dial function without limits. A reply that makes redigo
// panic must not end the process.
func TestPanicEndsOnlyTheConnectionOfADialFunction(t *testing.T) {
	t.Parallel()
	const reply = "$9223372036854775807\r\n"
	open := func(at, says string) (protocol.Node, *hostile) {
		h := newHostile(t, at, text(says))
		n, err := FromDial("dial", func(context.Context) (redis.Conn, error) {
			return redis.Dial("unix", h.Addr().String())
		}, onlyBounds()...)
		require.NoError(t, err)
		t.Cleanup(func() { n.Close() })
		return n, h
	}
	n, _ := open("ROLE", reply) // in the handshake
	assert.ErrorIs(t, trouble(t, n, acquire("k", "v")), wire.ErrUnexpected)
	n, _ = open("SET", "*9223372036854775807\r\n")
	got := do(t, n, acquire("k", "v"))
	assert.Equal(t, protocol.Unknown, got.Outcome)
	assert.ErrorIs(t, got.Err, wire.ErrUnexpected)
	n, h := open("SUBSCRIBE", "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"+reply)
	wait(t, n, "k")
	h.gone(t)
	assert.Equal(t, protocol.Granted, do(t, n, acquire("k", "v")).Outcome, "on the other connection")
}

// FuzzNode makes a server answer one command with arbitrary bytes, and hang up.
func FuzzNode(f *testing.F) {
	stages := []string{
		"AUTH", "CLIENT SETNAME", "CLIENT ID", "INFO", "ROLE", "SCRIPT", "CLIENT KILL", "SET", "EVALSHA", "SUBSCRIBE",
	}
	for stage := range stages {
		for _, stream := range []string{
			"$9223372036854775807\r\n", "$8002732032\r\n", "*9223372036854775807\r\n", "*1000000000\r\n", "-" + strings.Repeat("x", 1<<14),
			"", "+OK\r\n-ERR no\r\n:-42\r\n", "$-1\r\n*-1\r\n", "*2\r\n:1\r\n$1\r\nx\r\n", "+OK\r\n$10\r\nabc", "+OK\r\n%1\r\n",
			"*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n*1\r\n$1\r\nk\r\n",
		} {
			f.Add(uint8(stage), []byte(stream))
		}
	}
	f.Fuzz(func(t *testing.T, stage uint8, stream []byte) {
		at := stages[int(stage)%len(stages)]
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		h := startHostile(t, &hostile{at: at, stream: text(string(stream)), hangsUp: true})
		n := openNode(t, h.url(), onlyBounds()...)
		if at == "SUBSCRIBE" {
			wait(t, n, "k")
			h.gone(t)
		}
		if reply := try(t, n, acquire("k", "v")); at == "SET" {
			assert.Equal(t, bytes.HasPrefix(stream, []byte("+OK\r\n")), reply.Outcome == protocol.Granted)
		}
		try(t, n, release("k", "v"))
		require.NoError(t, n.Close())
		runtime.ReadMemStats(&after)
		assert.Less(t, (after.TotalAlloc-before.TotalAlloc)>>20, uint64(32), "MiB")
	})
}

// TestLongValueCostsNoConnection: an Inspect, a look at a lock and a look at the record can find
// values of other clients, of any length.
func TestLongValueCostsNoConnection(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	n := openGated(t, s.url())
	do(t, n, acquire("k0", "v0"))
	connection := s.client("redlock")["id"]
	looks := []protocol.Request{lookAt("k0", "v0")}
	for i := 1; i < 6; i++ {
		key, value := keyAndValue(i)
		s.do("SET", key, strings.Repeat("x", 2*maxString), "PX", 90_000)
		looks = append(looks, lookAt(key, value))
	}
	for i, to := range submitTogether(t, n, looks...) {
		assert.Equal(t, i == 0, to.next(t).Outcome == protocol.Granted)
	}
	for _, ask := range []protocol.Request{
		{Op: protocol.OpInspect, Key: "k1"}, {Op: protocol.OpAdmit, Key: "k1", Admit: &protocol.Admission{}},
	} {
		assert.ErrorContains(t, trouble(t, n, ask), "2097152 bytes")
	}
	s.do("SET", "fits", strings.Repeat("x", 1<<16))
	assert.Len(t, do(t, n, protocol.Request{Op: protocol.OpInspect, Key: "fits"}).Value, 1<<16)
	assert.Equal(t, connection, s.client("redlock")["id"])
}

// TestLongNameOfAPrimaryIsCut: any client that may write to the server can write this key, which
// has no prefix.
func TestLongNameOfAPrimaryIsCut(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	s.do("SET", primaryKey, strings.Repeat("x", 2*maxString))
	err := trouble(t, openNode(t, s.url()), acquire("k", "v"))
	assert.ErrorIs(t, err, ErrReplyTooLarge)
	assert.ErrorContains(t, err, "(to GET "+primaryKey+")")
}

// TestLongServerTextIsCut, even in errors about a password or a primary.
func TestLongServerTextIsCut(t *testing.T) {
	t.Parallel()
	h := startHostile(t, &hostile{at: "AUTH", stream: text("-" + strings.Repeat("x", 1<<13) + "\r\n"), hangsUp: true})
	err := trouble(t, openNode(t, h.url()), acquire("k", "v"))
	assert.ErrorIs(t, err, ErrAuth)
	assert.Less(t, len(err.Error()), 300)
	r := newRig(t)
	r.role = []any{"slave", strings.Repeat("x", 1_000_000), 1}
	err = trouble(t, r.open(), acquire("k", "v"))
	assert.ErrorIs(t, err, ErrReplica)
	assert.Less(t, len(err.Error()), 300)
}
