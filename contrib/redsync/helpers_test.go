package redsync_test

import (
	"context"
	"testing"
	"time"

	upstream "github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/redigo"
	redigolib "github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/contrib/redsync"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A mutex has the methods of redsync.Mutex that these tests call, in either package.
type mutex interface {
	Name() string
	Value() string
	Until() time.Time
	TryLock() error
	Lock() error
	LockContext(ctx context.Context) error
	Unlock() (bool, error)
	Extend() (bool, error)
	Valid() (bool, error)
}

// settings are the options of a mutex, in either package. A zero expiry means a minute, for which no
// busy machine stands still; other zeros mean the default.
type settings struct {
	expiry time.Duration
	value  string
	setNX  bool
}

// A library is redsync or this package, on servers in this process.
type library struct {
	servers
	mutex func(name string, s settings) mutex
	taken func(err error) []int // nodes of an *ErrTaken; nil for other errors

	expired, failed error // ErrLockAlreadyExpired, ErrFailed
}

// servers are queried directly, without the library.
type servers []*redigolib.Pool

func (all servers) do(t *testing.T, i int, command string, args ...any) any {
	t.Helper()
	c := all[i].Get()
	defer c.Close()
	reply, err := c.Do(command, args...)
	require.NoError(t, err)
	return reply
}

// values returns the value of the key on each server.
func (all servers) values(t *testing.T, key string) []string {
	t.Helper()
	values := make([]string, len(all))
	for i := range all {
		values[i], _ = redigolib.String(all.do(t, i, "GET", key), nil)
	}
	return values
}

// holding returns the number of servers with the mutex's value.
func (all servers) holding(t *testing.T, m mutex) (n int) {
	t.Helper()
	for _, v := range all.values(t, m.Name()) {
		if v == m.Value() && v != "" {
			n++
		}
	}
	return n
}

// start returns five servers, and both libraries on them.
func start(t *testing.T) (theirs, ours *library) {
	t.Helper()
	five, err := fleet.Start(t.Context(), fleet.Embedded, fleet.Options{Nodes: 5})
	require.NoError(t, err)
	t.Cleanup(func() { five.Close() })
	var all servers
	var pools []redis.Pool
	for _, url := range five.URLs() {
		p := &redigolib.Pool{MaxIdle: 8, Dial: func() (redigolib.Conn, error) { return redigolib.DialURL(url) }}
		t.Cleanup(func() { p.Close() })
		all, pools = append(all, p), append(pools, redigo.NewPool(p))
	}
	nodes, err := pool.OpenWith(five.URLs(), pool.DialTimeout(time.Minute), pool.StallTimeout(time.Minute))
	require.NoError(t, err)
	locker, err := redlock.New(nodes, redlock.MemoryGuard(false)) // the servers have nothing to forget
	require.NoError(t, err)
	t.Cleanup(func() { locker.Close() })
	return &library{all, theirMutexes(pools), theirTaken, upstream.ErrLockAlreadyExpired, upstream.ErrFailed},
		&library{all, ourMutexes(locker), ourTaken, redsync.ErrLockAlreadyExpired, redsync.ErrFailed}
}

// each runs test on both libraries.
func each(t *testing.T, test func(t *testing.T, l *library)) {
	t.Helper()
	t.Parallel()
	theirs, ours := start(t)
	t.Run("redsync", func(t *testing.T) { test(t, theirs) })
	t.Run("redquorum", func(t *testing.T) { test(t, ours) })
}

// succeeds fails the test unless a call returned true.
func succeeds(t *testing.T) func(ok bool, err error) {
	return func(ok bool, err error) {
		t.Helper()
		require.NoError(t, err)
		assert.True(t, ok)
	}
}

// fails fails the test unless a call returned false, and an error that matches all.
func fails(t *testing.T, all ...error) func(ok bool, err error) {
	return func(ok bool, err error) {
		t.Helper()
		require.Error(t, err)
		for _, want := range all {
			require.ErrorIs(t, err, want)
		}
		assert.False(t, ok)
	}
}
