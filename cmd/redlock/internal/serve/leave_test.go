package serve

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlocktest"

	"github.com/redquorum/redquorum/cmd/redlock/internal/serve/api"
)

// A line is a connection to a Server, for a test.
type line struct {
	net.Conn
	t *testing.T
}

// overSockets runs a test over a Unix socket, over TCP, and with TLS. dial makes a connection.
func overSockets(t *testing.T, test func(t *testing.T, servers *redlocktest.Servers, s *Server, dial func() line)) {
	t.Parallel()
	secure := httptest.NewTLSServer(nil) // for its certificate
	secure.Close()
	for _, kind := range []string{"unix", "tcp", "tls"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			network, address := "tcp", "127.0.0.1:0"
			if kind == "unix" {
				network, address = "unix", filepath.Join(t.TempDir(), "s")
			}
			listener, err := net.Listen(network, address)
			require.NoError(t, err)
			at := listener.Addr()
			if kind == "tls" {
				listener = tls.NewListener(listener, &tls.Config{Certificates: secure.TLS.Certificates})
			}
			servers := redlocktest.Start(t)
			s := New(patient(servers), Config{TTL: time.Hour})
			t.Cleanup(func() { endNow(s) })
			over, done := &http.Server{Handler: s, ConnContext: ConnContext}, make(chan struct{})
			go func() {
				defer close(done)
				over.Serve(listener)
			}()
			t.Cleanup(func() {
				over.Close()
				<-done
			})
			test(t, servers, s, func() line {
				c, err := net.Dial(network, at.String())
				require.NoError(t, err)
				if kind == "tls" {
					c = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
				}
				t.Cleanup(func() { c.Close() })
				return line{c, t}
			})
		})
	}
}

// patient returns a client in real time, which needs long timeouts on a busy machine.
func patient(servers *redlocktest.Servers) *redlock.Locker {
	return servers.Locker(redlock.TTL(time.Hour), redlock.NodeTimeout(time.Minute))
}

// hold holds a lock until release is called, or the test ends.
func hold(t *testing.T, servers *redlocktest.Servers, name string) (release func()) {
	t.Helper()
	lock, err := patient(servers).TryAcquire(t.Context(), name)
	require.NoError(t, err)
	return func() { lock.Release(context.WithoutCancel(t.Context())) }
}

// send sends a request, with a body if it is not empty.
func (l line) send(request, body string, headers ...string) {
	head := append([]string{request + " HTTP/1.1", "Host: localhost"}, headers...)
	if body != "" {
		head = append(head, "Content-Type: application/json", fmt.Sprintf("Content-Length: %d", len(body)))
	}
	_, err := io.WriteString(l, strings.Join(head, "\r\n")+"\r\n\r\n"+body)
	require.NoError(l.t, err)
}

// requests returns the number of requests in progress in sessions.
func requests(s *Server) (n int) {
	for _, of := range s.table.all() {
		of.mu.Lock()
		n += of.requests
		of.mu.Unlock()
	}
	return n
}

func soon(t *testing.T, is func() bool, what string) {
	t.Helper()
	require.Eventually(t, is, time.Minute, time.Millisecond, what)
}

// TestDisconnectedClientHoldsNothing: its request ends at once, and neither its connection nor its
// place in the queue outlives it. Another client runs its tick.
func TestDisconnectedClientHoldsNothing(t *testing.T) {
	overSockets(t, func(t *testing.T, servers *redlocktest.Servers, s *Server, dial func() line) {
		for _, once := range []string{"", `,"apart_ms":31536000000`} {
			give := hold(t, servers, "a")
			c := dial()
			c.send("POST /v1/locks", `{"name":"a","wait_ms":3600000`+once+`}`)
			soon(t, func() bool { return requests(s) == 1 }, "it waits")
			c.Close()
			soon(t, func() bool { return requests(s) == 0 }, "its end is seen at once")
			assert.Empty(t, s.table.all())
			give()
			soon(t, func() bool { return free(t, servers, "a") }, "no attempt of it is left")
		}
		other := open(t, s, "")
		other.take(`{"name":"a","apart_ms":31536000000}`)
	})
}

// TestHalfClosedConnectionGetsNoLock: the answer asks the client to keep its side of the connection
// open.
func TestHalfClosedConnectionGetsNoLock(t *testing.T) {
	overSockets(t, func(t *testing.T, servers *redlocktest.Servers, s *Server, dial func() line) {
		defer hold(t, servers, "a")()
		c := dial()
		c.send("POST /v1/locks", `{"name":"a","wait_ms":3600000}`)
		require.NoError(t, c.Conn.(interface{ CloseWrite() error }).CloseWrite())
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(t, err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		assert.Equal(t, http.StatusBadRequest, answer.StatusCode)
		assert.Contains(t, string(text), "keep it open in both directions")
		assert.Empty(t, s.table.all())
	})
}

// TestSessionEndsWithItsConnection: it ends within its TTL if its client leaves while it waits, and
// at once if a stream is bound to it.
func TestSessionEndsWithItsConnection(t *testing.T) {
	overSockets(t, func(t *testing.T, servers *redlocktest.Servers, s *Server, dial func() line) {
		defer hold(t, servers, "a")()
		for ttl, leave := range map[string]func(c line, session string){
			"6000": func(c line, session string) {
				c.send("POST /v1/locks", `{"name":"a","wait_ms":3600000}`, session)
				soon(t, func() bool { return requests(s) == 1 }, "it waits")
			},
			"3600000": func(c line, session string) {
				c.send("GET /v1/session?bound=true", "", session, "Accept: text/event-stream")
				_, err := bufio.NewReader(c).ReadString('\n')
				require.NoError(t, err)
			},
		} {
			mine, c := open(t, s, `{"ttl_ms":`+ttl+`}`), dial()
			mine.take(`{"name":"mine"}`)
			leave(c, api.SessionHeader+": "+mine.session)
			c.Close()
			soon(t, func() bool { return s.table.held() == 0 }, "its session has ended")
			soon(t, func() bool { return free(t, servers, "mine") }, "its lock is released")
		}
	})
}

// A leaver is the connection of a client that leaves when it has a part of the answer.
type leaver struct {
	*httptest.ResponseRecorder
	hasEnough func(body []byte) bool
	leave     context.CancelFunc
}

func (w leaver) Write(part []byte) (int, error) {
	n, err := w.ResponseRecorder.Write(part)
	if w.hasEnough(w.Body.Bytes()) {
		w.leave()
	}
	return n, err
}

// TestClientWithTheWholeAnswerHasItsLock: it may close its connection as soon as it has read the
// JSON, as programs in Go do. The lock of a client that leaves earlier is free.
func TestClientWithTheWholeAnswerHasItsLock(t *testing.T) {
	served(t, Config{}, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
		for name, hasEnough := range map[string]func([]byte) bool{"whole": json.Valid, "part": func(body []byte) bool { return len(body) > 0 }} {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			r := httptest.NewRequestWithContext(ctx, "POST", "/v1/locks", strings.NewReader(`{"name":"`+name+`"}`))
			r.Header.Set("Content-Type", "application/json")
			w := leaver{httptest.NewRecorder(), hasEnough, leave}
			s.ServeHTTP(w, r)
			require.Error(t, ctx.Err())
			assert.Equal(t, name == "whole", json.Valid(w.Body.Bytes()), w.Body)
			assert.Equal(t, name == "part", free(t, servers, name), name)
		}
	})
}

// TestClientWithTheWholeAnswerHasItsSession: no client knows the id of another session, so it would
// use up a share for its TTL.
func TestClientWithTheWholeAnswerHasItsSession(t *testing.T) {
	served(t, Config{}, func(t *testing.T, _ *redlocktest.Servers, s *Server) {
		for wanted, hasEnough := range []func([]byte) bool{func(body []byte) bool { return len(body) > 0 }, json.Valid} {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			s.ServeHTTP(leaver{httptest.NewRecorder(), hasEnough, leave}, httptest.NewRequestWithContext(ctx, "POST", "/v1/sessions", nil))
			require.Error(t, ctx.Err())
			assert.Len(t, s.table.all(), wanted)
		}
	})
}
