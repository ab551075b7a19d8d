package httplock_test

import (
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

// process returns the Locker of another process. Its attempts wait long for replies, so that a busy
// machine does not look like an outage.
func process(nodes *redlocktest.Servers) *redlock.Locker {
	return nodes.Locker(redlock.TTL(time.Minute), redlock.NodeTimeout(15*time.Second))
}

// listen starts an HTTP server that does not log the panics of handlers.
func listen(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// status sends a request that names the lock x, reads the answer to its end, and returns its status.
func status(t *testing.T, s *httptest.Server) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, nil)
	require.NoError(t, err)
	r.Header.Set(header, "x")
	answer, err := s.Client().Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	assert.NoError(t, err)
	return answer.StatusCode
}

// TestAnswerFollowsTheRelease: a client that has read its answer finds the lock free for its next
// request.
func TestAnswerFollowsTheRelease(t *testing.T) {
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
		require.Equal(t, 200, status(t, servers[i%2]), i)
	}
}

// TestHandlerCanHijackItsConnection.
func TestHandlerCanHijackItsConnection(t *testing.T) {
	t.Parallel()
	s := listen(t, wrap(t, process(redlocktest.Start(t)), func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if assert.NoError(t, err) {
			defer conn.Close()
			io.WriteString(conn, "HTTP/1.1 418 I'm a teapot\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		}
	}))
	assert.Equal(t, http.StatusTeapot, status(t, s))
}
