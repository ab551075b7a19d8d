package integration_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/testenv"
	"github.com/redquorum/redquorum/redlock"
)

// startPairs starts three nodes of two servers each. The last three servers are replicas of the
// first three.
func startPairs(t *testing.T) (r *rig, urls []string) {
	t.Helper()
	r = newRig(t, fleet.Options{Nodes: 6, Volatile: true})
	urls = r.URLs()[:3]
	for i := range urls {
		replicate(t, r, 3+i, i)
		urls[i] += "?standby=" + r.addr(3+i)
	}
	return r, urls
}

// TestSentinelFailsAMajorityOver: Sentinel fails over two of three nodes, with its own timing,
// while two clients are working. Locks do not overlap, the clients follow, and work continues.
func TestSentinelFailsAMajorityOver(t *testing.T) {
	t.Parallel()
	const ttl = time.Second
	r, urls := startPairs(t)
	s := testenv.Servers(t, fleet.Process, fleet.Options{Nodes: 1, Mode: fleet.Sentinel})
	sentinel, err := redis.DialURL(s.URLs()[0])
	require.NoError(t, err)
	t.Cleanup(func() { sentinel.Close() })
	for i := range 3 {
		host, port, _ := strings.Cut(r.addr(i), ":")
		_, err := sentinel.Do("SENTINEL", "MONITOR", fmt.Sprint("node", i), host, port, 1)
		require.NoError(t, err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	h := newHistory()
	var clients sync.WaitGroup
	for range 2 {
		c := caller{history: h, locker: open(t, urls, guarding(ttl)...), names: []string{"x"}}
		clients.Go(func() { c.work(ctx) })
	}
	defer clients.Wait()
	defer cancel()
	h.goesOn(t, 10)

	for i := range 2 {
		poll(t, longWait, func() error { // succeeds once Sentinel has found the standby
			_, err := sentinel.Do("SENTINEL", "FAILOVER", fmt.Sprint("node", i))
			return err
		})
	}
	for i := range 2 {
		poll(t, longWait, func() error { // a Sentinel that stood still for two seconds does nothing for half a minute
			name, err := redis.String(r.do(3+i, "GET", "redlock:primary"))
			if err != nil {
				return err
			}
			info, err := redis.String(r.do(3+i, "INFO", "server")) // Sentinel kills connections
			if id, _, _ := strings.Cut(name, "/"); err == nil && !strings.Contains(info, "run_id:"+id) {
				err = errors.New("the standby is not confirmed")
			}
			return err
		})
	}
	h.goesOn(t, 10)
	cancel()
	clients.Wait()
	h.judge(t)
	for i := range 2 {
		r.awaitInfo(t, i, "replication", "role:slave")
	}
}

// TestGroupsOfServersThatFailOver: a client takes sets before and after a failover of most nodes.
func TestGroupsOfServersThatFailOver(t *testing.T) {
	t.Parallel()
	const ttl = time.Second
	r, urls := startPairs(t)
	l, err := redlock.NewGroups([]redlock.Group{{Name: "first", Nodes: members(t, urls, nil)}},
		guarding(ttl)...)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), longWait)
	defer cancel()
	both := func() {
		t.Helper()
		poll(t, longWait, func() error {
			lock, err := l.AcquireAll(ctx, []string{"a", "b"})
			if err == nil {
				err = lock.Release(ctx)
			}
			return err
		})
	}
	both()
	for i := range 2 {
		r.must(t, 3+i, "REPLICAOF", "NO", "ONE")
		replicate(t, r, i, 3+i)
	}
	both()
}
