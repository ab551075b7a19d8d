package servers

import (
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/need"
)

// testLimit bounds waits for what must happen; only failing tests reach it.
const testLimit = 20 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start gives the test nodes of its own, and a Watch.
func start(t *testing.T, kind fleet.Kind, nodes int) (fleet.Fleet, *Watch) {
	t.Helper()
	f := need.Servers(t, kind, fleet.Options{Nodes: nodes, Volatile: kind == fleet.Process})
	return f, watch(t, f.URLs())
}

func watch(t *testing.T, urls []string) *Watch {
	t.Helper()
	w, err := Dial(t.Context(), urls)
	require.NoError(t, err)
	t.Cleanup(w.Close)
	return w
}

// client is a connection to a node, besides the Watch's.
func client(t *testing.T, f fleet.Fleet, i int) redis.Conn {
	t.Helper()
	c, err := redis.Dial("tcp", strings.TrimPrefix(f.URLs()[i], "redis://"), redis.DialReadTimeout(testLimit))
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func do(t *testing.T, c redis.Conn, command string, args ...any) any {
	t.Helper()
	reply, err := c.Do(command, args...)
	require.NoError(t, err)
	return reply
}
