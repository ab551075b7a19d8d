package serve

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/redlocktest"

	"github.com/redquorum/redquorum/cmd/redlock/internal/serve/api"
)

// A pipes is a listener whose connections are in memory: a write waits until it is read. In a
// bubble of synctest their deadlines cost no time.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// listen serves on connections in memory, and returns a function that opens one.
func listen(t *testing.T, h http.Handler) (dial func() net.Conn) {
	p := &pipes{make(chan net.Conn), make(chan struct{})}
	over := &http.Server{Handler: h}
	done := make(chan struct{})
	go func() {
		defer close(done)
		over.Serve(p)
	}()
	t.Cleanup(func() {
		over.Close()
		<-done
	})
	return func() net.Conn {
		ours, theirs := net.Pipe()
		p.conns <- theirs
		t.Cleanup(func() { ours.Close() })
		return ours
	}
}

// isEnded reads until the other side has closed the connection, and returns the time of the end.
func isEnded(c net.Conn) time.Time {
	io.Copy(io.Discard, c)
	return time.Now()
}

// TestMissingBodyEndsTheConnection: the rest of the request does not matter.
func TestMissingBodyEndsTheConnection(t *testing.T) {
	t.Parallel()
	for _, request := range []string{
		"POST /v1/locks HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer 0123456789abcdef\r\nContent-Type: application/json\r\n",
		"POST /v1/locks HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer 0123456789abcdef\r\nContent-Type: text/plain\r\n",
		"POST /v1/locks HTTP/1.1\r\nHost: x\r\n",
		"GET /healthz HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer 0123456789abcdef\r\n",
		"PUT /nothing HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer 0123456789abcdef\r\n",
		"GET /v1/session HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer 0123456789abcdef\r\nRedlock-Session: x\r\n",
	} {
		for _, head := range []string{"Content-Length: 100\r\n\r\n{", "Transfer-Encoding: chunked\r\n\r\n5\r\n{"} {
			synctest.Test(t, func(t *testing.T) {
				_, s := start(t, Config{Rights: tokens("0123456789abcdef")})
				c := listen(t, s)()
				began := time.Now()
				go fmt.Fprint(c, request, head)
				c.SetReadDeadline(began.Add(time.Hour))
				assert.LessOrEqual(t, isEnded(c).Sub(began), api.BodyWithin+time.Second, request+head)
			})
		}
	}
}

// TestClientWithUnreadAnswersLosesItsSession: unread answers keep no lock.
func TestClientWithUnreadAnswersLosesItsSession(t *testing.T) {
	served(t, Config{}, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
		c := open(t, s, "")
		for i := range 40 { // more than one buffer holds
			c.take(fmt.Sprintf(`{"name":"%d","owner":"%s"}`, i, strings.Repeat("x", 100)))
		}
		deaf := listen(t, s)()
		fmt.Fprintf(deaf, "GET /v1/session HTTP/1.1\r\nHost: x\r\nRedlock-Session: %s\r\n\r\n", c.session)
		time.Sleep(api.AnswerWithin + 9*time.Second)
		assert.False(t, free(t, servers, "0"), "what it may have read is kept")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.True(t, free(t, servers, "0"))
	})
}
