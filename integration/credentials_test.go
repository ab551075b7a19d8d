package integration_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// TestNothingIsLostWhenPasswordsEnd: each second all servers get another password, and end all
// connections that began with the one before. Locks are held, handed over and waited for meanwhile.
func TestNothingIsLostWhenPasswordsEnd(t *testing.T) {
	t.Parallel()
	r := startServers(t, 3)
	var version atomic.Int64
	password := func() string { return fmt.Sprint("secret", version.Load()) }
	change := func() {
		version.Add(1)
		for _, url := range r.URLs() {
			c, err := redis.DialURL(url)
			require.NoError(t, err)
			_, err = c.Do("ACL", "SETUSER", "app", "on", "resetpass", ">"+password(), "~*", "&*", "+@all")
			require.NoError(t, err)
			_, err = c.Do("CLIENT", "KILL", "USER", "app")
			require.NoError(t, err)
			c.Close()
		}
	}
	change()
	var asked atomic.Int64
	locker := func() *redlock.Locker {
		nodes, err := pool.OpenWith(r.URLs(), pool.Credentials(func(_ context.Context, server string) (string, string, error) {
			asked.Add(1)
			assert.Contains(t, strings.Join(r.URLs(), " "), server)
			return "app", password(), nil
		}))
		require.NoError(t, err)
		return newLocker(t, nodes, redlock.TTL(4*time.Second), redlock.NodeTimeout(time.Second))
	}
	l, other := locker(), locker()

	held, err := l.Acquire(t.Context(), "held", redlock.Fenced())
	require.NoError(t, err)
	handed := make(chan int)
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		n := 0
		for ; ctx.Err() == nil; n++ {
			for _, by := range []*redlock.Locker{l, other} {
				k, err := by.Acquire(context.Background(), "handed over")
				if !assert.NoError(t, err) {
					break
				}
				time.Sleep(time.Millisecond)
				k.Release(context.Background()) // what a server does not confirm at this moment it is told again
			}
		}
		handed <- n
	}()
	waiter := make(chan *redlock.Lock)
	go func() {
		k, err := other.Acquire(context.Background(), "held")
		assert.NoError(t, err)
		waiter <- k
	}()
	for range 5 {
		time.Sleep(time.Second)
		change()
	}
	stop()
	assert.Greater(t, <-handed, 20)
	assert.True(t, held.Valid())
	require.NoError(t, held.Release(t.Context()))
	next := <-waiter
	require.NotNil(t, next)
	require.NoError(t, next.Release(t.Context()))
	assert.Greater(t, asked.Load(), int64(2*3*5), "each new connection has asked")
}
