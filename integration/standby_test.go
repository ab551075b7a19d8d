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
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/check"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/need"
	"github.com/redquorum/redquorum/redlock"
)

// startPairs starts three nodes of two servers, of which the last three are replicas of the first.
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

// TestSentinelFailsAMajorityOver: a Sentinel fails two of three nodes over, on its own terms, while
// two clients are at work. There is no overlap, the clients follow, and work goes on.
func TestSentinelFailsAMajorityOver(t *testing.T) {
	t.Parallel()
	const ttl = time.Second
	r, urls := startPairs(t)
	s := need.Servers(t, fleet.Process, fleet.Options{Nodes: 1, Mode: fleet.Sentinel})
	sentinel, err := redis.DialURL(s.URLs()[0])
	require.NoError(t, err)
	t.Cleanup(func() { sentinel.Close() })
	for i := range 3 {
		host, port, _ := strings.Cut(r.addr(i), ":")
		_, err := sentinel.Do("SENTINEL", "MONITOR", fmt.Sprint("node", i), host, port, 1)
		require.NoError(t, err)
	}

	began := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var holds []check.Hold
	work := func(l *redlock.Locker) {
		for ctx.Err() == nil {
			lock, err := l.Acquire(ctx, "x")
			if err != nil { // an outage is told at once
				wait(ctx, tick)
				continue
			}
			from := time.Since(began)
			deadline := from + lock.Remaining() // by which a caller that a busy machine runs late has stopped
			wait(lock.Context(), tick)
			until := min(deadline, time.Since(began))
			mu.Lock()
			holds = append(holds, check.Hold{From: int64(from), Until: int64(until)})
			mu.Unlock()
			lock.Release(context.Background())
		}
	}
	var clients sync.WaitGroup
	for range 2 {
		l := open(t, urls, guarding(ttl)...)
		clients.Go(func() { work(l) })
	}
	defer clients.Wait()
	defer cancel()
	worked := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(holds)
	}
	goesOn := func() {
		t.Helper()
		before := worked()
		poll(t, failAfter, func() error {
			if worked() < before+10 {
				return errors.New("no lock is granted")
			}
			return nil
		})
	}
	goesOn()

	for i := range 2 {
		poll(t, failAfter, func() error { // once it knows the standby
			_, err := sentinel.Do("SENTINEL", "FAILOVER", fmt.Sprint("node", i))
			return err
		})
	}
	for i := range 2 {
		poll(t, failAfter, func() error {
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
	goesOn()
	cancel()
	clients.Wait()
	assert.Empty(t, check.Overlaps(holds, func(h check.Hold) check.Hold { return h }))
	for i := range 2 {
		poll(t, failAfter, func() error {
			info, err := redis.String(r.do(i, "INFO", "replication"))
			if err == nil && !strings.Contains(info, "role:slave") {
				err = errors.New(info)
			}
			return err
		})
	}
	t.Log(len(holds), "locks")
}

// TestGroupsOfServersThatFailOver: a client founds a map, and takes sets before and after a failover of
// most nodes.
func TestGroupsOfServersThatFailOver(t *testing.T) {
	t.Parallel()
	const ttl = time.Second
	r, urls := startPairs(t)
	l, err := redlock.NewGroups(redlock.Map{Groups: []redlock.Group{{Name: "first", Nodes: members(t, urls, nil)}}},
		guarding(ttl)...)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), failAfter)
	defer cancel()
	both := func() {
		t.Helper()
		poll(t, failAfter, func() error {
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
