package serve

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlocktest"
)

// A line is a connection to a Server, and what a test knows of that.
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
			servers, s := start(t, Config{TTL: time.Hour})
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

// send sends a request with a body, if there is one.
func (l line) send(request, body string, headers ...string) {
	head := append([]string{request + " HTTP/1.1", "Host: localhost"}, headers...)
	if body != "" {
		head = append(head, "Content-Type: application/json", fmt.Sprintf("Content-Length: %d", len(body)))
	}
	_, err := io.WriteString(l, strings.Join(head, "\r\n")+"\r\n\r\n"+body)
	require.NoError(l.t, err)
}

// sendOnly is send, behind which the client shuts down its writing side.
func (l line) sendOnly(request, body string, headers ...string) {
	l.send(request, body, headers...)
	require.NoError(l.t, l.Conn.(interface{ CloseWrite() error }).CloseWrite())
}

// answer reads all that comes, and returns the status and body of the last answer in it.
func (l line) answer() (status int, body string) {
	from := bufio.NewReader(l)
	for {
		a, err := http.ReadResponse(from, nil)
		require.NoError(l.t, err)
		text, err := io.ReadAll(a.Body)
		require.NoError(l.t, err)
		if a.StatusCode != http.StatusContinue {
			return a.StatusCode, string(text)
		}
	}
}

// requests returns how many are under way in sessions.
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

// TestAClientThatOnlyReads any more gets its lock, also when it waits for it.
func TestAClientThatOnlyReads(t *testing.T) {
	overSockets(t, func(t *testing.T, servers *redlocktest.Servers, s *Server, dial func() line) {
		for i := range 20 {
			c, name := dial(), fmt.Sprint("free", i)
			c.sendOnly("POST /v1/locks", fmt.Sprintf(`{"name":%q}`, name))
			status, body := c.answer()
			assert.Equal(t, http.StatusCreated, status, body)
			assert.False(t, free(t, servers, name))
		}
		before := requests(s)
		give := servers.Hold("a")
		c := dial()
		c.sendOnly("POST /v1/locks", `{"name":"a","wait_ms":3600000}`)
		soon(t, func() bool { return requests(s) == before+1 }, "it waits")
		give()
		status, body := c.answer()
		assert.Equal(t, http.StatusCreated, status, body)
		assert.False(t, free(t, servers, "a"))

		c = dial()
		c.sendOnly("POST /v1/locks", `{"name":"tick","every_ms":3600000}`)
		status, body = c.answer()
		assert.Equal(t, http.StatusCreated, status, body)

		c = dial()
		c.send("POST /v1/sessions", "{}")
		c.sendOnly("GET /v1/locks?name=a", "") // two requests at once
		from := bufio.NewReader(c)
		for _, want := range []int{http.StatusCreated, http.StatusOK} {
			a, err := http.ReadResponse(from, nil)
			require.NoError(t, err)
			assert.Equal(t, want, a.StatusCode)
			io.Copy(io.Discard, a.Body)
		}
	})
}

// TestALockLastsForAsLongAsAClientThatOnlyReadsIsTold, though its session ran down while it waited.
func TestALockLastsForAsLongAsAClientThatOnlyReadsIsTold(t *testing.T) {
	served(t, Config{TTL: 10 * time.Second}, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
		mine := open(t, s, `{"ttl_ms":10000}`)
		time.AfterFunc(9*time.Second, servers.Hold("a"))
		sending, shutDown := context.WithCancel(t.Context())
		shutDown()
		ctx := context.WithValue(t.Context(), callerKey{}, &caller{sending: sending})
		a := mine.askUnder(ctx, "POST", "/v1/locks", `{"name":"a","wait_ms":3600000}`)
		require.Equal(t, http.StatusCreated, a.status, a.body)
		time.Sleep(time.Until(a.end()) - time.Millisecond)
		assert.False(t, free(t, servers, "a"), "it works under its lock")
		time.Sleep(2 * time.Second)
		assert.True(t, free(t, servers, "a"), "its session has ended")
	})
}

// TestALockIsKeptIfItsAnswerMayStillBeRead, and released if that is certainly lost.
func TestALockIsKeptIfItsAnswerMayStillBeRead(t *testing.T) {
	t.Parallel()
	send := func(t *testing.T, w *wire) {
		_, err := io.WriteString(w, "an answer")
		require.NoError(t, err)
	}
	reset := func(t *testing.T, c net.Conn, w *wire) {
		if tcp, ok := c.(*net.TCPConn); ok {
			require.NoError(t, tcp.SetLinger(0))
		}
		c.Close()
		soon(t, func() bool { return w.is(isOver) }, "it is seen to be closed")
	}
	for name, test := range map[string]struct {
		network, address string
		happens          func(t *testing.T, c net.Conn, w *wire)
		isKept           bool
	}{
		"stopped before it has read": {"unix", "", func(t *testing.T, _ net.Conn, w *wire) {
			send(t, w)
		}, true},
		"ended before it has read": {"unix", "", func(t *testing.T, c net.Conn, w *wire) {
			send(t, w)
			reset(t, c, w)
		}, false},
		"read, then closed": {"unix", "", func(t *testing.T, c net.Conn, w *wire) {
			send(t, w)
			c.Read(make([]byte, 100))
			reset(t, c, w)
		}, true},
		"read, then reset": {"tcp", "127.0.0.1:0", func(t *testing.T, c net.Conn, w *wire) {
			send(t, w)
			c.Read(make([]byte, 100))
			soon(t, func() bool { taken, _ := w.isTaken(); return taken }, "it is acknowledged")
			reset(t, c, w)
		}, true},
		"closed before the answer": {"tcp", "127.0.0.1:0", func(t *testing.T, c net.Conn, w *wire) {
			c.Close()
			send(t, w)
			soon(t, func() bool { return w.is(isOver) }, "it is seen to be closed")
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.network == "unix" {
				test.address = filepath.Join(t.TempDir(), "s")
			}
			listener, err := net.Listen(test.network, test.address)
			require.NoError(t, err)
			defer listener.Close()
			c, err := net.Dial(test.network, listener.Addr().String())
			require.NoError(t, err)
			defer c.Close()
			conn, err := listener.Accept()
			require.NoError(t, err)
			defer conn.Close()
			w := ConnContext(t.Context(), conn).Value(wireKey{}).(*wire)
			require.NoError(t, c.(interface{ CloseWrite() error }).CloseWrite())
			test.happens(t, c, w)
			synctest.Test(t, func(t *testing.T) {
				servers, s := start(t, Config{TTL: 10 * time.Second})
				by := &caller{sending: t.Context(), wire: w, writer: httptest.NewRecorder()}
				ctx := context.WithValue(t.Context(), callerKey{}, by)
				a := (&client{t: t, server: s}).askUnder(ctx, "POST", "/v1/locks", `{"name":"a"}`)
				require.Equal(t, http.StatusCreated, a.status, a.body)
				assert.Equal(t, test.isKept, !free(t, servers, "a"))
				time.Sleep(12 * time.Second)
				assert.True(t, free(t, servers, "a"), "its session has ended")
			})
		})
	}
}

// TestAClientThatHasLeftHoldsNothing, whether it leaves before its turn or with it, and another runs its tick.
func TestAClientThatHasLeftHoldsNothing(t *testing.T) {
	overSockets(t, func(t *testing.T, servers *redlocktest.Servers, s *Server, dial func() line) {
		for _, once := range []string{"", `,"apart_ms":31536000000`} {
			give := servers.Hold("a")
			c := dial()
			c.send("POST /v1/locks", `{"name":"a","wait_ms":3600000`+once+`}`)
			soon(t, func() bool { return requests(s) == 1 }, "it waits")
			c.Close()
			if c.LocalAddr().Network() == "unix" {
				soon(t, func() bool { return requests(s) == 0 }, "its end is seen at once")
			}
			give()
			soon(t, func() bool { return requests(s) == 0 && s.table.held() == 0 }, "and at its turn at the latest")
			assert.True(t, free(t, servers, "a"))
			assert.Empty(t, s.table.all())
		}
		other := dial()
		other.sendOnly("POST /v1/locks", `{"name":"a","apart_ms":31536000000}`)
		status, body := other.answer()
		assert.Equal(t, http.StatusCreated, status, body)
	})
}

// TestASessionEndsWithItsConnection, within its TTL, if its client leaves while it waits, and at once if a stream is
// bound to it.
func TestASessionEndsWithItsConnection(t *testing.T) {
	overSockets(t, func(t *testing.T, servers *redlocktest.Servers, s *Server, dial func() line) {
		defer servers.Hold("a")()
		for ttl, leave := range map[string]func(c line, session string){
			"1000": func(c line, session string) {
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
			leave(c, sessionHeader+": "+mine.session)
			c.Close()
			soon(t, func() bool { return free(t, servers, "mine") }, "its session has ended")
		}
	})
}
