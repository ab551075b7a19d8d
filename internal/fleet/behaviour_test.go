package fleet_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/testenv"
)

// behaviours are the common behaviors of all kinds of fleets, as promised by the package comment.
var behaviours = []struct {
	name string
	run  func(t *testing.T, f fleet.Fleet)
}{
	{"nodes answer as separate masters", separateMasters},
	{"a paused node hangs, and runs what was sent when it resumes", pauseHangs},
	{"a killed node refuses connections", killRefuses},
	{"what a paused node had queued dies with it", queueDiesWithNode},
	{"restart with kept memory keeps all but the run", restartKept},
	{"restart with lost memory forgets", restartLost},
	{"keys expire by themselves", keysExpire},
	{"a killed client runs nothing more", clientKill},
	{"operations that make no sense are errors", nonsense},
	{"nodes break at the same time", atTheSameTime},
	{"close ends everything", closeEnds},
}

func TestBehaviour(t *testing.T) {
	for _, kind := range []fleet.Kind{fleet.Embedded, fleet.Process} {
		t.Run(string(kind), func(t *testing.T) {
			testenv.NeedKind(t, kind)
			for _, b := range behaviours {
				t.Run(b.name, func(t *testing.T) {
					t.Parallel()
					b.run(t, testenv.Servers(t, kind, fleet.Options{Nodes: 2}))
				})
			}
		})
	}
}

func separateMasters(t *testing.T, f fleet.Fleet) {
	require.Len(t, f.URLs(), 2)
	a, b := connect(t, f, 0), connect(t, f, 1)
	assert.Equal(t, "PONG", a.str("PING"))
	assert.Regexp(t, "^[0-9a-f]{40}$", a.runID())
	assert.NotEqual(t, a.runID(), b.runID())
	assert.Equal(t, a.runID(), connect(t, f, 0).runID(), "of another connection")
	assert.Equal(t, a.info("run_id"), runIDByScript(a), "as a script sees it")
	assert.NotEmpty(t, a.info("redis_version"))
	for _, field := range []string{"run_id:", "maxmemory_policy:", "aof_enabled:", "total_net_repl_input_bytes:", "master_replid:", "second_repl_offset:"} {
		if field != "total_net_repl_input_bytes:" || !strings.HasPrefix(a.info("redis_version"), "6.") {
			assert.Contains(t, a.str("INFO"), field, "of all sections")
		}
	}
	assert.NotContains(t, a.str("INFO", "replication"), a.runID(), "the data set has a name of its own")

	role, err := redis.Values(a.do("ROLE"), nil)
	require.NoError(t, err)
	assert.Equal(t, []byte("master"), role[0])
	policy, err := redis.StringMap(a.do("CONFIG", "GET", "maxmemory-policy"), nil)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"maxmemory-policy": "noeviction"}, policy)

	a.do("SET", "key", "value")
	assert.Nil(t, b.do("GET", "key"))
}

func runIDByScript(c *conn) string {
	return c.str("EVAL", `return string.match(redis.call("INFO", "server"), "run_id:(%w+)")`, 0)
}

func pauseHangs(t *testing.T, f fleet.Fleet) {
	old, leaver := connect(t, f, 0), connect(t, f, 0)
	old.do("PING")
	leaver.do("PING")
	require.NoError(t, f.Pause(t.Context(), 0))

	old.send("SET", "of the old", "1")
	leaver.send("SET", "of the leaver", "1")
	require.NoError(t, leaver.Close())
	young := connect(t, f, 0)
	young.send("SET", "of the young", "1")
	old.silent("an old connection")
	young.silent("a new connection")
	assert.Equal(t, "PONG", connect(t, f, 1).str("PING"), "the other node must not mind")

	require.NoError(t, f.Resume(t.Context(), 0))
	for _, c := range []*conn{old, young} {
		reply, err := c.Receive()
		require.NoError(t, err)
		assert.Equal(t, "OK", reply)
	}
	require.Eventually(t, func() bool { return old.do("GET", "of the leaver") != nil }, longEnough, tick,
		"a command whose sender has left must run all the same")
}

func killRefuses(t *testing.T, f fleet.Fleet) {
	c := connect(t, f, 0)
	c.do("PING")
	require.NoError(t, f.Kill(t.Context(), 0))
	c.broken("a connection to a killed node")
	_, err := net.DialTimeout("tcp", addr(f, 0), longEnough)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	assert.Equal(t, "PONG", connect(t, f, 1).str("PING"), "the other node must not mind")
	require.NoError(t, f.Restart(t.Context(), 0, fleet.Kept))
	connect(t, f, 0).do("PING")
}

func queueDiesWithNode(t *testing.T, f fleet.Fleet) {
	c := connect(t, f, 0)
	c.do("PING")
	require.NoError(t, f.Pause(t.Context(), 0))
	c.send("SET", "key", "value")
	for range 100 {
		require.NoError(t, c.Send("INCR", "counter"))
	}
	require.NoError(t, c.Flush())
	require.NoError(t, f.Kill(t.Context(), 0))
	c.broken("a connection to a killed node")
	require.NoError(t, f.Restart(t.Context(), 0, fleet.Kept))
	assert.EqualValues(t, 0, connect(t, f, 0).do("EXISTS", "key", "counter"))
}

func restartKept(t *testing.T, f fleet.Fleet) {
	urls := f.URLs()
	c := connect(t, f, 0)
	c.do("SET", "key", "value")
	c.do("SET", "lease", "value", "PX", 3_600_000)
	script := c.str("SCRIPT", "LOAD", "return 1")
	before := c.runID()

	// From a running, killed or paused node.
	for _, from := range []func() error{
		func() error { return nil },
		func() error { return f.Kill(t.Context(), 0) },
		func() error { return f.Pause(t.Context(), 0) },
	} {
		require.NoError(t, from())
		require.NoError(t, f.Restart(t.Context(), 0, fleet.Kept))
		c.broken("a connection from before the restart")
		c = connect(t, f, 0)
		assert.Equal(t, "value", c.str("GET", "key"))
		ttl, err := redis.Int(c.do("PTTL", "lease"), nil)
		require.NoError(t, err)
		assert.InDelta(t, 3_600_000, ttl, 1_800_000)
		assert.NotEqual(t, before, c.runID())
		before = c.runID()
		if strings.HasPrefix(c.info("redis_version"), "6.0.") {
			continue // its append-only file also has the scripts
		}
		_, err = c.Do("EVALSHA", script, 0)
		assert.ErrorContains(t, err, "NOSCRIPT")
	}
	assert.Equal(t, urls, f.URLs())
}

func restartLost(t *testing.T, f fleet.Fleet) {
	c := connect(t, f, 0)
	c.do("SET", "key", "value")
	c.do("SELECT", 3)
	c.do("SET", "key", "value")
	before := c.runID()
	connect(t, f, 1).do("SET", "key", "of the other node")

	require.NoError(t, f.Restart(t.Context(), 0, fleet.Lost))
	c = connect(t, f, 0)
	assert.NotEqual(t, before, c.runID())
	assert.Nil(t, c.do("GET", "key"))
	c.do("SELECT", 3)
	assert.Nil(t, c.do("GET", "key"))
	assert.Equal(t, "of the other node", connect(t, f, 1).str("GET", "key"))

	c.do("SET", "later", "value")
	require.NoError(t, f.Restart(t.Context(), 0, fleet.Kept))
	c = connect(t, f, 0)
	c.do("SELECT", 3)
	assert.Equal(t, "value", c.str("GET", "later"), "memory must work again after it was lost")
}

func keysExpire(t *testing.T, f fleet.Fleet) {
	c := connect(t, f, 0)
	c.do("SET", "key", "value", "PX", 50)
	require.Eventually(t, func() bool { return c.do("GET", "key") == nil }, longEnough, tick)
}

func clientKill(t *testing.T, f fleet.Fleet) {
	victim, other := connect(t, f, 0), connect(t, f, 0)
	id, otherID := victim.do("CLIENT", "ID"), other.do("CLIENT", "ID")
	require.NotEqual(t, id, otherID)
	require.Equal(t, id, victim.do("CLIENT", "ID"))
	require.EqualValues(t, 0, other.do("CLIENT", "KILL", "ID", otherID), "a client does not kill itself")
	_, err := other.Do("CLIENT", "KILL", "ID", "x")
	require.Error(t, err) // the text differs between versions

	// Commands that the server may or may not have read already.
	for range 1000 {
		require.NoError(t, victim.Send("INCR", "counter"))
	}
	require.NoError(t, victim.Flush())
	require.EqualValues(t, 1, other.do("CLIENT", "KILL", "ID", id))
	after := other.do("GET", "counter")
	require.NoError(t, victim.raw.SetReadDeadline(time.Now().Add(longEnough)))
	for err = nil; err == nil; { // until the connection ends
		_, err = victim.Receive()
	}
	var timeout net.Error
	require.False(t, errors.As(err, &timeout) && timeout.Timeout(), "the connection is still open")
	assert.Equal(t, after, other.do("GET", "counter"), "a killed client's command ran")
	require.EqualValues(t, 0, other.do("CLIENT", "KILL", "ID", id), "it is gone")
}

func nonsense(t *testing.T, f fleet.Fleet) {
	ctx := t.Context()
	for _, i := range []int{-1, 2} {
		assert.ErrorContains(t, f.Kill(ctx, i), "nodes 0 to 1")
	}
	assert.ErrorContains(t, f.Resume(ctx, 0), "not paused")
	assert.ErrorContains(t, f.Restart(ctx, 0, fleet.Memory(7)), "Kept or Lost")
	require.NoError(t, f.Pause(ctx, 0))
	assert.ErrorContains(t, f.Pause(ctx, 0), "it is paused")
	require.NoError(t, f.Kill(ctx, 0))
	assert.ErrorContains(t, f.Kill(ctx, 0), "already")
	assert.ErrorContains(t, f.Pause(ctx, 0), "it is killed")
	assert.ErrorContains(t, f.Resume(ctx, 0), "it is killed")

	ended, cancel := context.WithCancel(ctx)
	cancel()
	assert.ErrorIs(t, f.Restart(ended, 0, fleet.Kept), context.Canceled)
	require.NoError(t, f.Restart(ctx, 0, fleet.Kept))
}

func atTheSameTime(t *testing.T, f fleet.Fleet) {
	for _, op := range []func(context.Context, int) error{
		f.Pause, f.Resume, f.Kill, func(ctx context.Context, i int) error { return f.Restart(ctx, i, fleet.Lost) },
	} {
		require.NoError(t, fleet.Parallel(len(f.URLs()), func(i int) error { return op(t.Context(), i) }))
	}
	// Two operations on one node: the second waits for the first, and is then invalid.
	kills := make(chan error)
	for range 2 {
		go func() { kills <- f.Kill(context.Background(), 0) }()
	}
	first, second := <-kills, <-kills
	require.True(t, (first == nil) != (second == nil), "of two kills exactly one must succeed")
}

func closeEnds(t *testing.T, f fleet.Fleet) {
	c := connect(t, f, 0)
	c.do("PING")
	require.NoError(t, f.Pause(t.Context(), 0))
	c.send("PING")
	connect(t, f, 0).send("PING")
	require.NoError(t, f.Kill(t.Context(), 1))

	require.NoError(t, f.Close())
	require.NoError(t, f.Close(), "twice")
	assert.ErrorContains(t, f.Restart(t.Context(), 1, fleet.Kept), "closed")
	c.broken("a connection to a closed fleet")
}
