package pool

import (
	"bytes"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/pool/internal/link"
)

func withRecord(key string) protocol.Request {
	r := acquire(key, "v")
	r.Epoch = "e"
	return r
}

func writeRecord(t *testing.T, n protocol.Node) {
	t.Helper()
	before := do(t, n, protocol.Request{Op: protocol.OpAdmit, Key: "e", Admit: &protocol.Admission{}})
	require.Equal(t, protocol.Granted, before.Outcome, "%v", before.Err)
	after := do(t, n, protocol.Request{Op: protocol.OpAdmit, Key: "e", Admit: &protocol.Admission{
		New: "a record", Run: before.Run, Life: time.Hour,
	}})
	require.Equal(t, "a record", after.Epoch.Record, "%v", after.Err)
}

// TestOneLookAtTheRecordServesABatch of acquisitions, and comes behind all of them.
func TestOneLookAtTheRecordServesABatch(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := openGated(t, r.url())
	writeRecord(t, n)
	var requests []protocol.Request
	for _, key := range []string{"a", "b", "c"} {
		req := withRecord(key)
		req.TTL, req.Timeout = time.Minute, testTimeout
		requests = append(requests, req)
	}
	got := submitTogether(t, n, requests...)
	for _, to := range got {
		reply := to.next(t)
		assert.Equal(t, protocol.Granted, reply.Outcome)
		assert.Positive(t, reply.Life)
		assert.Equal(t, "run1/data1", reply.Run)
	}
	tail := r.commands("SET", "PTTL e")
	tail = tail[len(tail)-4:]
	assert.Equal(t, "1 PTTL e", tail[3])
	assert.False(t, slices.ContainsFunc(tail[:3], func(s string) bool { return strings.Contains(s, "PTTL") }))
}

// TestAGrantIsHeldBackUntilTheRecordWasSeen: the record is read after the grant, and the grant
// counts only with it.
func TestAGrantIsHeldBackUntilTheRecordWasSeen(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.open()
	writeRecord(t, n)
	r.hangAt("PTTL")
	to := submit(t, n, withRecord("k"))
	eventually(t, func() bool { return r.Exists("k") }, "the lock is set")
	require.Empty(t, to)
	r.FlushAll()
	r.goOn()
	reply := to.next(t)
	assert.Equal(t, protocol.Granted, reply.Outcome)
	assert.Zero(t, reply.Life, "what happened after the grant is seen")
}

func TestAGrantWithoutALookAtTheRecordIsUnknown(t *testing.T) {
	t.Parallel()
	t.Run("the connection breaks", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		dialled, breaks := cut()
		n := r.open(dialled)
		writeRecord(t, n)
		r.hangAt("PTTL")
		unknown := submit(t, n, withRecord("k"))
		eventually(t, func() bool { return r.Exists("k") }, "the lock is set")
		breaks()
		reply := unknown.next(t)
		assert.Equal(t, protocol.Unknown, reply.Outcome)
		assert.ErrorContains(t, reply.Err, "connection lost")
	})
	t.Run("the server forbids it", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		n := r.open()
		writeRecord(t, n)
		r.fail("PTTL", "NOPERM this user has no permissions to access one of the keys")
		reply := do(t, n, withRecord("k"))
		assert.Equal(t, protocol.Unknown, reply.Outcome)
		assert.ErrorIs(t, reply.Err, ErrPermission)
		r.fail("PTTL", "")
		assert.Equal(t, protocol.Granted, do(t, n, release("k", "v")).Outcome, "the connection goes on")
	})
	t.Run("it never expires, so it is not what was written", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		n := r.open()
		require.NoError(t, r.Set("e", "a record"))
		assert.Zero(t, do(t, n, withRecord("k")).Life)
	})
}

// TestTheRecordAndTheRepliesNameTheServerAlike, and with the data set that it has by now: a failover
// and failback within the process is noticed on the old connection.
func TestTheRecordAndTheRepliesNameTheServerAlike(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.open()
	who := func() (byReply, byScript string) {
		time.Sleep(link.IdentityAge) // a failover takes longer
		byReply = do(t, n, withRecord("k")).Run
		return byReply, do(t, n, protocol.Request{Op: protocol.OpAdmit, Key: "e", Admit: &protocol.Admission{}}).Run
	}
	byReply, byScript := who()
	assert.Equal(t, byScript, byReply)
	r.mu.Lock()
	r.data = "data2"
	r.mu.Unlock()
	time.Sleep(link.IdentityAge)
	assert.ErrorIs(t, do(t, n, withRecord("l")).Err, link.ErrSucceeded, "the vote is not that server's")
	settled(t, n, "m", func(r protocol.Reply) bool { return r.Run == "run1/data2" })
	again, again2 := who()
	assert.Equal(t, "run1/data2", again)
	assert.Equal(t, again2, again)
}

// TestAServerWithoutARunIDIsNamedByItsDataSet, by replies and record alike. A process that is started
// anew has another.
func TestAServerWithoutARunIDIsNamedByItsDataSet(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.is("")
	var log logBuffer
	n := r.open(log.log())
	assert.Equal(t, "data1/data1", do(t, n, withRecord("k")).Run)
	assert.Equal(t, "data1/data1", do(t, n, protocol.Request{Op: protocol.OpAdmit, Key: "e", Admit: &protocol.Admission{}}).Run)
	assert.Equal(t, 1, log.count(n, "its master_replid stands in"))
	assert.Zero(t, log.count(n, "permit INFO"))
	assert.Equal(t, 1, r.connections())
	r.mu.Lock()
	r.data = "data2"
	r.mu.Unlock()
	time.Sleep(link.IdentityAge)
	assert.ErrorIs(t, do(t, n, withRecord("l")).Err, link.ErrSucceeded)
	settled(t, n, "m", func(r protocol.Reply) bool { return r.Run == "data2/data2" })

	nameless := newRig(t)
	nameless.is("")
	nameless.data = ""
	n = nameless.open(log.log())
	assert.Empty(t, do(t, n, withRecord("k")).Run)
	assert.Equal(t, 1, log.count(n, "nothing that could stand in"))
}

// TestARunIDThatAProxyHidesIsAskedOfAScript, which names the server in the record.
func TestARunIDThatAProxyHidesIsAskedOfAScript(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	var dialled atomic.Int32
	hide := func(b []byte) { // the length is as before
		if at := bytes.Index(b, []byte("\r\nrun_id:")); at >= 0 {
			copy(b[at+len("\r\nrun_id:"):], "\r\nwas_id:")
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			dialled.Add(1)
			to, err := net.Dial("tcp", strings.TrimPrefix(s.url(), "redis://"))
			if err != nil {
				c.Close()
				continue
			}
			go pipe(to, c, func([]byte) {})
			go pipe(c, to, hide)
		}
	}()
	var log logBuffer
	n := openNode(t, "redis://"+l.Addr().String(), log.log())
	byReply := do(t, n, withRecord("k"))
	require.Equal(t, protocol.Granted, byReply.Outcome, byReply.Err)
	byScript := do(t, n, protocol.Request{Op: protocol.OpAdmit, Key: "e", Admit: &protocol.Admission{}}).Run
	assert.Equal(t, byScript, byReply.Run)
	assert.Regexp(t, "run_id:"+strings.Split(byScript, "/")[0], string(s.do("INFO", "server").([]byte)))
	assert.EqualValues(t, 1, dialled.Load(), "no connection is ended for that")
	assert.Zero(t, log.count(n, "run_id"))
}

// TestAServerThatWasDemotedIsLeft with the next batch.
func TestAServerThatWasDemotedIsLeft(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.open()
	r.mu.Lock()
	r.demoted = true
	r.mu.Unlock()
	time.Sleep(link.IdentityAge)
	reply := do(t, n, withRecord("k"))
	assert.Equal(t, protocol.Unknown, reply.Outcome)
	assert.ErrorIs(t, reply.Err, ErrReplica)
}
