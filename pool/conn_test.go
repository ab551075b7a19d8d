package pool

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
)

func TestRequestsShareOneConnectionAndKeepTheirOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.open()
	var last atomic.Int64
	var wg sync.WaitGroup
	const count = 5000
	wg.Add(count)
	for i := range count {
		req := acquire(fmt.Sprint("k", i), "v")
		req.TTL, req.Timeout = time.Minute, testTimeout
		require.NoError(t, n.Submit(&req, i, receiverFunc(func(slot int, reply protocol.Reply) {
			defer wg.Done()
			assert.Equal(t, protocol.Granted, reply.Outcome)
			assert.Equal(t, int64(slot), last.Add(1)-1, "replies out of order")
		})))
	}
	wg.Wait()
	assert.Equal(t, 1, r.connections())
	assert.Len(t, r.Keys(), count)
}

type receiverFunc func(int, protocol.Reply)

func (f receiverFunc) Receive(slot int, r protocol.Reply) { f(slot, r) }

func TestALateReplyIsDeliveredOnTheSameConnection(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.open()
	require.Equal(t, protocol.Granted, do(t, n, acquire("warm", "v")).Outcome)
	r.hangAt("SET")
	var late replies
	patiently(t, "sent in time", func(timeout time.Duration) bool {
		req := acquire("k", "v")
		req.Timeout = timeout
		late = submit(t, n, req)
		<-time.After(timeout) // which is what must be over
		return len(late) == 0
	})
	r.goOn()
	assert.Equal(t, protocol.Granted, late.next(t).Outcome)
	assert.Equal(t, 1, r.connections(), "a caller that stops waiting must not cost the connection")
}

// The reconnect barrier. The hung connection still has the SET in its buffer
// when the client has long given up and released on a new connection.
func TestARequestLeftInAHungConnectionDoesNotRunAfterItsRelease(t *testing.T) {
	t.Parallel()
	for name, runID := range map[string]string{"known": "run1", "without a run_id": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			leavesARequest(t, runID)
		})
	}
}

func leavesARequest(t *testing.T, runID string) {
	r := newRig(t)
	r.is(runID)
	dialled, breaks := cut()
	n := r.open(dialled)
	require.Equal(t, protocol.Granted, do(t, n, acquire("warm", "v")).Outcome)
	r.hangAt("SET")
	unknown := submit(t, n, acquire("k", "mine"))
	undone := submit(t, n, release("k", "mine"))
	eventually(t, func() bool { return r.hangs() }, "sent")
	breaks()
	assert.Equal(t, protocol.Unknown, unknown.next(t).Outcome)
	assert.Equal(t, protocol.Unknown, undone.next(t).Outcome)
	goOn := r.pass("SET")
	eventually(t, func() bool { return len(r.commands("EVALSHA")) > 0 }, "the release is retried on the new connection")
	kill := r.commands("CLIENT KILL", "EVALSHA")
	require.Equal(t, "2 CLIENT KILL ID 1", kill[0], "before anything else is sent")
	goOn() // the server gets to the old connection's buffer
	assert.Equal(t, protocol.Granted, do(t, n, acquire("probe", "v")).Outcome)
	assert.Never(t, func() bool { return r.Exists("k") }, 50*time.Millisecond, 5*time.Millisecond)
}

// SCRIPT FLUSH with several requests on their way: each is sent in full, in the
// order in which they were submitted.
func TestForgottenScriptsAreSentAgainInTheirOrder(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	s.since("6.2", "CLIENT PAUSE of writes alone")
	n := openGated(t, s.url())
	require.Equal(t, protocol.Granted, do(t, n, acquire("k", "v")).Outcome)
	s.do("SCRIPT", "FLUSH")
	s.do("CLIENT", "PAUSE", testTimeout.Milliseconds(), "WRITE") // until all are there
	extend := protocol.Request{Op: protocol.OpExtend, Key: "k", Value: "v", TTL: time.Minute}
	inspect := protocol.Request{Op: protocol.OpInspect, Key: "k"}
	got := submitTogether(t, n, extend, inspect, release("k", "v"), inspect)
	eventually(t, func() bool {
		return strings.Contains(s.client("redlock")["flags"], "b")
	}, "sent")
	s.do("CLIENT", "UNPAUSE")
	require.Equal(t, protocol.Granted, got[0].next(t).Outcome)
	assert.Equal(t, "v", got[1].next(t).Value)
	assert.Equal(t, protocol.Granted, got[2].next(t).Outcome)
	assert.Empty(t, got[3].next(t).Value)
}

func TestCloseSettlesEveryRequest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.open()
	require.Equal(t, protocol.Granted, do(t, n, acquire("warm", "v")).Outcome)
	r.hangAt("SET")
	sent := submit(t, n, acquire("k", "v"))
	eventually(t, r.hangs, "sent")
	require.NoError(t, n.Close())
	reply := sent.next(t)
	assert.Equal(t, protocol.Unknown, reply.Outcome)
	assert.ErrorIs(t, reply.Err, ErrClosed)
	req := acquire("k", "v")
	assert.ErrorIs(t, n.Submit(&req, 0, make(replies, 1)), ErrClosed)
	require.NoError(t, n.Close(), "twice is fine")
}

// A peer that reads nothing fills the socket's buffer, and the writer hangs.
func TestCloseDoesNotWaitForAWriterThatHangs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.open(StallTimeout(time.Hour))
	require.Equal(t, protocol.Granted, do(t, n, acquire("warm", "v")).Outcome)
	r.hangAt("SET")
	var got sync.WaitGroup
	req := acquire("k", strings.Repeat("v", 1<<20))
	req.TTL, req.Timeout = time.Minute, time.Hour
	for range 64 {
		got.Add(1)
		require.NoError(t, n.Submit(&req, 0, receiverFunc(func(int, protocol.Reply) { got.Done() })))
	}
	require.NoError(t, n.Close())
	got.Wait()
}

// TestAnAcquisitionIsNotSentAgain when the server has lost the scripts, because its release may be
// under way.
func TestAnAcquisitionIsNotSentAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.open()
	require.Equal(t, protocol.Granted, do(t, n, acquire("warm", "v")).Outcome)
	r.fail("EVALSHA", "NOSCRIPT No matching script. Please use EVAL.")
	fenced := func(op protocol.Op) protocol.Request {
		return protocol.Request{
			Op: op, Key: "k", Value: "v", Counter: "c", Token: time.Now().UnixMicro(), Slack: time.Minute,
			MayHold: op == protocol.OpReleaseFenced,
		}
	}
	acquired := submit(t, n, fenced(protocol.OpAcquireFenced))
	released := submit(t, n, fenced(protocol.OpReleaseFenced))
	reply := acquired.next(t)
	assert.Equal(t, protocol.Failed, reply.Outcome)
	assert.ErrorContains(t, reply.Err, "has lost its scripts")
	released.next(t)
	again := func() bool { return r.connections() > 1 && n.(*node).Connected() }
	eventually(t, again, "the next connection loads the scripts")
	r.fail("EVALSHA", "")
	assert.Equal(t, protocol.Granted, do(t, n, acquire("probe", "v")).Outcome)
	assert.False(t, r.Exists("k"))
}
