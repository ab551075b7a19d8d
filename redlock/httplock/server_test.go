package httplock_test

import (
	"bufio"
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlocktest"
)

// long is how long a test waits for what must happen.
const long = 30 * time.Second

// process returns the Locker of one more process. Its votes wait for long, so that a
// busy machine is no outage.
func process(nodes *redlocktest.Servers) *redlock.Locker {
	return nodes.Locker(redlock.TTL(2*long), redlock.NodeTimeout(long/2))
}

// listen starts an HTTP server, which says nothing of handlers that panic.
func listen(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// do sends a request that names a lock.
func do(ctx context.Context, s *httptest.Server, method, name string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.URL, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set(header, name)
	return s.Client().Do(r)
}

// status sends a request, reads the answer to its end, and returns its status.
func status(t *testing.T, s *httptest.Server, name string) int {
	t.Helper()
	answer, err := do(t.Context(), s, http.MethodPost, name)
	if !assert.NoError(t, err) {
		return 0
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	assert.NoError(t, err)
	return answer.StatusCode
}

// await waits for c.
func await[T any](t *testing.T, c <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(long):
		require.Fail(t, "in vain", "waiting for %s", what)
	}
	return v
}

// TestOneRequestRunsAtATime, whichever machine gets it, and the next as soon as
// the first has its answer. Other names are free.
func TestOneRequestRunsAtATime(t *testing.T) {
	t.Parallel()
	nodes := redlocktest.Start(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	first := listen(t, wrap(t, process(nodes), func(http.ResponseWriter, *http.Request) {
		close(entered)
		<-leave
	}))
	second := listen(t, wrap(t, process(nodes), func(http.ResponseWriter, *http.Request) {}))

	answered := make(chan int)
	go func() { answered <- status(t, first, "x") }()
	await(t, entered, "the handler")
	assert.Equal(t, 423, status(t, second, "x"))
	assert.Equal(t, 200, status(t, second, "y"))
	close(leave)
	assert.Equal(t, 200, await(t, answered, "the answer"))
	assert.Equal(t, 200, status(t, second, "x"))
}

// TestTheAnswerComesAfterTheRelease: who sends the next request when they have the
// answer to the last is not refused on account of their own.
func TestTheAnswerComesAfterTheRelease(t *testing.T) {
	t.Parallel()
	nodes := redlocktest.Start(t)
	var servers []*httptest.Server
	for range 2 {
		servers = append(servers, listen(t, wrap(t, process(nodes), func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "nearly ")
			assert.NoError(t, http.NewResponseController(w).Flush())
			io.WriteString(w, "done")
		})))
	}
	for i := range 20 {
		require.Equal(t, 200, status(t, servers[i%2], "x"), i)
	}
}

// TestAHandlerCanStream: the ResponseWriter is the server's own, and the lock is held to
// the end.
func TestAHandlerCanStream(t *testing.T) {
	t.Parallel()
	nodes := redlocktest.Start(t)
	leave := make(chan struct{})
	l := process(nodes)
	s := listen(t, wrap(t, l, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "first\n")
		assert.NoError(t, http.NewResponseController(w).Flush())
		<-leave
		io.WriteString(w, "last\n")
	}))
	answer, err := do(t.Context(), s, http.MethodPost, "x")
	require.NoError(t, err)
	defer answer.Body.Close()
	body := bufio.NewReader(answer.Body)
	line, err := body.ReadString('\n')
	assert.NoError(t, err)
	assert.Equal(t, "first\n", line)
	_, err = process(nodes).TryAcquire(t.Context(), "x")
	assert.ErrorIs(t, err, redlock.ErrHeld)
	close(leave)
	rest, err := io.ReadAll(body)
	assert.NoError(t, err)
	assert.Equal(t, "last\n", string(rest))
}

// TestAHandlerCanHijack its connection.
func TestAHandlerCanHijack(t *testing.T) {
	t.Parallel()
	s := listen(t, wrap(t, process(redlocktest.Start(t)), func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if assert.NoError(t, err) {
			defer conn.Close()
			io.WriteString(conn, "HTTP/1.1 418 I'm a teapot\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		}
	}))
	assert.Equal(t, http.StatusTeapot, status(t, s, "x"))
}
