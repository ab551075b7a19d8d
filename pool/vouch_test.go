package pool

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlock"
)

func vouched(key string) redlock.Request {
	r := acquire(key, "v")
	r.Epoch = "e"
	return r
}

func admitted(t *testing.T, n redlock.Node) {
	t.Helper()
	r := redlock.Request{Op: redlock.OpAdmit, Key: "e", TTL: time.Minute, Admit: &redlock.Admission{
		Generation: "g", Life: time.Hour, Quarantine: "q", Nodes: 5,
	}}
	require.Equal(t, redlock.Granted, do(t, n, r).Outcome)
}

// TestOneLookAtTheRecordServesABatch of acquisitions, and comes behind all of
// them.
func TestOneLookAtTheRecordServesABatch(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.open()
	admitted(t, n)
	r.hangAt("GET") // of the release's script: what follows is queued behind it
	first := submit(t, n, release("none", "v"))
	eventually(t, func() bool { return len(n.(*node).queueNow()) == 0 }, "sent")
	var got []replies
	n.(*node).mu.Lock() // so that the writer gets them all at once
	for _, key := range []string{"a", "b", "c"} {
		req := vouched(key)
		req.TTL, req.Timeout = time.Minute, patience
		c := call{request: &req, encoded: encode(&req), to: make(replies, 1)}
		n.(*node).queue = append(n.(*node).queue, c)
		n.(*node).out.Add(1)
		got = append(got, c.to.(replies))
	}
	n.(*node).rouse()
	n.(*node).mu.Unlock()
	r.goOn()
	first.next(t)
	for _, to := range got {
		reply := to.next(t)
		assert.Equal(t, redlock.Granted, reply.Outcome)
		assert.Positive(t, reply.Life)
		assert.Equal(t, "run1", reply.Run)
	}
	tail := r.commands("SET", "PTTL e")
	tail = tail[len(tail)-4:]
	assert.Equal(t, "1 PTTL e", tail[3])
	assert.False(t, slices.ContainsFunc(tail[:3], func(s string) bool { return strings.Contains(s, "PTTL") }))
}

// TestAGrantIsHeldBackUntilTheRecordWasSeen: the record is read after the
// grant, and the grant counts only with it.
func TestAGrantIsHeldBackUntilTheRecordWasSeen(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.open()
	admitted(t, n)
	r.hangAt("PTTL")
	to := submit(t, n, vouched("k"))
	eventually(t, func() bool { return r.Exists("k") }, "the lock is set")
	require.Empty(t, to)
	r.FlushAll()
	r.goOn()
	reply := to.next(t)
	assert.Equal(t, redlock.Granted, reply.Outcome)
	assert.Zero(t, reply.Life, "what happened after the grant is seen")
}

func TestAGrantWithoutALookAtTheRecordIsUnknown(t *testing.T) {
	t.Parallel()
	t.Run("the connection breaks", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		n := r.open(StallTimeout(50 * time.Millisecond))
		admitted(t, n)
		r.hangAt("PTTL")
		reply := do(t, n, vouched("k"))
		assert.Equal(t, redlock.Unknown, reply.Outcome)
		assert.ErrorIs(t, reply.Err, ErrStalled)
	})
	t.Run("the server forbids it", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		n := r.open()
		admitted(t, n)
		r.fail("PTTL", "NOPERM this user has no permissions to access one of the keys")
		reply := do(t, n, vouched("k"))
		assert.Equal(t, redlock.Unknown, reply.Outcome)
		assert.ErrorIs(t, reply.Err, ErrPermission)
		r.fail("PTTL", "")
		assert.Equal(t, redlock.Granted, do(t, n, release("k", "v")).Outcome, "the connection goes on")
	})
	t.Run("it never expires, so it is not what was written", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		n := r.open()
		require.NoError(t, r.Set("e", "1 run1 g 5 60000 0"))
		assert.Zero(t, do(t, n, vouched("k")).Life)
	})
}

// TestARecordOfAnotherVersionIsNotUnderstood, and left as it is.
func TestARecordOfAnotherVersionIsNotUnderstood(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.open()
	for _, record := range []string{"2 run1 g 5 60000 0", "nonsense", "1 run1 g five 60000 0"} {
		require.NoError(t, r.Set("e", record))
		r.SetTTL("e", time.Hour)
		reply := do(t, n, redlock.Request{Op: redlock.OpAdmit, Key: "e", TTL: time.Minute, Admit: &redlock.Admission{
			Generation: "h", Life: time.Hour, Quarantine: "q", Nodes: 5,
		}})
		assert.Equal(t, redlock.Unknown, reply.Outcome)
		assert.ErrorIs(t, reply.Err, errRecord)
		kept, err := r.Get("e")
		require.NoError(t, err)
		assert.Equal(t, record, kept)
	}
}

// TestARecordOfAnotherProcessIsWrittenAnew, unless the server does not tell
// who it is.
func TestARecordOfAnotherProcessIsWrittenAnew(t *testing.T) {
	t.Parallel()
	read := func(t *testing.T, n redlock.Node) *redlock.Epoch {
		reply := do(t, n, redlock.Request{Op: redlock.OpAdmit, Key: "e", TTL: time.Second, Admit: &redlock.Admission{
			Generation: "h", Life: time.Hour, Quarantine: "q", Nodes: 5,
		}})
		require.Equal(t, redlock.Granted, reply.Outcome, "%v", reply.Err)
		return reply.Epoch
	}
	r := newRig(t)
	n := r.open()
	admitted(t, n)
	r.Del("q")
	assert.Zero(t, read(t, n).Quarantine)
	r.fail("INFO", "NOPERM this user has no permissions")
	assert.Zero(t, read(t, n).Quarantine, "then only a lost record shows a restart")
	r.fail("INFO", "")
	r.mu.Lock()
	r.runID = "run2"
	r.mu.Unlock()
	epoch := read(t, n)
	assert.Equal(t, time.Minute, epoch.Quarantine, "the longest lock of any client, not of this one")
	assert.Equal(t, "h", epoch.Generation)
}

// TestAnAcquisitionIsNotSentAgain when the server has lost the scripts: its
// release may be under way.
func TestAnAcquisitionIsNotSentAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.open()
	require.Equal(t, redlock.Granted, do(t, n, acquire("warm", "v")).Outcome)
	r.fail("EVALSHA", "NOSCRIPT No matching script. Please use EVAL.")
	fenced := func(op redlock.Op) redlock.Request {
		return redlock.Request{Op: op, Key: "k", Value: "v", Counter: "c", Token: time.Now().UnixMicro(), Slack: time.Minute, MayHold: op == redlock.OpReleaseFenced}
	}
	acquired, released := submit(t, n, fenced(redlock.OpAcquireFenced)), submit(t, n, fenced(redlock.OpReleaseFenced))
	reply := acquired.next(t)
	assert.Equal(t, redlock.Failed, reply.Outcome)
	assert.ErrorIs(t, reply.Err, errScripts)
	released.next(t)
	eventually(t, func() bool { return r.connections() > 1 && n.(*node).connected() }, "the next connection loads the scripts")
	r.fail("EVALSHA", "")
	assert.Equal(t, redlock.Granted, do(t, n, acquire("probe", "v")).Outcome)
	assert.False(t, r.Exists("k"))
}
