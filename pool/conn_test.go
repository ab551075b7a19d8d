package pool

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlock"
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
		req.TTL, req.Timeout = time.Minute, patience
		require.NoError(t, n.Submit(&req, i, receiverFunc(func(slot int, reply redlock.Reply) {
			defer wg.Done()
			assert.Equal(t, redlock.Granted, reply.Outcome)
			assert.Equal(t, int64(slot), last.Add(1)-1, "replies out of order")
		})))
	}
	wg.Wait()
	assert.Equal(t, 1, r.connections())
	assert.Len(t, r.Keys(), count)
}

type receiverFunc func(int, redlock.Reply)

func (f receiverFunc) Receive(slot int, r redlock.Reply) { f(slot, r) }

func TestALateReplyIsDeliveredOnTheSameConnection(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.open()
	require.Equal(t, redlock.Granted, do(t, n, acquire("warm", "v")).Outcome)
	r.hangAt("SET")
	req := acquire("k", "v")
	req.Timeout = 300 * time.Millisecond // long enough to be sent on a busy machine
	late := submit(t, n, req)
	eventually(t, func() bool { return len(n.(*node).queueNow()) == 0 }, "sent")
	<-time.After(req.Timeout) // which is what must be over
	require.Empty(t, late)
	r.goOn()
	assert.Equal(t, redlock.Granted, late.next(t).Outcome)
	assert.Equal(t, 1, r.connections(), "a caller that stops waiting must not cost the connection")
}

func TestARequestWhoseTimeIsOverIsNotSent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.hangAt("INFO") // keeps requests in the queue until the handshake is done
	n := r.open()
	req := acquire("k", "v")
	req.Timeout = time.Nanosecond
	expired := submit(t, n, req)
	owed := release("k", "v")
	owed.Timeout = time.Nanosecond
	sent := submit(t, n, owed)
	r.goOn()
	reply := expired.next(t)
	assert.Equal(t, redlock.Failed, reply.Outcome)
	assert.ErrorIs(t, reply.Err, ErrExpired)
	assert.Equal(t, redlock.Refused, sent.next(t).Outcome, "a release is never too late")
	assert.Empty(t, r.commands("SET"))
}

func TestAStalledServerIsGivenUpAndFailsFast(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.open(StallTimeout(100*time.Millisecond), DialTimeout(50*time.Millisecond))
	require.Equal(t, redlock.Granted, do(t, n, acquire("warm", "v")).Outcome)
	for _, cmd := range []string{"SET", "CLIENT"} { // so that no handshake succeeds either
		r.hangAt(cmd)
	}
	start := time.Now()
	reply := do(t, n, acquire("k", "v"))
	assert.Equal(t, redlock.Unknown, reply.Outcome, "it was sent, and may yet be run")
	assert.ErrorIs(t, reply.Err, ErrStalled)
	assert.GreaterOrEqual(t, time.Since(start), 100*time.Millisecond)

	eventually(t, func() bool {
		req := acquire("k2", "v")
		err := n.Submit(&req, 0, make(replies, 1))
		return errors.Is(err, ErrStalled) || errors.Is(err, errHandshake)
	}, "requests fail at once while the server is known to hang")

	r.goOn()
	eventually(t, func() bool {
		req := release("none", "v")
		req.Timeout = patience
		to := make(replies, 1)
		return n.Submit(&req, 0, to) == nil && to.next(t).Outcome == redlock.Refused
	}, "the node comes back by itself")
}

func TestASlowServerThatAnswersIsNotStalled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.open(StallTimeout(40 * time.Millisecond))
	require.Equal(t, redlock.Granted, do(t, n, acquire("warm", "v")).Outcome)
	// Idle for longer than the timeout: nothing is outstanding, so nothing is
	// stalled. The wait is the thing under test, not a synchronisation.
	<-time.After(200 * time.Millisecond)
	assert.Equal(t, redlock.Granted, do(t, n, acquire("again", "v")).Outcome)
	assert.Equal(t, 1, r.connections())
}

// The reconnect barrier. The hung connection still has the SET in its buffer
// when the client has long given up and released on a new connection.
func TestARequestLeftInAHungConnectionDoesNotRunAfterItsRelease(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.open(StallTimeout(20 * time.Millisecond))
	require.Equal(t, redlock.Granted, do(t, n, acquire("warm", "v")).Outcome)
	r.hangAt("SET")
	unknown := submit(t, n, acquire("k", "mine"))
	undone := submit(t, n, release("k", "mine"))
	assert.Equal(t, redlock.Unknown, unknown.next(t).Outcome)
	assert.Equal(t, redlock.Unknown, undone.next(t).Outcome)
	goOn := r.pass("SET")
	eventually(t, func() bool { return len(r.commands("EVALSHA")) > 0 }, "the release is retried on the new connection")
	kill := r.commands("CLIENT KILL", "EVALSHA")
	require.Equal(t, "2 CLIENT KILL ID 1", kill[0], "before anything else is sent")
	goOn() // the server gets to the old connection's buffer
	assert.Equal(t, redlock.Granted, do(t, n, acquire("probe", "v")).Outcome)
	assert.Never(t, func() bool { return r.Exists("k") }, 50*time.Millisecond, 5*time.Millisecond)
}

func TestTheBarrierSparesAServerThatWasRestarted(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		now, old server
		kills    bool
	}{
		"same process":           {server{runID: "a", clientID: 9}, server{runID: "a", clientID: 3}, true},
		"other process":          {server{runID: "b", clientID: 9}, server{runID: "a", clientID: 3}, false},
		"not told who it is":     {server{runID: "", clientID: 9}, server{runID: "", clientID: 3}, false},
		"first connection":       {server{runID: "a", clientID: 9}, server{}, false},
		"number not told before": {server{runID: "a", clientID: 9}, server{runID: "a", clientID: 0}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			c, err := (&target{network: "tcp", address: r.Addr()}).dialer(&settings{})(t.Context())
			require.NoError(t, err)
			defer c.Close()
			require.NoError(t, barrier(t.Context(), c, test.now, test.old))
			assert.Equal(t, test.kills, len(r.commands("CLIENT KILL")) == 1)
		})
	}
}

func TestTheQueueIsBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.hangAt("INFO")
	n := r.open(DialTimeout(patience))
	var got sync.WaitGroup
	count := receiverFunc(func(int, redlock.Reply) { got.Done() })
	req := release("k", "v")
	req.MayHold = false
	req.Timeout = patience
	for range maxOutstanding {
		got.Add(1)
		require.NoError(t, n.Submit(&req, 0, count))
	}
	assert.ErrorIs(t, n.Submit(&req, 0, count), ErrFull)
	require.NoError(t, n.Close())
	got.Wait() // Close settles every one of them
}

func TestAForgottenScriptIsSentAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.open()
	require.Equal(t, redlock.Granted, do(t, n, acquire("k", "v")).Outcome)
	r.fail("EVALSHA", "NOSCRIPT No matching script. Please use EVAL.")
	assert.Equal(t, redlock.Granted, do(t, n, release("k", "v")).Outcome)
	assert.Len(t, r.commands("EVAL "), 1)
	assert.False(t, r.Exists("k"))
}

func TestCloseSettlesEveryRequest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.open()
	require.Equal(t, redlock.Granted, do(t, n, acquire("warm", "v")).Outcome)
	r.hangAt("SET")
	sent := submit(t, n, acquire("k", "v"))
	eventually(t, func() bool { return len(n.(*node).queueNow()) == 0 }, "sent")
	require.NoError(t, n.Close())
	reply := sent.next(t)
	assert.Equal(t, redlock.Unknown, reply.Outcome)
	assert.ErrorIs(t, reply.Err, ErrClosed)
	req := acquire("k", "v")
	assert.ErrorIs(t, n.Submit(&req, 0, make(replies, 1)), ErrClosed)
	require.NoError(t, n.Close(), "twice is fine")
}

func (n *node) queueNow() []call {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.queue
}

func TestOnlyAScriptCanBeForgotten(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.open()
	r.fail("SET", "NOSCRIPT nonsense")
	assert.Equal(t, redlock.Failed, do(t, n, acquire("k", "v")).Outcome)
	require.Equal(t, redlock.Refused, do(t, n, release("k", "v")).Outcome)
	r.fail("EVALSHA", "NOSCRIPT nothing")
	r.fail("EVAL", "NOSCRIPT nothing")
	assert.Equal(t, redlock.Failed, do(t, n, release("k", "v")).Outcome, "and only once")
}

// A peer that reads nothing fills the socket's buffer, and the writer hangs.
func TestCloseDoesNotWaitForAWriterThatHangs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.open(StallTimeout(time.Hour))
	require.Equal(t, redlock.Granted, do(t, n, acquire("warm", "v")).Outcome)
	r.hangAt("SET")
	var got sync.WaitGroup
	req := acquire("k", strings.Repeat("v", 1<<20))
	req.TTL, req.Timeout = time.Minute, time.Hour
	for range 64 {
		got.Add(1)
		require.NoError(t, n.Submit(&req, 0, receiverFunc(func(int, redlock.Reply) { got.Done() })))
	}
	require.NoError(t, n.Close())
	got.Wait()
}
