package servers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/bench/internal/record"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/need"
)

// testLimit bounds waits for what must happen; only failing tests reach it.
const testLimit = 20 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start gives the test nodes of its own, and a Watch.
func start(t *testing.T, nodes int) (fleet.Fleet, *Watch) {
	t.Helper()
	f := need.Servers(t, fleet.Process, fleet.Options{Nodes: nodes, Volatile: true})
	w, err := Dial(t.Context(), f.URLs())
	require.NoError(t, err)
	t.Cleanup(w.Close)
	return f, w
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

func TestOnlyTheBenchmarksLocksAreDeleted(t *testing.T) {
	t.Parallel()
	f, w := start(t, 2)
	foreign := []string{"invoice:42", "benchmark", "redlock:epoch", "redlock:fence:bench:1", "other:0:bench:1"}
	for i := range 2 {
		c := client(t, f, i)
		for _, key := range foreign {
			do(t, c, "SET", key, "value")
		}
		for j := range 1200 {
			do(t, c, "SET", fmt.Sprint("bench:", j), "value")
		}
	}
	require.NoError(t, w.Clean(t.Context()))
	for i := range 2 {
		left, err := redis.Strings(client(t, f, i).Do("KEYS", "*"))
		require.NoError(t, err)
		assert.ElementsMatch(t, foreign, left)
	}
	require.NoError(t, f.Kill(t.Context(), 1))
	require.ErrorContains(t, w.Clean(t.Context()), "node 2 (127.0.0.1:")
}

func TestCostsAreThoseOfTheLoad(t *testing.T) {
	t.Parallel()
	f, w := start(t, 2)
	c := client(t, f, 0)
	before := w.Snapshot(t.Context())
	for range 100 {
		do(t, c, "SET", "bench:key", "value", "PX", 60_000)
		do(t, c, "EVAL", `return redis.call("GET", KEYS[1])`, 1, "bench:key")
	}
	costs := Costs(before, w.Snapshot(t.Context()))
	assert.Equal(t, map[string]int64{"set": 100, "eval": 100, "get": 100}, costs[0].Commands)
	assert.Greater(t, costs[0].BytesIn, int64(100*60))
	assert.Greater(t, costs[0].BytesOut, int64(100*10))
	assert.Equal(t, map[string]int64{}, costs[1].Commands)
}

func TestEachVersionIsNamedOnce(t *testing.T) {
	t.Parallel()
	redis7, redis72 := map[string]string{"redis_version": "7.0.15"}, map[string]string{"redis_version": "7.2.1"}
	valkey := map[string]string{"redis_version": "7.2.4", "valkey_version": "8.1.0"} // it claims to be a Redis, too
	for want, s := range map[string]Snapshot{
		"": {nil}, "redis 7.0.15": {nil, redis7, redis7}, "redis 7.0.15, redis 7.2.1": {redis72, redis7}, "valkey 8.1.0": {valkey},
	} {
		assert.Equal(t, want, s.Version())
	}
}

func TestGrowthIsOfTheNodesThatAnswered(t *testing.T) {
	t.Parallel()
	f, w := start(t, 2)
	c := client(t, f, 0)
	before := w.Snapshot(t.Context())
	do(t, c, "SETRANGE", "bench:key", 9_999_999, "v")
	after := w.Snapshot(t.Context())
	assert.InEpsilon(t, 5_000_000, Memory(before, after), 0.1, "on average")
	assert.Zero(t, Memory(after, before))
	before[1] = nil
	assert.InEpsilon(t, 10_000_000, Memory(before, after), 0.1)
	before[0]["run_id"] = "another"
	assert.Zero(t, Memory(before, after), "not known")
}

// TestANodeThatCannotTellCostsNothing: it hangs, or is dead, or was started anew, or its counters were
// reset. The others tell all the same.
func TestANodeThatCannotTellCostsNothing(t *testing.T) {
	t.Parallel()
	f, w := start(t, 2)
	before := w.Snapshot(t.Context())
	do(t, client(t, f, 1), "SET", "bench:key", "value")
	silent := func(what string) {
		costs := Costs(before, w.Snapshot(t.Context()))
		assert.Equal(t, record.NodeCosts{}, costs[0], what)
		assert.EqualValues(t, 1, costs[1].Commands["set"], what)
	}
	if err := f.Pause(t.Context(), 0); err == nil {
		silent("with a connection from before")
		silent("without")
		require.NoError(t, f.Resume(t.Context(), 0))
	}
	c := client(t, f, 0)
	for range 1000 {
		do(t, c, "PING")
	}
	counted := w.Snapshot(t.Context())
	do(t, c, "CONFIG", "RESETSTAT")
	assert.Equal(t, record.NodeCosts{}, Costs(counted, w.Snapshot(t.Context()))[0])
	require.NoError(t, f.Kill(t.Context(), 0))
	silent("dead")
	require.NoError(t, f.Restart(t.Context(), 0, fleet.Lost))
	silent("started anew")
	after := w.Snapshot(t.Context())
	do(t, client(t, f, 0), "SET", "bench:key", "value")
	assert.EqualValues(t, 1, Costs(after, w.Snapshot(t.Context()))[0].Commands["set"], "from its start on it counts")
}
