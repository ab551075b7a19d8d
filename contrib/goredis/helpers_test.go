package goredis_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/contrib/goredis"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/testenv"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	name      = "invoice:42"
	failAfter = 30 * time.Second
	tick      = 10 * time.Millisecond
)

// startServers returns the URLs of n servers.
func startServers(t *testing.T, n int) (urls []string) {
	t.Helper()
	return start(t, fleet.Options{Nodes: n, Volatile: true})
}

func start(t *testing.T, opts fleet.Options) (urls []string) {
	t.Helper()
	return testenv.Servers(t, fleet.Process, opts).URLs()
}

// optionsOf returns the go-redis options for the server.
func optionsOf(t *testing.T, url string) *redis.Options {
	t.Helper()
	o, err := redis.ParseURL(url)
	require.NoError(t, err)
	o.DialTimeout, o.ReadTimeout = failAfter, failAfter // go-redis would send a late command again
	return o
}

func newClient(t *testing.T, o *redis.Options) *redis.Client {
	t.Helper()
	c := redis.NewClient(o)
	t.Cleanup(func() { c.Close() })
	return c
}

// patient has the options of nodes on a busy machine, which must not look like an outage.
var patient = []pool.Option{pool.StallTimeout(failAfter), pool.DialTimeout(failAfter)}

// newLocker returns a Locker on the nodes. Their servers have nothing to forget.
func newLocker(t *testing.T, nodes []pool.Node, err error) *redlock.Locker {
	t.Helper()
	require.NoError(t, err)
	l, err := redlock.New(nodes, redlock.TTL(2*failAfter), redlock.NodeTimeout(failAfter), redlock.MemoryGuard(false))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, l.Close()) })
	return l
}

// on returns a Locker on the single server of a client with the options.
func on(t *testing.T, o *redis.Options, opts ...pool.Option) *redlock.Locker {
	t.Helper()
	nodes, err := goredis.Nodes([]*redis.Client{newClient(t, o)}, append(opts, patient...)...)
	return newLocker(t, nodes, err)
}

// lock returns the lock name, which is released at the end.
func lock(t *testing.T, l *redlock.Locker) *redlock.Lock {
	t.Helper()
	k, err := l.Acquire(t.Context(), name, redlock.Patience(failAfter)) // a server may still be starting
	require.NoError(t, err)
	t.Cleanup(func() { k.Release(t.Context()) })
	return k
}

// awaitValue waits until a server has the lock. The lock is granted when a majority has it, and the
// last servers may not have received it yet.
func awaitValue(t *testing.T, c *redis.Client, k *redlock.Lock) {
	t.Helper()
	require.Eventually(t, func() bool { return c.Get(t.Context(), name).Val() == k.Value() }, failAfter, tick)
}
