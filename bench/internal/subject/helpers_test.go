package subject

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/need"
)

const (
	// testLimit bounds waits for what must happen; only failing tests reach it.
	testLimit = 20 * time.Second
	// brief is long enough for a caller to be kept waiting, and ends within a TTL.
	brief = 200 * time.Millisecond
	ttl   = time.Second
)

// Every library's Close must end all of its goroutines. The command is built before any test has a
// limit for opening it; if that fails, Open says so.
func TestMain(m *testing.M) {
	_, _ = built()
	goleak.VerifyTestMain(m)
}

func start(t *testing.T) fleet.Fleet {
	t.Helper()
	return need.Servers(t, fleet.Process, fleet.Options{Nodes: 5, Volatile: true})
}

// libraries are the subjects but for the limit.
func libraries() []Spec {
	return slices.DeleteFunc(All(), func(s Spec) bool { return s.Drive != nil })
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func open(t *testing.T, s Spec, urls []string) Client {
	t.Helper()
	c, err := s.Open(within(t, testLimit), urls, Config{TTL: ttl, Callers: 4})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func acquire(t *testing.T, c Client, name string) Lock {
	t.Helper()
	l, err := c.Acquire(within(t, testLimit), name)
	require.NoError(t, err)
	return l
}

// do asks one server.
func do(t testing.TB, url, command string, args ...any) any {
	t.Helper()
	c, err := redis.DialURL(url)
	require.NoError(t, err)
	defer c.Close()
	reply, err := c.Do(command, args...)
	require.NoError(t, err)
	return reply
}

// locks are the keys on any of the servers that end with name, and those of its permits. What redlock
// remembers of released locks does not end so.
func locks(t testing.TB, urls []string, name string) []string {
	t.Helper()
	var found []string
	stem, tail := keys.Slots(name)
	for _, u := range urls {
		for _, pattern := range []string{"*" + name, stem + "*" + tail} {
			some, err := redis.Strings(do(t, u, "KEYS", pattern), nil)
			require.NoError(t, err)
			found = append(found, some...)
		}
	}
	return found
}
