package pool

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/testenv"
)

// A live server is a redis-server process.
type live struct {
	fleet.Fleet
	t *testing.T
}

func newLive(t *testing.T) live { return newLiveAs(t, fleet.Standalone) }

func newLiveAs(t *testing.T, mode fleet.Mode) live {
	t.Helper()
	f := testenv.Servers(t, fleet.Process, fleet.Options{Nodes: 1, Volatile: true, Mode: mode})
	return live{f, t}
}

func (s live) url() string { return s.URLs()[0] }

// as returns the URL for a user with these ACL rules.
func (s live) as(user string, rules ...any) (url string) {
	s.t.Helper()
	s.do(append([]any{"ACL", "SETUSER", user, "on", ">password"}, rules...)...)
	return strings.Replace(s.url(), "//", "//"+user+":password@", 1)
}

// do runs a command on a separate connection.
func (s live) do(args ...any) any {
	s.t.Helper()
	c, err := redis.DialURL(s.url())
	require.NoError(s.t, err)
	defer c.Close()
	v, err := c.Do(args[0].(string), args[1:]...)
	require.NoError(s.t, err)
	return v
}

// since skips the test on a server older than version, such as "6.2". The missing feature is the
// reason.
func (s live) since(version, what string) {
	s.t.Helper()
	older := map[string]string{"6.2": "6.0.", "7.0": "6."}[version]
	require.NotEmpty(s.t, older)
	if info := string(s.do("INFO", "server").([]byte)); strings.Contains(info, "\nredis_version:"+older) {
		s.t.Skip("since Redis "+version+":", what)
	}
}

// calls returns the number of times that the server has run a command.
func (s live) calls(command string) int {
	s.t.Helper()
	_, after, _ := strings.Cut(string(s.do("INFO", "commandstats").([]byte)), "cmdstat_"+command+":calls=")
	digits, _, _ := strings.Cut(after, ",")
	n, _ := strconv.Atoi(digits)
	return n
}

// A client is a line of CLIENT LIST.
type client map[string]string

// clients returns the clients with this name.
func (s live) clients(name string) (found []client) {
	s.t.Helper()
	for line := range strings.Lines(string(s.do("CLIENT", "LIST").([]byte))) {
		c := client{}
		for field := range strings.FieldsSeq(line) {
			k, v, _ := strings.Cut(field, "=")
			c[k] = v
		}
		if c["name"] == name {
			found = append(found, c)
		}
	}
	return found
}

// client waits for the single client with this name.
func (s live) client(name string) client {
	s.t.Helper()
	var found []client
	eventually(s.t, func() bool {
		found = s.clients(name)
		return len(found) == 1
	}, "one client named "+name)
	return found[0]
}

// unused reports whether no node is connected.
func (s live) unused() bool { return len(s.clients("redlock-hints"))+len(s.clients("redlock")) == 0 }

// A waiter watches a key, and counts its hints.
type waiter struct {
	t     *testing.T
	n     protocol.Node
	key   string
	hints chan struct{}
	stop  func()
}

func wait(t *testing.T, n protocol.Node, key string) *waiter {
	w := &waiter{t: t, n: n, key: key, hints: make(chan struct{}, 1000)}
	w.stop = n.(protocol.Watchable).Watch(key, func(string) { w.hints <- struct{}{} })
	t.Cleanup(w.stop)
	return w
}

// next waits for a hint.
func (w *waiter) next() {
	w.t.Helper()
	select {
	case <-w.hints:
	case <-time.After(testTimeout):
		require.FailNow(w.t, "no hint", w.key)
	}
}

// ask sends an OpWatch.
func (w *waiter) ask() protocol.Reply {
	w.t.Helper()
	return do(w.t, w.n, protocol.Request{Op: protocol.OpWatch, Key: w.key})
}

func TestSentinelIsRefused(t *testing.T) {
	t.Parallel()
	s := newLiveAs(t, fleet.Sentinel)
	err := trouble(t, openNode(t, s.url()), acquire("k", "v"))
	assert.ErrorIs(t, err, ErrSentinel)
	assert.ErrorContains(t, err, "use the servers")
	err = trouble(t, openNode(t, s.url()+"/3"), acquire("k", "v"))
	assert.ErrorIs(t, err, ErrUnsupported, "SELECT comes before the question for the role")
	assert.ErrorContains(t, err, "a Sentinel")
}

func TestNodeOfAClusterIsNamed(t *testing.T) {
	t.Parallel()
	s := newLiveAs(t, fleet.ClusterNode)
	err := trouble(t, openNode(t, s.url()), acquire("k", "v"))
	assert.ErrorIs(t, err, ErrCluster)
	assert.ErrorContains(t, err, "0 of its 16384 slots")
	err = trouble(t, openNode(t, s.url()+"/3"), acquire("k", "v"))
	if !strings.Contains(err.Error(), "out of range") { // Valkey 9
		assert.ErrorIs(t, err, ErrCluster, "there is one database")
	}

	var slots []any
	for slot := range 16384 {
		slots = append(slots, slot)
	}
	s.do(append([]any{"CLUSTER", "ADDSLOTS"}, slots...)...)
	up := func() bool { return strings.Contains(string(s.do("CLUSTER", "INFO").([]byte)), "cluster_state:ok") }
	eventually(t, up, "the cluster is up")
	n := openNode(t, s.url())
	require.Equal(t, protocol.Granted, do(t, n, acquire("k", "v")).Outcome)
	reply := do(t, n, protocol.Request{
		Op: protocol.OpAcquireFenced, Key: "k2", Counter: "c", Value: "v", Token: time.Now().UnixMicro(), Slack: time.Minute,
	})
	assert.ErrorIs(t, reply.Err, ErrCluster, "two keys of two slots")

	s.do(append([]any{"CLUSTER", "DELSLOTS"}, slots...)...)
	assert.ErrorContains(t, trouble(t, n, release("k", "v")), "CLUSTERDOWN")
}

func TestForbiddenCommandIsReported(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	for name, test := range map[string]struct {
		rules []any
		ask   protocol.Request
	}{
		"a command":           {[]any{"~*", "+@all", "-set"}, acquire("k", "v")},
		"a key":               {[]any{"~orders:*", "+@all"}, acquire("k", "v")},
		"scripts":             {[]any{"~*", "+@all", "-evalsha"}, release("k", "v")},
		"a command in script": {[]any{"~*", "+@all", "-get"}, release("k", "v")},
		"a key of a script":   {[]any{"~orders:*", "+@all"}, release("k", "v")},
	} {
		n := openNode(t, s.as(strings.ReplaceAll(name, " ", "-"), test.rules...))
		assert.ErrorIs(t, trouble(t, n, test.ask), ErrPermission, name)
	}
}

// TestServerWithoutQueuesIsADoubt, because nothing else shows that waiters are overtaken.
func TestServerWithoutQueuesIsADoubt(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	var log logBuffer
	n := openNode(t, s.as("unfair", "~*", "+@all", "-zadd"), log.log())
	ask := inQueue("a", time.Second)
	for range 3 {
		assert.ErrorIs(t, trouble(t, n, ask), ErrPermission)
	}
	assert.Equal(t, 1, log.count(n, "served in order"))
	assert.Equal(t, 1, log.count(n, "permit ZADD, ZREM"))

	var none logBuffer
	n = openNode(t, s.url(), none.log())
	assert.Equal(t, protocol.Granted, do(t, n, ask).Outcome)
	assert.Zero(t, none.count(n, "doubt"))
}
