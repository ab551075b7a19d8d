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

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// permitAll gives a user, who may do all, a password in place of those before.
func permitAll(t *testing.T, c redis.Conn, name, password string) {
	t.Helper()
	rules := redis.Args{"SETUSER", name, "on", "resetpass", ">" + password, "~*", "+@all"}
	info, err := redis.String(c.Do("INFO", "server"))
	require.NoError(t, err)
	if !strings.Contains(info, "\nredis_version:6.0.") { // which has no rules for channels
		rules = append(rules, "&*")
	}
	_, err = c.Do("ACL", rules...)
	require.NoError(t, err)
}

// TestConnectionsOutliveTheirCredentials: each second all servers get another user and lose an old one,
// with all connections that are still its. With Reauthenticate none is, but for those of hints.
func TestConnectionsOutliveTheirCredentials(t *testing.T) {
	t.Parallel()
	const life = 3 // a user's, in seconds
	r := newRig(t, fleet.Options{Nodes: 3, Volatile: true})
	var admins []redis.Conn
	for _, url := range r.URLs() {
		c, err := redis.DialURL(url)
		require.NoError(t, err)
		defer c.Close()
		admins = append(admins, c)
	}
	var newest atomic.Int64
	user := func(i int64) string { return fmt.Sprint("app", i) }
	change := func() (ended int) {
		next := newest.Load() + 1
		for _, c := range admins {
			permitAll(t, c, user(next), user(next))
			n, err := redis.Int(c.Do("ACL", "DELUSER", user(next-life)))
			require.NoError(t, err)
			ended += n
		}
		newest.Store(next)
		return ended
	}
	change()
	faults := watch(func(e redlock.Event) bool {
		return e.Kind == redlock.EventVote && (e.Outcome == redlock.Failed || e.Outcome == redlock.Unknown)
	})
	locker := func() *redlock.Locker {
		nodes, err := pool.OpenWith(r.URLs(), pool.Reauthenticate(time.Second),
			pool.Credentials(func(context.Context, string) (string, string, error) {
				u := user(newest.Load())
				return u, u, nil
			}))
		require.NoError(t, err)
		return newLocker(t, nodes, redlock.TTL(4*time.Second), redlock.NodeTimeout(time.Second), redlock.Observe(faults))
	}
	holder, waiter := locker(), locker()
	connected(t, holder)
	connected(t, waiter)
	finish := useLocks(t, holder, waiter)
	connections := func() (ids [][]string) {
		for _, c := range admins {
			ids = append(ids, lockConnections(t, c))
			require.Len(t, ids[len(ids)-1], 2, "one of each client")
		}
		return ids
	}
	first, ended := connections(), 0
	for range 5 {
		time.Sleep(time.Second)
		ended += change()
	}
	assert.Equal(t, first, connections(), "none was replaced")
	assert.Equal(t, 3*len(admins), ended, "the user of the first connections, and two after it")
	finish()
	assert.Zero(t, faults.count())
}

// useLocks has a lock held by l and waited for by other, and another handed to and fro, until finish,
// which sees that nothing was lost.
func useLocks(t *testing.T, l, other *redlock.Locker) (finish func()) {
	t.Helper()
	held, err := l.Acquire(t.Context(), "held", redlock.Fenced())
	require.NoError(t, err)
	var handed atomic.Int64
	ended := make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		defer close(ended)
		for ; ctx.Err() == nil; handed.Add(1) {
			for _, by := range []*redlock.Locker{l, other} {
				k, err := by.Acquire(context.Background(), "handed over")
				if !assert.NoError(t, err) {
					break
				}
				time.Sleep(time.Millisecond)
				k.Release(context.Background()) // what a server does not confirm at this moment it is told again
			}
		}
	}()
	waiter := make(chan *redlock.Lock)
	go func() {
		k, err := other.Acquire(context.Background(), "held")
		assert.NoError(t, err)
		waiter <- k
	}()
	return func() {
		t.Helper()
		poll(t, 2*time.Minute, func() error { // how often in a given time, depends on the machine
			if n := handed.Load(); n <= 20 {
				return fmt.Errorf("handed over %d times", n)
			}
			return nil
		})
		stop()
		<-ended
		assert.True(t, held.Valid())
		assert.NotErrorIs(t, held.Release(t.Context()), redlock.ErrLost) // connections may just have ended
		next := <-waiter
		require.NotNil(t, next)
		assert.NotErrorIs(t, next.Release(t.Context()), redlock.ErrLost)
	}
}
