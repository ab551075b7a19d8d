package serve

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/cmd/redlock/internal/rights"
	"github.com/redquorum/redquorum/cmd/redlock/internal/serve/api"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlocktest"
)

// A client sends requests to a Server without a network.
type client struct {
	t       *testing.T
	server  http.Handler
	session string
	headers map[string]string
}

// An answer is a reply to a client, with the time of its request.
type answer struct {
	status  int
	headers http.Header
	problem api.Problem
	lease   api.LeaseAnswer
	session api.SessionAnswer
	body    string
	asked   time.Time
}

// end returns the time at which the client must have ended its work.
func (a answer) end() time.Time { return a.asked.Add(api.Duration(a.lease.ValidFor)) }

// A file is the Rights of a Config, which tests change.
type file struct {
	table atomic.Pointer[rights.Table]
	wrong error
}

func (f *file) Current() rights.Table { return *f.table.Load() }
func (f *file) Wrong() error          { return f.wrong }

// change replaces the table with one in which a client has changed.
func (f *file) change(i int, edit func(*rights.Client)) {
	table := slices.Clone(f.Current())
	edit(&table[i])
	f.table.Store(&table)
}

func newFile(table rights.Table) *file {
	f := &file{}
	f.table.Store(&table)
	return f
}

// tokens returns the rights of one client with these tokens, which may do everything.
func tokens(all ...string) Rights { return newFile(rights.All(all...)) }

// start returns servers and a Server on them, which is closed with the test.
func start(t testing.TB, c Config) (*redlocktest.Servers, *Server) {
	servers := redlocktest.Start(t)
	if c.TTL == 0 {
		c.TTL = 10 * time.Second
	}
	s := New(servers.Locker(redlock.TTL(c.TTL)), c)
	t.Cleanup(func() { endNow(s) })
	return servers, s
}

// served runs a test of a Server in virtual time.
func served(t *testing.T, c Config, test func(t *testing.T, servers *redlocktest.Servers, s *Server)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		servers, s := start(t, c)
		test(t, servers, s)
	})
}

// endNow ends a Server without time for its clients.
func endNow(s *Server) (released, left int) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	return s.Close(over)
}

// open returns a client with a session of its own.
func open(t *testing.T, s http.Handler, body string) *client {
	c := &client{t: t, server: s}
	a := c.ask("POST", "/v1/sessions", body)
	if body != "" {
		fits(t, body, "components", "schemas", "SessionRequest")
	}
	require.Equal(t, http.StatusCreated, a.status, a.body)
	c.session = a.session.Session
	return c
}

func (c *client) ask(method, path, body string) answer {
	c.t.Helper()
	return c.askUnder(c.t.Context(), method, path, body)
}

func (c *client) askUnder(ctx context.Context, method, path, body string) answer {
	r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
	r.Host = "localhost"
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.session != "" {
		r.Header.Set(api.SessionHeader, c.session)
	}
	for name, text := range c.headers {
		r.Header.Set(name, text)
	}
	a := answer{asked: time.Now()}
	w := httptest.NewRecorder()
	c.server.ServeHTTP(w, r)
	a.status, a.headers, a.body = w.Code, w.Header(), w.Body.String()
	a.isAsDescribed(c.t, r.Pattern)
	json.Unmarshal(w.Body.Bytes(), &a.problem)
	json.Unmarshal(w.Body.Bytes(), &a.lease)
	json.Unmarshal(w.Body.Bytes(), &a.session)
	return a
}

// take takes a lock.
func (c *client) take(body string) answer {
	c.t.Helper()
	a := c.ask("POST", "/v1/locks", body)
	fits(c.t, body, "components", "schemas", "LockRequest")
	require.Equal(c.t, http.StatusCreated, a.status, a.body)
	return a
}

// release releases a lease.
func (c *client) release(lease string) {
	c.t.Helper()
	require.Equal(c.t, http.StatusNoContent, c.ask("DELETE", "/v1/locks/"+lease, "").status)
}

// free reports whether a lock has no holder.
func free(t *testing.T, servers *redlocktest.Servers, name string) bool {
	lock, err := servers.Locker(redlock.TTL(time.Minute), redlock.NodeTimeout(30*time.Second)).TryAcquire(t.Context(), name)
	if err != nil {
		require.ErrorIs(t, err, redlock.ErrHeld)
		return false
	}
	require.NoError(t, lock.Release(t.Context()))
	return true
}

func text(n int64) string { return strconv.FormatInt(n, 10) }
