package pool

import (
	"testing"

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
