package servers

import (
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/bench/internal/record"
	"github.com/redquorum/redquorum/internal/fleet"
)

func TestCostsAreThoseOfTheLoad(t *testing.T) {
	t.Parallel()
	f, w := start(t, fleet.Process, 2)
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

func TestARestartedNodeCostsNothingAsFarAsIsKnown(t *testing.T) {
	t.Parallel()
	f, w := start(t, fleet.Process, 2)
	before := w.Snapshot(t.Context())
	require.NoError(t, f.Kill(t.Context(), 0))
	assert.Equal(t, record.NodeCosts{}, Costs(before, w.Snapshot(t.Context()))[0], "dead")
	require.NoError(t, f.Restart(t.Context(), 0, fleet.Lost))
	for i := range 2 {
		do(t, client(t, f, i), "SET", "bench:key", "value")
	}
	after := w.Snapshot(t.Context())
	costs := Costs(before, after)
	assert.Equal(t, record.NodeCosts{}, costs[0])
	assert.EqualValues(t, 1, costs[1].Commands["set"])

	do(t, client(t, f, 0), "SET", "bench:key", "value")
	assert.EqualValues(t, 1, Costs(after, w.Snapshot(t.Context()))[0].Commands["set"], "from its start on it counts")
}

func TestAHungNodeDoesNotHoldUpTheOthers(t *testing.T) {
	t.Parallel()
	f, w := start(t, fleet.Process, 2)
	before := w.Snapshot(t.Context())
	if err := f.Pause(t.Context(), 0); err != nil {
		t.Skip(err)
	}
	do(t, client(t, f, 1), "SET", "bench:key", "value")
	began := time.Now()
	for range 2 { // with a connection from before, and without
		costs := Costs(before, w.Snapshot(t.Context()))
		assert.Equal(t, record.NodeCosts{}, costs[0])
		assert.EqualValues(t, 1, costs[1].Commands["set"])
	}
	assert.Less(t, time.Since(began), testLimit)

	require.NoError(t, f.Resume(t.Context(), 0))
	do(t, client(t, f, 0), "SET", "bench:key", "value")
	assert.EqualValues(t, 1, Costs(before, w.Snapshot(t.Context()))[0].Commands["set"])
}

func TestCountersThatWereResetSayNothing(t *testing.T) {
	t.Parallel()
	f, w := start(t, fleet.Process, 1)
	c := client(t, f, 0)
	for range 1000 {
		do(t, c, "PING")
	}
	before := w.Snapshot(t.Context())
	do(t, c, "CONFIG", "RESETSTAT")
	assert.Equal(t, []record.NodeCosts{{}}, Costs(before, w.Snapshot(t.Context())))
}

func TestGrowthIsOfTheNodesThatAnswered(t *testing.T) {
	t.Parallel()
	f, w := start(t, fleet.Process, 2)
	c, err := redis.DialURL(f.URLs()[0])
	require.NoError(t, err)
	defer c.Close()
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
