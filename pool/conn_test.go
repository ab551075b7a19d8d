package pool

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet/relay"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/pool/internal/link"
)

type receiverFunc func(int, protocol.Reply)

func (f receiverFunc) Receive(slot int, r protocol.Reply) { f(slot, r) }

func TestLateReplyIsDeliveredOnTheSameConnection(t *testing.T) {
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
		eventually(t, func() bool { return r.hangs() || len(late) > 0 }, "sent, or too late for that")
		<-time.After(timeout) // the timeout must have passed
		return len(late) == 0
	})
	r.goOn()
	assert.Equal(t, protocol.Granted, late.next(t).Outcome)
	assert.Equal(t, 1, r.connections(), "a caller that stops waiting must not cost the connection")
}

// The reconnect barrier. The hung connection still has the SET in its buffer long after the client
// has given up and released on a new connection.
func TestRequestInAHungConnectionDoesNotRunAfterItsRelease(t *testing.T) {
	t.Parallel()
	for name, runID := range map[string]string{"known": "run1", "without a run_id": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.is(runID)
			dialled, breaks := cut()
			n := r.open(dialled)
			require.Equal(t, protocol.Granted, do(t, n, acquire("warm", "v")).Outcome)
			r.hangAt("SET")
			unknown := submit(t, n, acquire("k", "mine"))
			undone := submit(t, n, release("k", "mine"))
			eventually(t, r.hangs, "sent")
			breaks()
			assert.Equal(t, protocol.Unknown, unknown.next(t).Outcome)
			assert.Equal(t, protocol.Unknown, undone.next(t).Outcome)
			goOn := r.pass("SET")
			eventually(t, func() bool { return len(r.commands("EVALSHA")) > 0 }, "the release is retried on the new connection")
			kill := r.commands("CLIENT KILL", "EVALSHA")
			require.Equal(t, "2 CLIENT KILL ID 1", kill[0], "before anything else is sent")
			goOn() // the server now reads the old connection's buffer
			assert.Equal(t, protocol.Granted, do(t, n, acquire("probe", "v")).Outcome)
			assert.Never(t, func() bool { return r.Exists("k") }, 50*time.Millisecond, 5*time.Millisecond)
		})
	}
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
func TestCloseDoesNotWaitForAHangingWriter(t *testing.T) {
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

// TestAcquisitionIsNotSentAgain: if the server has lost the scripts, the release of the acquisition
// may be in transit.
func TestAcquisitionIsNotSentAgain(t *testing.T) {
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

func TestLostReleaseIsRetried(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var starting sync.Mutex // prevents dials to a server that is not complete
	n := r.open(NetDial(func(ctx context.Context, network, address string) (net.Conn, error) {
		starting.Lock()
		defer starting.Unlock()
		return new(net.Dialer).DialContext(ctx, network, address)
	}))
	require.Equal(t, protocol.Granted, do(t, n, acquire("k", "v")).Outcome)
	addr := r.Addr()
	r.Close() // the server keeps its data
	eventually(t, func() bool {
		err := try(t, n, acquire("other", "v")).Err
		return err != nil && strings.Contains(err.Error(), "refused") && !strings.Contains(err.Error(), addr)
	}, "the node notices; its name stands before the error anyway")
	needed, needless := release("k", "v"), release("k2", "v")
	needless.MayHold, needless.Timeout = false, testTimeout
	require.Error(t, n.Submit(&needed, 0, make(replies, 1)))
	require.Error(t, n.Submit(&needless, 0, make(replies, 1)))
	starting.Lock()
	err := r.StartAddr(addr)
	r.Server().SetPreHook(r.before)
	starting.Unlock()
	require.NoError(t, err)
	eventually(t, func() bool { return !r.Exists("k") }, "the release is retried")
	require.Equal(t, protocol.Granted, do(t, n, acquire("probe", "v")).Outcome)
	assert.Len(t, r.commands("EVALSHA"), 1, "and none for a node that never held the value")
}

// The server answers, but currently cannot delete.
func TestReleaseIsRetriedAfterAnError(t *testing.T) {
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

func TestStalledServerFailsFast(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.open(StallTimeout(100*time.Millisecond), DialTimeout(time.Second))
	answers(t, n)
	for _, cmd := range []string{"SET", "CLIENT"} { // then no handshake succeeds either
		r.hangAt(cmd)
	}
	start := time.Now()
	reply := do(t, n, acquire("k", "v"))
	assert.Equal(t, protocol.Unknown, reply.Outcome, "it was sent, and may yet be run")
	assert.ErrorIs(t, reply.Err, ErrStalled)
	assert.GreaterOrEqual(t, time.Since(start), 50*time.Millisecond) // the first tick may be old

	eventually(t, func() bool {
		return errors.Is(try(t, n, acquire("k2", "v")).Err, link.ErrHandshake)
	}, "requests fail at once while the server is known to hang")

	r.goOn()
	eventually(t, func() bool { return try(t, n, release("none", "v")).Outcome == protocol.Refused }, "the node comes back by itself")
}

func TestSlowServerIsNotStalled(t *testing.T) {
	t.Parallel()
	patiently(t, "the connection stays", func(stall time.Duration) bool {
		r := newRig(t)
		n := r.open(StallTimeout(stall))
		answers(t, n)
		// The connection is idle for longer than the timeout: nothing is outstanding, so it is not
		// stalled. The wait is the subject of the test, not a synchronisation.
		<-time.After(2 * stall)
		return do(t, n, acquire("again", "v")).Outcome == protocol.Granted && r.connections() == 1
	})
}

// TestDroppedIdleConnectionIsReplaced: it is replaced before a caller needs it, for example if a
// firewall silently drops idle flows.
func TestDroppedIdleConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	firewall, err := relay.New(r.Addr())
	require.NoError(t, err)
	t.Cleanup(firewall.Close)
	idle := option(false, "", func(s *settings) { s.Idle = 10 * time.Millisecond })
	n := openNode(t, firewall.URL(), idle, StallTimeout(100*time.Millisecond))
	answers(t, n)
	before := r.connections()
	firewall.Break(relay.Requests, relay.Fault{Mode: relay.Drop})
	eventually(t, func() bool { return r.connections() > before }, "there is another, though nothing was asked")
}
