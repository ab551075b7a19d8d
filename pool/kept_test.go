package pool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlock"
)

func TestAReleaseThatDidNotArriveIsMadeLater(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.open()
	require.Equal(t, redlock.Granted, do(t, n, acquire("k", "v")).Outcome)
	addr := r.Addr()
	r.Close() // keeps its data
	down := func() bool {
		req := acquire("other", "v")
		return n.Submit(&req, 0, make(replies, 1)) != nil
	}
	eventually(t, down, "the node notices")
	owed, needless := release("k", "v"), release("k2", "v")
	needless.MayHold, needless.Timeout = false, patience
	require.Error(t, n.Submit(&owed, 0, make(replies, 1)))
	require.Error(t, n.Submit(&needless, 0, make(replies, 1)))
	require.NoError(t, r.StartAddr(addr))
	r.Server().SetPreHook(r.before)
	eventually(t, func() bool { return !r.Exists("k") }, "the release is made up for")
	require.Equal(t, redlock.Granted, do(t, n, acquire("probe", "v")).Outcome)
	assert.Len(t, r.commands("EVALSHA"), 1, "and none for a node that never held the value")
}

func TestKeptReleasesAreBounded(t *testing.T) {
	t.Parallel()
	var k kept
	old := &redlock.Request{Op: redlock.OpRelease, MayHold: true, TTL: -time.Second}
	live := &redlock.Request{Op: redlock.OpRelease, MayHold: true, TTL: time.Hour}
	for range maxKept {
		k.keep(call{request: old})
	}
	k.keep(call{request: live})
	assert.Len(t, k.owed, 1, "those whose keys have expired make room")
	for range maxKept + 10 {
		k.keep(call{request: live})
	}
	assert.Len(t, k.owed, maxKept)
	k.keep(call{request: &redlock.Request{Op: redlock.OpAcquire}})
	assert.Len(t, k.take(), maxKept)
	assert.Empty(t, k.take())
}

// The server is up and answers, but will not delete just now.
func TestAReleaseThatIsRefusedWithAnErrorIsTriedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.open()
	require.Equal(t, redlock.Granted, do(t, n, acquire("k", "v")).Outcome)
	r.fail("EVALSHA", "NOREPLICAS Not enough good replicas to write.")
	assert.Equal(t, redlock.Failed, do(t, n, release("k", "v")).Outcome)
	r.fail("EVALSHA", "")
	eventually(t, func() bool { return !r.Exists("k") }, "the release is made up for")
	assert.Equal(t, 1, r.connections())
}

func TestANodeThatIsFullStillTakesReleases(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.open()
	require.Equal(t, redlock.Granted, do(t, n, acquire("k", "v")).Outcome)
	n.(*node).out.Add(maxOutstanding)
	defer n.(*node).out.Add(-maxOutstanding)
	req := acquire("k2", "v")
	require.ErrorIs(t, n.Submit(&req, 0, make(replies, 1)), ErrFull)
	assert.Equal(t, redlock.Granted, do(t, n, release("k", "v")).Outcome)
}
