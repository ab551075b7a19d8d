package pool

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/pool/internal/link"
)

func TestAStalledServerIsGivenUpAndFailsFast(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.open(StallTimeout(100*time.Millisecond), DialTimeout(50*time.Millisecond))
	answers(t, n)
	for _, cmd := range []string{"SET", "CLIENT"} { // so that no handshake succeeds either
		r.hangAt(cmd)
	}
	start := time.Now()
	reply := do(t, n, acquire("k", "v"))
	assert.Equal(t, protocol.Unknown, reply.Outcome, "it was sent, and may yet be run")
	assert.ErrorIs(t, reply.Err, ErrStalled)
	assert.GreaterOrEqual(t, time.Since(start), 100*time.Millisecond)

	eventually(t, func() bool {
		req := acquire("k2", "v")
		err := n.Submit(&req, 0, make(replies, 1))
		return errors.Is(err, ErrStalled) || errors.Is(err, link.ErrHandshake)
	}, "requests fail at once while the server is known to hang")

	r.goOn()
	eventually(t, func() bool {
		req := release("none", "v")
		req.Timeout = testTimeout
		to := make(replies, 1)
		return n.Submit(&req, 0, to) == nil && to.next(t).Outcome == protocol.Refused
	}, "the node comes back by itself")
}

func TestASlowServerThatAnswersIsNotStalled(t *testing.T) {
	t.Parallel()
	patiently(t, "the connection stays", func(stall time.Duration) bool {
		r := newRig(t)
		n := r.open(StallTimeout(stall))
		answers(t, n)
		// Idle for longer than the timeout: nothing is outstanding, so nothing is
		// stalled. The wait is the thing under test, not a synchronisation.
		<-time.After(2 * stall)
		return do(t, n, acquire("again", "v")).Outcome == protocol.Granted && r.connections() == 1
	})
}
