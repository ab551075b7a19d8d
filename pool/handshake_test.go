package pool

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
)

func TestFaultOfAServerIsReported(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		user, path string // of the URL
		prepare    func(*rig)
		want       error
		says       string
	}{
		"active replica": {"", "", func(r *rig) { r.role = []any{"active-replica", "10.9.8.7", 6379, "connected", 1} }, ErrReplica, "its role is active-replica"},
		"replica":        {"", "", func(r *rig) { r.role = []any{"slave", "10.9.8.7", 6379, "connected", 1} }, ErrReplica, "10.9.8.7:6379"},
		"loading":        {"", "", func(r *rig) { r.fail("CLIENT", "LOADING Redis is loading the dataset in memory") }, ErrLoading, "loading"},
		"no password":    {"", "", func(r *rig) { r.RequireAuth("right") }, ErrAuth, "NOAUTH"},
		"wrong password": {":wrong-hunter2@", "", func(r *rig) { r.RequireAuth("right") }, ErrAuth, "WRONGPASS"},
		"database":       {"", "/99", func(r *rig) { r.fail("SELECT", "ERR DB index is out of range") }, nil, "out of range"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			test.prepare(r)
			err := trouble(t, openNode(t, "redis://"+test.user+r.Addr()+test.path), acquire("k", "v"))
			if test.want != nil {
				assert.ErrorIs(t, err, test.want)
			}
			assert.ErrorContains(t, err, test.says)
			assert.NotContains(t, err.Error(), "hunter2")
		})
	}
}

// TestProxyThatHidesItsServersIsRefused: this holds even if the proxy forwards SET and EVAL. It may
// hide one server or many, and their restarts. A server with an ACL, or with renamed commands, is
// not a proxy.
func TestProxyThatHidesItsServersIsRefused(t *testing.T) {
	t.Parallel()
	hidden := []string{"CLIENT", "INFO", "ROLE", "SCRIPT"}
	for _, says := range []string{"unsupported command '%s'", "ERR unknown command '%s', with args beginning with: "} {
		r := newRig(t)
		for _, cmd := range hidden {
			r.fail(cmd, fmt.Sprintf(says, cmd))
		}
		err := trouble(t, r.open(), acquire("k", "v"))
		assert.ErrorContains(t, err, "is a proxy, such as Envoy")
		assert.ErrorAs(t, err, new(protocol.PermanentError))
		assert.False(t, r.Exists("k"))

		r = newRig(t)
		for _, cmd := range hidden[1:] {
			r.fail(cmd, fmt.Sprintf(says, cmd))
		}
		assert.Equal(t, protocol.Granted, do(t, r.open(), acquire("k", "v")).Outcome)
	}
}

func TestDeadServerIsDialledWithPauses(t *testing.T) {
	t.Parallel()
	calls := make(chan time.Time)
	n, err := FromDial("down", func(ctx context.Context) (redis.Conn, error) {
		select {
		case calls <- time.Now():
		case <-ctx.Done():
		}
		return nil, errors.New("is down")
	})
	require.NoError(t, err)
	defer n.Close()
	first := <-calls
	for range 4 {
		<-calls
	}
	// 5+10+20+40+80 ms at least: half of each backoff is certain.
	assert.Greater(t, (<-calls).Sub(first), 100*time.Millisecond)
}

// TestServerThatCutsWorkingConnectionsIsSoonBack: waits that double, as for a server that hangs up
// on each new connection, would last for half a second or more after ten cuts.
func TestServerThatCutsWorkingConnectionsIsSoonBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.open()
	answers(t, n)
	fastest := testTimeout
	for i := range 30 {
		cut, made := time.Now(), r.connections()
		r.hangUp()
		eventually(t, func() bool {
			return try(t, n, acquire(fmt.Sprint("k", i), "v")).Err == nil && r.connections() > made
		}, "connected again")
		if i > 10 {
			fastest = min(fastest, time.Since(cut))
		}
	}
	assert.Less(t, fastest, 400*time.Millisecond)
}

// TestDoubtsAreLogged: each doubt is logged once, with advice.
func TestDoubtsAreLogged(t *testing.T) {
	t.Parallel()
	var log logBuffer
	r := newRig(t)
	r.policy = "allkeys-lru"
	r.role = []any{"master", 0}
	n := r.open(log.log())
	require.Equal(t, protocol.Granted, do(t, n, acquire("k", "v")).Outcome)
	r.fail("CLIENT KILL", "NOPERM this user has no permissions to run the 'client|kill' command")
	r.fail("EVALSHA", "BUSY Redis is busy running a script.") // ends the connection
	assert.ErrorContains(t, trouble(t, n, release("k", "v")), "BUSY")
	r.fail("EVALSHA", "")
	eventually(t, func() bool { return r.connections() > 1 && !r.Exists("k") }, "connected again, and the release is retried")
	require.NoError(t, n.Close())
	assert.Equal(t, 2, log.count(n, "\n"))
	assert.Equal(t, 1, log.count(n, "permit CLIENT KILL"))
	assert.Equal(t, 1, log.count(n, "maxmemory-policy is allkeys-lru"))
	assert.Equal(t, 2, log.count(n, r.Addr()))

	log = logBuffer{}
	dumb := newRig(t)
	for _, cmd := range []string{"CLIENT", "INFO", "ROLE", "SCRIPT"} {
		dumb.fail(cmd, "NOPERM this user has no permissions")
	}
	n = dumb.open(log.log())
	require.Equal(t, protocol.Granted, do(t, n, acquire("k", "v")).Outcome)
	require.NoError(t, n.Close())
	for _, permit := range []string{"permit INFO", "permit ROLE", "permit CLIENT ID"} {
		assert.Equal(t, 1, log.count(n, permit))
	}

	log = logBuffer{}
	fine := newRig(t)
	fine.role, fine.policy = []any{"master", 0}, "noeviction"
	n = fine.open(log.log())
	require.Equal(t, protocol.Granted, do(t, n, acquire("k", "v")).Outcome)
	require.NoError(t, n.Close())
	assert.Zero(t, log.count(n, "\n"))
}
