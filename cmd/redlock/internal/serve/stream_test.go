package serve

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlocktest"

	"github.com/redquorum/redquorum/cmd/redlock/internal/serve/api"
)

// TestStreamSendsEachChange. The test of a stream that is bound to its connection checks that
// changes are sent at once.
func TestStreamSendsEachChange(t *testing.T) {
	served(t, Config{}, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
		c := open(t, s, "")
		stream := *c
		stream.headers = map[string]string{"Accept": "text/event-stream"}
		told := make(chan answer)
		go func() { told <- stream.ask("GET", "/v1/session", "") }()
		synctest.Wait()
		c.take(`{"name":"a"}`)
		synctest.Wait()
		servers.Lose("a")
		time.Sleep(time.Second)
		require.Equal(t, api.KindLost, c.ask("DELETE", "/v1/session", "").problem.Kind)
		a := <-told
		assert.Equal(t, "no", a.headers.Get("X-Accel-Buffering"), "a proxy must pass each event on")
		assert.Regexp(t, regexp.MustCompile(`(?s)^event: state\ndata: [^\n]*"leases":\[\]}\n\n`+
			`event: state\ndata: [^\n]*"held":true[^\n]*\n\n`+`event: state\ndata: [^\n]*"held":false[^\n]*"lost":[^\n]*\n\n`+`event: end\ndata: {}\n\n$`), a.body)

		stream = *open(t, s, "") // a recorder of httptest has no address of the client
		stream.headers = map[string]string{"Accept": "text/event-stream"}
		assert.Equal(t, api.KindBad, stream.ask("GET", "/v1/session?bound=true", "").problem.Kind)
	})
}

// TestStreamBehindAProxyIsNotBound: the connection to a proxy on this machine may break while its
// client on another machine continues its work.
func TestStreamBehindAProxyIsNotBound(t *testing.T) {
	t.Parallel()
	here := func(header string) *request {
		r := httptest.NewRequest("GET", "/v1/session?bound=true", nil)
		if header != "" {
			r.Header.Set(header, "10.0.0.9")
		}
		return &request{Request: r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.UnixAddr{}))}
	}
	assert.True(t, isThisMachine(here("")))
	for _, header := range []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via"} {
		assert.False(t, isThisMachine(here(header)), header)
	}
}

// TestStreamIsNeverSilentForLong: proxies cut a connection that is silent for a minute.
func TestStreamIsNeverSilentForLong(t *testing.T) {
	served(t, Config{}, func(t *testing.T, _ *redlocktest.Servers, s *Server) {
		c := open(t, s, `{"ttl_ms":3600000}`)
		c.headers = map[string]string{"Accept": "text/event-stream"}
		began := time.Now()
		told := c.ask("GET", "/v1/session", "")
		assert.InDelta(t, streamFor, time.Since(began), float64(time.Second))
		assert.GreaterOrEqual(t, strings.Count(told.body, "event: state\n"), 3)
	})
}

// TestStreamKeepsASessionAlive: a broken stream keeps it alive for its TTL.
func TestStreamKeepsASessionAlive(t *testing.T) {
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

// TestPollsWithoutAWaitAreSlowed: a client that sends requests in a loop, without a wait time, sends one
// request a second.
func TestPollsWithoutAWaitAreSlowed(t *testing.T) {
	served(t, Config{Office: "office"}, func(t *testing.T, _ *redlocktest.Servers, s *Server) {
		c := open(t, s, `{"ttl_ms":600000}`)
		time.Sleep(time.Second) // for the office
		for path, seen := range map[string]string{"/v1/session": text(c.ask("GET", "/v1/session", "").session.Version), "/leader": text((&candidate{c, s}).leader("").Token)} {
			began := time.Now()
			c.ask("GET", path+"?seen="+seen, "")
			assert.Equal(t, time.Second, time.Since(began), path)
			c.ask("GET", path, "")
			c.ask("GET", path+"?wait_ms=0&seen="+seen, "")
			c.ask("GET", path+"?seen=999999", "")
			assert.Equal(t, time.Second, time.Since(began), path)
		}
		endNow(s)
	})
}
