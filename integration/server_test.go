package integration_test

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/testenv"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

func TestReplicaIsRefusedAndItsPrimaryIsNamed(t *testing.T) {
	t.Parallel()
	r := newRig(t, fleet.Options{Nodes: 3}) // the first node becomes the primary of the last
	replica := r.URLs()[2]
	before := openUnconnected(t, []string{replica})
	require.NoError(t, acquire(t, before, "before").Release(context.Background()))
	replicate(t, r, 2, 0)

	_, err := openUnconnected(t, []string{replica}).TryAcquire(context.Background(), "refused")
	wantOnly(t, redlock.ErrNoQuorum, err)
	assert.ErrorIs(t, err, pool.ErrReplica)
	assert.ErrorContains(t, err, r.addr(0))

	// A connection from the node's time as a primary stays open, and must not count.
	_, err = before.TryAcquire(context.Background(), "after")
	wantOnly(t, redlock.ErrNoQuorum, err)
	assert.ErrorIs(t, err, pool.ErrReplica)

	// A replica has no vote until it is promoted.
	locker := openUnconnected(t, r.URLs())
	lock := acquire(t, locker, "without it")
	in, err := locker.Inspect(context.Background(), "without it")
	require.NoError(t, err)
	assert.ErrorIs(t, in.Nodes[2].Err, pool.ErrReplica)
	assert.Equal(t, 2, lock.Votes())
	require.NoError(t, lock.Release(context.Background()))
	r.must(t, 2, "REPLICAOF", "NO", "ONE")
	connected(t, locker)
	lock = acquire(t, locker, "promoted")
	votes(t, lock, 3)
	require.NoError(t, lock.Release(context.Background()))
}

// replicate makes a node the replica of another, and waits until it is in sync: before that it may
// report that it is loading.
func replicate(t *testing.T, r *rig, replica, primary int) {
	t.Helper()
	r.must(t, primary, "CONFIG", "SET", "repl-diskless-sync-delay", 0)
	host, port, err := net.SplitHostPort(r.addr(primary))
	require.NoError(t, err)
	r.must(t, replica, "REPLICAOF", host, port)
	r.awaitInfo(t, replica, "replication", "master_link_status:up")
}

// startOnSocket starts a server with these arguments, and returns its socket. The server ends with
// the test.
func startOnSocket(t *testing.T, arguments ...string) (socket string) {
	t.Helper()
	f := testenv.Servers(t, fleet.Process, fleet.Options{Nodes: 1, Arguments: arguments})
	return strings.TrimPrefix(f.URLs()[0], "unix://")
}
