package main

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	tr "github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/require"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// kinds are those of servers that the tools are tested on.
var kinds = []fleet.Kind{fleet.Embedded, fleet.Process}

func startFleet(t *testing.T, kind fleet.Kind, n int) fleet.Fleet {
	t.Helper()
	require.Kind(t, kind)
	f, err := fleet.Start(t.Context(), kind, fleet.Options{Nodes: n})
	tr.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// on adds the flags that name the servers, and leaves out what this machine's
// configuration says.
func on(f fleet.Fleet, args ...string) []string {
	for _, u := range f.URLs() {
		args = append(args, "--node", u)
	}
	return args
}

// ask runs one command on one server.
func ask(t *testing.T, url string, words ...any) any {
	t.Helper()
	_, dial, err := pool.Dialer(url)
	tr.NoError(t, err)
	c, err := dial(t.Context())
	tr.NoError(t, err)
	defer c.Close()
	reply, err := c.Do(words[0].(string), words[1:]...)
	tr.NoError(t, err, words[0])
	return reply
}

func has(t *testing.T, url, key string) string {
	t.Helper()
	text, err := redis.String(ask(t, url, "GET", key), nil)
	if err == redis.ErrNil {
		return ""
	}
	tr.NoError(t, err)
	return text
}

// put sets a key on some of the servers.
func put(t *testing.T, f fleet.Fleet, key, value string, nodes ...int) {
	t.Helper()
	for _, i := range nodes {
		ask(t, f.URLs()[i], "SET", key, value, "PX", 600_000)
	}
}

// hold takes a lock as a client does, one with patience for a busy machine.
func hold(t *testing.T, f fleet.Fleet, name string, opts ...redlock.Option) *redlock.Lock {
	t.Helper()
	nodes, err := pool.Open(f.URLs()...)
	tr.NoError(t, err)
	locker, err := redlock.New(nodes, redlock.MemoryGuard(false), redlock.TTL(time.Minute), redlock.NodeTimeout(patience))
	tr.NoError(t, err)
	t.Cleanup(func() { locker.Close() })
	lock, err := locker.TryAcquire(t.Context(), name, opts...)
	tr.NoError(t, err)
	for _, u := range f.URLs() { // a quorum was enough for the lock
		tr.Eventually(t, func() bool { return has(t, u, name) == lock.Value() }, patience, time.Millisecond)
	}
	return lock
}

// A lines is an output that tests read while a command writes it. The zero value
// can be written and read, but not awaited.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
	more chan struct{}
}

func newLines() *lines { return &lines{more: make(chan struct{}, 1)} }

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// await waits until the output is as wanted.
func (l *lines) await(ctx context.Context, t *testing.T, enough func(text string) bool) {
	t.Helper()
	for !enough(l.String()) {
		select {
		case <-l.more:
		case <-ctx.Done():
			t.Fatalf("this is all that was written:\n%s", l)
		}
	}
}
