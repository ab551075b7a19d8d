package inspect

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/testenv"
	"github.com/redquorum/redquorum/pool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start returns a reader of new servers, and a function that runs a command on the first server.
func start(t *testing.T, n int) (*Reader, fleet.Fleet, func(words ...any)) {
	t.Helper()
	f := testenv.Servers(t, fleet.Embedded, fleet.Options{Nodes: n})
	r := &Reader{Timeout: time.Minute}
	for _, u := range f.URLs() {
		name, dial, err := pool.Dialer(u, pool.DialTimeout(time.Minute))
		require.NoError(t, err)
		r.Servers = append(r.Servers, Dialer{Name: name, Dial: dial})
	}
	c, err := r.Servers[0].Dial(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return r, f, func(words ...any) {
		t.Helper()
		_, err := c.Do(words[0].(string), words[1:]...)
		require.NoError(t, err)
	}
}

// TestAllMembersAreCounted: the answer names only as many members as requested: the readers that
// stay longest, or the waiters that are served first.
func TestAllMembersAreCounted(t *testing.T) {
	t.Parallel()
	r, _, do := start(t, 1)
	do("SET", "read", protocol.ReadersValue)
	do("SET", "held", "value", "PX", 60_000)
	now, queue := time.Now().UnixMilli(), keys.Queue.Of("held")
	for i := range 50 {
		do("ZADD", keys.Readers.Of("read"), now+60_000+int64(i), fmt.Sprint("reader ", i))
		do("ZADD", queue, now-1000+int64(i), fmt.Sprint("waiter ", i))
		do("HSET", keys.Seen(queue), fmt.Sprint("waiter ", i), now+60_000)
	}
	do("ZADD", queue, now-5000, "gone")
	do("HSET", keys.Seen(queue), "gone", now-1)
	h, err := r.Read(t.Context(), Question{Names: []string{"held", "read"}, Members: 5, Beside: true})
	require.NoError(t, err)
	waiters, readers := h.Locks[0].On[0].Waiters, h.Locks[1].On[0].Readers
	assert.Equal(t, 50, waiters.Count, "without the one that has gone")
	assert.Equal(t, 50, readers.Count)
	require.Len(t, readers.First, 5)
	assert.Equal(t, "reader 49", readers.First[4].ID)
	require.Len(t, waiters.First, 4)
	assert.Equal(t, "waiter 0", waiters.First[0].ID)
	assert.GreaterOrEqual(t, waiters.First[0].Waited, time.Second)
	assert.Positive(t, waiters.First[0].Left)
}

// TestSilentServerHidesNoOther: the other servers are still shown, and each lock names the silent
// server once.
func TestSilentServerHidesNoOther(t *testing.T) {
	t.Parallel()
	r, f, do := start(t, 3)
	do("SET", "job", "value", "PX", 60_000)
	r.Timeout = 6 * time.Second // for the others, on a busy machine
	require.NoError(t, f.Pause(t.Context(), 2))
	h, err := r.Read(t.Context(), Question{Limit: 10, Members: 1})
	require.NoError(t, f.Resume(t.Context(), 2))
	require.NoError(t, err)
	assert.NoError(t, h.Servers[0].Err)
	assert.Error(t, h.Servers[2].Err)
	require.Len(t, h.Locks, 1)
	assert.Equal(t, "value", h.Locks[0].On[0].Value)
	assert.Equal(t, h.Servers[2].Err, h.Locks[0].On[2].Err)
	assert.Equal(t, Claim{State: Unknown, Votes: 1, Value: "value"}, Judge(h.Locks[0].On), "the silent one may have it, too")
}

// A deaf connection takes commands and gives no answers until it is closed.
type deaf struct {
	redis.Conn
	closed context.CancelFunc
	ended  context.Context
}

func (d deaf) Close() error { d.closed(); return nil }

func TestLateAnswerEndsTheConnection(t *testing.T) {
	t.Parallel()
	d := deaf{}
	d.ended, d.closed = context.WithCancel(t.Context())
	r := &Reader{Timeout: time.Millisecond}
	err := r.Within(t.Context(), d, func() error { <-d.ended.Done(); return d.ended.Err() })
	assert.EqualError(t, err, "no answer within 1ms")
}

func TestEscapedPatternsMatchThemselves(t *testing.T) {
	assert.Equal(t, `a\*b\?\[c\]\\`, escapeGlob(`a*b?[c]\`))
}
