package pool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
)

func TestAReleaseThatDidNotArriveIsMadeLater(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.open()
	require.Equal(t, protocol.Granted, do(t, n, acquire("k", "v")).Outcome)
	addr := r.Addr()
	r.Close() // keeps its data
	down := func() bool {
		req := acquire("other", "v")
		return n.Submit(&req, 0, make(replies, 1)) != nil
	}
	eventually(t, down, "the node notices")
	needed, needless := release("k", "v"), release("k2", "v")
	needless.MayHold, needless.Timeout = false, testTimeout
	require.Error(t, n.Submit(&needed, 0, make(replies, 1)))
	require.Error(t, n.Submit(&needless, 0, make(replies, 1)))
	require.NoError(t, r.StartAddr(addr))
	r.Server().SetPreHook(r.before)
	eventually(t, func() bool { return !r.Exists("k") }, "the release is retried")
	require.Equal(t, protocol.Granted, do(t, n, acquire("probe", "v")).Outcome)
	assert.Len(t, r.commands("EVALSHA"), 1, "and none for a node that never held the value")
}

func TestPendingReleasesAreBounded(t *testing.T) {
	t.Parallel()
	var p pendingReleases
	old := &protocol.Request{Op: protocol.OpRelease, MayHold: true, TTL: -time.Second}
	live := &protocol.Request{Op: protocol.OpRelease, MayHold: true, TTL: time.Hour}
	for range maxPending {
		p.add(call{request: old})
	}
	p.add(call{request: live})
	assert.Len(t, p.list, 1, "those whose keys have expired make room")
	for range maxPending + 10 {
		p.add(call{request: live})
	}
	assert.Len(t, p.list, maxPending)
	p.add(call{request: &protocol.Request{Op: protocol.OpAcquire}})
	assert.Len(t, p.take(), maxPending)
	assert.Empty(t, p.take())
}

// The server answers, but cannot delete just now.
func TestAReleaseThatIsRefusedWithAnErrorIsTriedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.open()
	require.Equal(t, protocol.Granted, do(t, n, acquire("k", "v")).Outcome)
	r.fail("EVALSHA", "NOREPLICAS Not enough good replicas to write.")
	assert.Equal(t, protocol.Failed, do(t, n, release("k", "v")).Outcome)
	r.fail("EVALSHA", "")
	eventually(t, func() bool { return !r.Exists("k") }, "the release is retried")
	assert.Equal(t, 1, r.connections())
}

func TestANodeThatIsFullStillTakesReleases(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.open()
	require.Equal(t, protocol.Granted, do(t, n, acquire("k", "v")).Outcome)
	n.(*node).outstanding.Add(maxOutstanding)
	defer n.(*node).outstanding.Add(-maxOutstanding)
	req := acquire("k2", "v")
	require.ErrorIs(t, n.Submit(&req, 0, make(replies, 1)), ErrFull)
	assert.Equal(t, protocol.Granted, do(t, n, release("k", "v")).Outcome)
}

// A release is not retried where a counter that makes no sense is in its way.
func TestAReleaseIsNotTriedAgainOverACounterThatMakesNoSense(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	s.do("SET", "c", "inf")
	n := openNode(t, s.url())
	r := release("k", "v")
	r.Op, r.Counter, r.Token, r.Slack = protocol.OpReleaseFenced, "c", 5, 1e9
	assert.ErrorIs(t, trouble(t, n, r), ErrCounter)
	assert.Zero(t, n.(*node).pendingReleases())
}

// An ACL or a kind of server that forbids the release now forbids it in 250 ms as well.
func TestAReleaseThatIsInVainIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	for _, message := range []string{
		"ERR Error running script (call to f_1): @user_script:2: @user_script: 2: The user executing the script can't run this command or subcommand",
		"ERR The user executing the script can't run this command or subcommand script: 948f, on @user_script:1.",
		"ERR ACL failure in script: User locks has no permissions to run the 'del' command script: 948f, on @user_script:1.",
		"ERR ACL failure in script: No permissions to access a key script: 948f, on @user_script:1.",
		"MOVED 16287 127.0.0.1:7002",
		"ERR unknown command 'EVALSHA'",
		"WRONGTYPE Operation against a key holding the wrong kind of value",
	} {
		r := newRig(t)
		n := r.open()
		r.fail("EVALSHA", message)
		assert.Equal(t, protocol.Failed, do(t, n, release("k", "v")).Outcome, message)
		assert.Zero(t, n.(*node).pendingReleases(), message)
	}
}

func (n *node) pendingReleases() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.pending.list)
}
