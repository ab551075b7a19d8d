package servers

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/bench/internal/record"
	"github.com/redquorum/redquorum/internal/fleet"
)

// tally counts what a client sends and gets.
type tally struct {
	net.Conn
	in, out int64
}

func (c *tally) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.in += int64(n)
	return n, err
}

func (c *tally) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.out += int64(n)
	return n, err
}

func TestCostsAreTheLoadsAlone(t *testing.T) {
	t.Parallel()
	f, w := start(t, fleet.Process, 2)
	raw, err := net.Dial("tcp", strings.TrimPrefix(f.URLs()[0], "redis://"))
	require.NoError(t, err)
	load := &tally{Conn: raw}
	c := redis.NewConn(load, testLimit, testLimit)
	defer c.Close()

	before := w.Costs(t.Context())
	for range 100 {
		do(t, c, "SET", "bench:key", "value", "PX", 60_000)
		do(t, c, "EVAL", `return redis.call("GET", KEYS[1])`, 1, "bench:key")
	}
	do(t, c, "INFO")
	// The Watch's own work is left out.
	n, err := w.countLocks(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.NoError(t, w.Clean(t.Context()))
	w.Costs(t.Context())
	costs := Between(before, w.Costs(t.Context()))

	assert.Equal(t, map[string]int64{"set": 100, "eval": 100, "get": 100, "info": 1}, costs[0].Commands)
	assert.Equal(t, load.in, costs[0].BytesIn)
	assert.Equal(t, load.out, costs[0].BytesOut)
	assert.Positive(t, costs[0].CPU)

	assert.Empty(t, costs[1].Commands)
	assert.Zero(t, costs[1].BytesIn)
	assert.Zero(t, costs[1].BytesOut)
}

func TestALoginOfTheWatchIsLeftOutToo(t *testing.T) {
	t.Parallel()
	f, w := start(t, fleet.Process, 1)
	c := client(t, f, 0)
	do(t, c, "CONFIG", "SET", "requirepass", "secret")
	do(t, c, "AUTH", "secret")
	guarded := watch(t, []string{strings.Replace(f.URLs()[0], "//", "//:secret@", 1) + "/2"})

	before := guarded.Costs(t.Context())
	do(t, c, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") // the Watch's connections among them
	do(t, c, "SELECT", 2)
	do(t, c, "SET", "bench:key", "value")
	costs := Between(before, guarded.Costs(t.Context()))
	assert.Equal(t, map[string]int64{"client|kill": 1, "select": 1, "set": 1}, costs[0].Commands)
	n, err := guarded.countLocks(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, n, "in the database of the URL")

	_, err = Dial(t.Context(), []string{strings.Replace(f.URLs()[0], "//", "//:wrong@", 1)})
	require.ErrorContains(t, err, "does not accept the user or password (WRONGPASS)")
	// One that was let in before has lost its connection, and is let in no more.
	assert.Equal(t, []record.NodeCosts{{}}, Between(before, w.Costs(t.Context())))
}

func TestARestartedNodeCostsNothingAsFarAsIsKnown(t *testing.T) {
	t.Parallel()
	f, w := start(t, fleet.Process, 2)
	before := w.Costs(t.Context())
	require.NoError(t, f.Kill(t.Context(), 0))
	assert.Equal(t, record.NodeCosts{}, Between(before, w.Costs(t.Context()))[0], "dead")
	require.NoError(t, f.Restart(t.Context(), 0, fleet.Lost))
	for i := range 2 {
		do(t, client(t, f, i), "SET", "bench:key", "value")
	}
	after := w.Costs(t.Context())
	costs := Between(before, after)
	assert.Equal(t, record.NodeCosts{}, costs[0])
	assert.Equal(t, map[string]int64{"set": 1}, costs[1].Commands)

	do(t, client(t, f, 0), "SET", "bench:key", "value")
	assert.Equal(t, map[string]int64{"set": 1}, Between(after, w.Costs(t.Context()))[0].Commands, "from its start on it counts")
}

func TestAHungNodeDoesNotHoldUpTheOthers(t *testing.T) {
	t.Parallel()
	f, w := start(t, fleet.Process, 2)
	before := w.Costs(t.Context())
	if err := f.Pause(t.Context(), 0); err != nil {
		t.Skip(err)
	}
	do(t, client(t, f, 1), "SET", "bench:key", "value")
	began := time.Now()
	for range 2 { // with a connection from before, and without
		costs := Between(before, w.Costs(t.Context()))
		assert.Equal(t, record.NodeCosts{}, costs[0])
		assert.Equal(t, map[string]int64{"set": 1}, costs[1].Commands)
	}
	assert.Less(t, time.Since(began), testLimit)

	require.NoError(t, f.Resume(t.Context(), 0))
	do(t, client(t, f, 0), "SET", "bench:key", "value")
	assert.EqualValues(t, 1, Between(before, w.Costs(t.Context()))[0].Commands["set"])
}

func TestCountersThatWereResetSayNothing(t *testing.T) {
	t.Parallel()
	f, w := start(t, fleet.Process, 1)
	c := client(t, f, 0)
	for range 1000 {
		do(t, c, "PING")
	}
	before := w.Costs(t.Context())
	do(t, c, "CONFIG", "RESETSTAT")
	assert.Equal(t, []record.NodeCosts{{}}, Between(before, w.Costs(t.Context())))
}

func TestAnotherRunsCountersAreNotCompared(t *testing.T) {
	t.Parallel()
	before := Snapshot{{run: "a", in: 1, out: 1, commands: map[string]int64{"set": 1}}}
	busier := counters{run: "b", in: 9, out: 9, commands: map[string]int64{"set": 9}}
	assert.Equal(t, []record.NodeCosts{{}}, Between(before, Snapshot{busier}))
	busier.run = "a"
	assert.Equal(t, []record.NodeCosts{{Commands: map[string]int64{"set": 8}, BytesIn: 8, BytesOut: 8}}, Between(before, Snapshot{busier}))
}

func TestEmbeddedNodesDoNotCount(t *testing.T) {
	t.Parallel()
	f, w := start(t, fleet.Embedded, 2)
	before := w.Costs(t.Context())
	do(t, client(t, f, 0), "SET", "bench:key", "value")
	assert.Equal(t, make([]record.NodeCosts, 2), Between(before, w.Costs(t.Context())))
	assert.Empty(t, w.Version(t.Context()))
}

func TestVersionsAreNamedOnceEach(t *testing.T) {
	t.Parallel()
	for want, products := range map[string][]product{
		"":                           {{"redis", ""}},
		"redis 7.0.15":               {{"redis", ""}, {"redis", "7.0.15"}},
		"redis 7.0.15, 7.2.1":        {{"redis", "7.0.15"}, {"redis", "7.2.1"}},
		"redis 7.0.15, valkey 8.1.0": {{"redis", "7.0.15"}, {"valkey", "8.1.0"}},
	} {
		assert.Equal(t, want, list(products))
	}
}

func TestValkeyIsNotTakenForTheRedisItClaimsToBe(t *testing.T) {
	t.Parallel()
	assert.Equal(t, product{"redis", "7.0.15"}, readProduct("# Server\r\nredis_version:7.0.15\r\nos:x\r\n"))
	assert.Equal(t, product{"valkey", "8.1.0"}, readProduct("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.0\r\n"))
	assert.Equal(t, product{"redis", ""}, readProduct(""))
}

func TestTheVersionOfRealServers(t *testing.T) {
	t.Parallel()
	_, w := start(t, fleet.Process, 2)
	assert.Regexp(t, `^(redis|valkey) \d+\.\d+\.\d+$`, w.Version(t.Context()))
}

func TestGrowthIsOfTheNodesThatAnswered(t *testing.T) {
	t.Parallel()
	f, w := start(t, fleet.Process, 2)
	c, err := redis.DialURL(f.URLs()[0])
	require.NoError(t, err)
	defer c.Close()
	before := w.Costs(t.Context())
	do(t, c, "SETRANGE", "bench:key", 9_999_999, "v")
	after := w.Costs(t.Context())
	assert.InEpsilon(t, 5_000_000, Growth(before, after), 0.1, "on average")
	assert.Zero(t, Growth(after, before))
	before[1] = counters{}
	assert.InEpsilon(t, 10_000_000, Growth(before, after), 0.1)
	before[0].run = "another"
	assert.Zero(t, Growth(before, after), "not known")
}
