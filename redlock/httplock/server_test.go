package httplock_test

import (
	"bufio"
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/httplock"
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

// TestNoTwoRequestsOverlap, if many of them wait for each other, in two processes.
func TestNoTwoRequestsOverlap(t *testing.T) {
	t.Parallel()
	nodes := redlocktest.Start(t)
	var inside, ran atomic.Int32
	var servers []*httptest.Server
	for range 2 {
		servers = append(servers, listen(t, wrap(t, process(nodes), func(http.ResponseWriter, *http.Request) {
			assert.EqualValues(t, 1, inside.Add(1))
			ran.Add(1)
			inside.Add(-1)
		}, httplock.Wait(long))))
	}
	var clients sync.WaitGroup
	for i := range 8 {
		clients.Go(func() {
			for range 5 {
				assert.Equal(t, 200, status(t, servers[i%2], "x"))
			}
		})
	}
	clients.Wait()
	assert.EqualValues(t, 40, ran.Load())
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

// TestAPanicReachesTheServer, which drops the connection, and the lock is free.
func TestAPanicReachesTheServer(t *testing.T) {
	t.Parallel()
	nodes := redlocktest.Start(t)
	broken := listen(t, wrap(t, process(nodes), func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	_, err := do(t.Context(), broken, http.MethodPost, "x")
	assert.ErrorIs(t, err, io.EOF)
	other := listen(t, wrap(t, process(nodes), func(http.ResponseWriter, *http.Request) {}))
	assert.Equal(t, 200, status(t, other, "x"))
}

// TestAClientThatLeavesWhileItWaits runs nothing, and is in no other's way.
func TestAClientThatLeavesWhileItWaits(t *testing.T) {
	t.Parallel()
	nodes := redlocktest.Start(t)
	k := take(t, process(nodes), "x")
	arrived, over := make(chan struct{}), make(chan struct{})
	waiting := wrap(t, process(nodes), mustNotRun(t), httplock.Wait(long))
	s := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(arrived)
		waiting.ServeHTTP(w, r)
		close(over)
	}))
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		<-arrived
		leave()
	}()
	_, err := do(ctx, s, http.MethodPost, "x")
	assert.ErrorIs(t, err, context.Canceled)
	await(t, over, "the middleware")
	assert.NoError(t, k.Release(t.Context()))
	take(t, process(nodes), "x")
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

// TestAnAnswerToHEADIsWellFormed: nothing of a body is on the connection, which
// serves the next request.
func TestAnAnswerToHEADIsWellFormed(t *testing.T) {
	t.Parallel()
	nodes := redlocktest.Start(t)
	take(t, process(nodes), "x")
	s := listen(t, wrap(t, process(nodes), func(http.ResponseWriter, *http.Request) {}))
	retryAfter := ""
	for try := 0; retryAfter == "" && try < 100; try++ { // it is not known where the nodes are slow to tell
		answer, err := do(t.Context(), s, http.MethodHead, "x")
		require.NoError(t, err)
		answer.Body.Close()
		assert.Equal(t, 423, answer.StatusCode)
		retryAfter = answer.Header.Get("Retry-After")
	}
	assert.NotEmpty(t, retryAfter)
	assert.Equal(t, 200, status(t, s, "y"))
}

// TestAMajorityThatDiesEndsTheHandlersContext, refuses other requests, and tells
// OnLost.
func TestAMajorityThatDiesEndsTheHandlersContext(t *testing.T) {
	t.Parallel()
	nodes := redlocktest.Start(t)
	entered := make(chan struct{})
	causes, lost := make(chan error, 1), make(chan error, 1)
	s := listen(t, wrap(t, process(nodes), func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
		causes <- context.Cause(r.Context())
	}, httplock.Lock(redlock.TTL(4*time.Second), redlock.NodeTimeout(3*time.Second)),
		httplock.OnLost(func(_ *http.Request, err error) { lost <- err })))

	answered := make(chan int)
	go func() { answered <- status(t, s, "x") }()
	await(t, entered, "the handler")
	nodes.Outage(2)
	assert.Equal(t, 503, status(t, s, "y"))
	assert.ErrorIs(t, await(t, causes, "the loss"), redlock.ErrLost)
	assert.ErrorIs(t, await(t, lost, "OnLost"), redlock.ErrLost)
	assert.Equal(t, 200, await(t, answered, "the answer"), "the handler's own")
}
