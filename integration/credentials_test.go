package integration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
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

// TestConnectionsOutliveTheirCredentials: each second all servers get a new user and lose an old
// user, together with all connections that still use the old user. With Reauthenticate only
// connections for hints still use it.
func TestConnectionsOutliveTheirCredentials(t *testing.T) {
	t.Parallel()
	const life = 8 // life of a user, in seconds, and longer if its connections need more time
	r := newRig(t, fleet.Options{Nodes: 3, Volatile: true})
	var admins []redis.Conn
	for _, url := range r.URLs() {
		c, err := redis.DialURL(url)
		require.NoError(t, err)
		defer c.Close()
		admins = append(admins, c)
	}
	var newest atomic.Int64
	rules := redis.Args{"on", "~*", "+@all"}
	if !strings.HasPrefix(r.version(t, 0), "redis_version:6.0.") { // 6.0 has no rules for channels
		rules = rules.Add("&*")
	}
	user := func(i int64) string { return fmt.Sprint("app", i) }
	change := func() (ended int) {
		next := newest.Load() + 1
		for _, c := range admins {
			_, err := c.Do("ACL", append(redis.Args{"SETUSER", user(next), ">" + user(next)}, rules...)...)
			require.NoError(t, err)
			poll(t, failAfter, func() error { // a busy machine renews late
				for line := range strings.Lines(clients(t, c)) {
					if strings.Contains(line, " name=redlock ") && strings.Contains(line, fmt.Sprint(" user=", user(next-life), " ")) {
						return errors.New(line)
					}
				}
				return nil
			})
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
		nodes, err := pool.OpenWith(r.URLs(), append(patient, pool.Reauthenticate(time.Second),
			pool.Credentials(func(context.Context, string) (string, string, error) {
				u := user(newest.Load())
				return u, u, nil
			}))...)
		require.NoError(t, err)
		return newLocker(t, nodes, guarding(steadyTTL, redlock.MemoryGuard(false), redlock.Observe(faults))...)
	}
	holder, waiter := locker(), locker()
	connected(t, holder)
	connected(t, waiter)
	held := acquire(t, holder, "held", redlock.Fenced())
	ctx, stop := context.WithCancel(t.Context())
	h := newHistory()
	var work sync.WaitGroup
	defer work.Wait()
	defer stop()
	for _, l := range []*redlock.Locker{holder, waiter} {
		c := caller{history: h, locker: l, names: []string{"handed over"}}
		work.Go(func() { c.work(ctx) })
	}
	waited := make(chan error, 1)
	go func() {
		k, err := waiter.Acquire(context.Background(), "held")
		if assert.NoError(t, err) {
			err = k.Release(context.Background())
		}
		waited <- err
	}()
	connections := func() (ids [][]string) {
		for _, c := range admins {
			ids = append(ids, slices.Sorted(slices.Values(lockConnections(t, c)))) // servers rotate their client list
			require.Len(t, ids[len(ids)-1], 2, "one of each client")
		}
		return ids
	}
	first, ended := connections(), 0
	for range life + 2 {
		time.Sleep(time.Second)
		ended += change()
	}
	assert.Equal(t, first, connections(), "none was replaced")
	assert.Equal(t, 3*len(admins), ended, "the user of the first connections, and two after it")
	h.goesOn(t, 20)
	stop()
	work.Wait()
	h.judge(t)
	assert.True(t, held.Valid())
	assert.NotErrorIs(t, held.Release(t.Context()), redlock.ErrLost) // a connection may just have ended
	assert.NotErrorIs(t, <-waited, redlock.ErrLost)
	assert.Zero(t, faults.count())
}
