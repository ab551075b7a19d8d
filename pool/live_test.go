package pool

import (
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	need "github.com/redquorum/redquorum/internal/require"
	"github.com/redquorum/redquorum/redlock"
)

// A live server is a redis-server process.
type live struct {
	fleet.Fleet
	t *testing.T
}

func newLive(t *testing.T) live {
	t.Helper()
	need.Redis(t)
	f, err := fleet.Start(t.Context(), fleet.Process, fleet.Options{Nodes: 1, Volatile: true})
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return live{f, t}
}

func (s live) url() string { return s.URLs()[0] }

// do is a command of somebody else's, on a connection of its own.
func (s live) do(args ...any) any {
	s.t.Helper()
	c, err := redis.DialURL(s.url())
	require.NoError(s.t, err)
	defer c.Close()
	v, err := c.Do(args[0].(string), args[1:]...)
	require.NoError(s.t, err)
	return v
}

// A client is a line of CLIENT LIST.
type client map[string]string

// clients returns those of this name.
func (s live) clients(name string) (found []client) {
	s.t.Helper()
	for line := range strings.Lines(string(s.do("CLIENT", "LIST").([]byte))) {
		c := client{}
		for field := range strings.FieldsSeq(line) {
			k, v, _ := strings.Cut(field, "=")
			c[k] = v
		}
		if c["name"] == name {
			found = append(found, c)
		}
	}
	return found
}

// client waits for the one client of this name.
func (s live) client(name string) client {
	s.t.Helper()
	var found []client
	eventually(s.t, func() bool {
		found = s.clients(name)
		return len(found) == 1
	}, "one client named "+name)
	return found[0]
}

// A waiter watches a key, and counts its hints.
type waiter struct {
	t     *testing.T
	n     redlock.Node
	key   string
	hints chan struct{}
	stop  func()
}

func wait(t *testing.T, n redlock.Node, key string) *waiter {
	w := &waiter{t: t, n: n, key: key, hints: make(chan struct{}, 1000)}
	w.stop = n.(redlock.Watchable).Watch(key, func() { w.hints <- struct{}{} })
	t.Cleanup(w.stop)
	return w
}

// next waits for a hint.
func (w *waiter) next() {
	w.t.Helper()
	select {
	case <-w.hints:
	case <-time.After(patience):
		require.FailNow(w.t, "no hint", w.key)
	}
}

// ask sends an OpWatch.
func (w *waiter) ask() redlock.Reply {
	w.t.Helper()
	return do(w.t, w.n, redlock.Request{Op: redlock.OpWatch, Key: w.key})
}
