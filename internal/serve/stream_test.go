package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlocktest"
)

// A reader reads a stream of states over a socket.
type reader struct {
	lines *bufio.Scanner
	leave context.CancelFunc
}

func follow(t *testing.T, server *httptest.Server, session, query string) *reader {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, "GET", server.URL+"/v1/session"+query, nil)
	require.NoError(t, err)
	r.Header.Set("Accept", "text/event-stream")
	r.Header.Set(sessionHeader, session)
	answer, err := server.Client().Do(r)
	require.NoError(t, err)
	t.Cleanup(func() { answer.Body.Close() })
	require.Equal(t, "text/event-stream", answer.Header.Get("Content-Type"))
	require.Equal(t, "no", answer.Header.Get("X-Accel-Buffering"), "a proxy must pass each event on")
	return &reader{bufio.NewScanner(answer.Body), cancel}
}

// next returns the next event and its data.
func (r *reader) next() (event string, state sessionAnswer) {
	for r.lines.Scan() {
		switch line := r.lines.Text(); {
		case strings.HasPrefix(line, "event: "):
			event = strings.TrimPrefix(line, "event: ")
		case strings.HasPrefix(line, "data: "):
			json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &state)
		case line == "":
			return event, state
		}
	}
	return "", state
}

func TestAStreamTellsEachChange(t *testing.T) {
	t.Parallel()
	servers, s := start(t, Config{IsLoopback: true})
	server := httptest.NewServer(s)
	defer server.Close()
	c := open(t, s, "")
	news := follow(t, server, c.session, "")
	_, state := news.next()
	assert.Empty(t, state.Leases)
	a := c.take(`{"name":"a"}`)
	for len(state.Leases) == 0 {
		_, state = news.next()
	}
	assert.True(t, state.Leases[0].Held)
	assert.Positive(t, state.Leases[0].ValidFor)
	servers.Lose("a")
	for state.Leases[0].Held {
		_, state = news.next()
	}
	assert.NotEmpty(t, state.Leases[0].Lost)
	c.ask("DELETE", "/v1/locks/"+a.lease.Lease, "")
	require.Equal(t, http.StatusNoContent, c.ask("DELETE", "/v1/session", "").status)
	for event := ""; event != "end"; {
		event, _ = news.next()
		require.NotEmpty(t, event)
	}
}

// TestAStreamThatIsBound ends its session, and so releases what it holds, as soon as the client's
// connection ends: by its death, too.
func TestAStreamThatIsBound(t *testing.T) {
	t.Parallel()
	servers, s := start(t, Config{IsLoopback: true, TTL: time.Minute})
	server := httptest.NewServer(s)
	defer server.Close()
	c := open(t, s, "")
	c.take(`{"name":"a"}`)
	news := follow(t, server, c.session, "?bound=true")
	news.next()
	assert.False(t, free(t, servers, "a"))
	news.leave()
	assert.Eventually(t, func() bool { return free(t, servers, "a") }, 10*time.Second, 10*time.Millisecond)

	c = open(t, s, "")
	far := c.ask("GET", "/v1/session", "")
	require.Equal(t, http.StatusOK, far.status)
	c.headers = map[string]string{"Accept": "text/event-stream"} // of httptest: from nowhere
	assert.Equal(t, kindBad, c.ask("GET", "/v1/session?bound=true", "").problem.Kind)
}

// TestAStreamKeepsASessionAlive, and one that broke for its TTL.
func TestAStreamKeepsASessionAlive(t *testing.T) {
	served(t, Config{}, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
		c := open(t, s, "")
		c.take(`{"name":"a"}`)
		c.headers = map[string]string{"Accept": "text/event-stream"}
		ctx, leave := context.WithCancel(t.Context())
		told := make(chan answer, 1)
		go func() { told <- c.askUnder(ctx, "GET", "/v1/session", "") }()
		time.Sleep(streamFor - time.Second)
		leave()
		assert.Greater(t, strings.Count((<-told).body, "event: state\n"), 15, "as often as the lock is renewed")
		time.Sleep(9 * time.Second)
		assert.False(t, free(t, servers, "a"))
		time.Sleep(time.Second)
		synctest.Wait()
		assert.True(t, free(t, servers, "a"))

		c = open(t, s, "")
		c.headers = map[string]string{"Accept": "text/event-stream"}
		began := time.Now()
		c.ask("GET", "/v1/session?bound=false", "")
		assert.InDelta(t, streamFor, time.Since(began), float64(10*time.Second), "it ends, and the session does not")
		c.headers = nil
		assert.Equal(t, http.StatusOK, c.ask("GET", "/v1/session", "").status)
	})
}
