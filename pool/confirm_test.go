package pool

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/record"
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

// TestOneLookAtTheRecordServesABatch: the look follows all acquisitions and merged extensions of
// the batch.
func TestOneLookAtTheRecordServesABatch(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := openGated(t, r.url())
	writeRecord(t, n)
	requests := append(hold(t, n, 2), withRecord("a"), withRecord("b"))
	requests[0].Epoch, requests[1].Epoch = "e", "e"
	for _, to := range submitTogether(t, n, requests...) {
		reply := to.next(t)
		assert.Equal(t, protocol.Granted, reply.Outcome)
		assert.Positive(t, reply.Life)
		assert.Equal(t, "run1/data1", reply.Run)
	}
	var names []string
	for _, line := range r.commands("EVALSHA", "SET ", "PTTL e") {
		names = append(names, strings.Fields(line)[1])
	}
	assert.Equal(t, []string{"EVALSHA", "SET", "SET", "PTTL"}, names[len(names)-4:])
}

// TestGrantWaitsForTheRecord: the record is read after the grant, and the grant counts only with
// the record.
func TestGrantWaitsForTheRecord(t *testing.T) {
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

func TestGrantWithoutTheRecordIsUnknown(t *testing.T) {
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

// who returns the two names of a node's server: from a reply, and from the script of the record.
func who(t *testing.T, n protocol.Node) (byReply, byScript string) {
	t.Helper()
	byReply = do(t, n, withRecord("k")).Run
	return byReply, do(t, n, protocol.Request{Op: protocol.OpAdmit, Key: "e", Admit: &protocol.Admission{}}).Run
}

// TestRecordAndRepliesNameTheSameServer: they also name the same data set, so an old connection
// detects that the process failed over and back. Without a run_id the data set identifies the
// server, and a restarted process has another data set.
func TestRecordAndRepliesNameTheSameServer(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		runID string
		own   bool
		names [2]string
	}{
		{"run1", false, [2]string{"run1/data1", "run1/data2"}},
		{"run-1", false, [2]string{"run-1/data1", "run-1/data2"}}, // as with a proxy or a clone
		{"", false, [2]string{"data1/data1", "data2/data2"}},
		{"", true, [2]string{"data1/" + record.OwnData, "data2/" + record.OwnData}},
	} {
		r := newRig(t)
		r.runID, r.own = row.runID, row.own
		var log logBuffer
		n := r.open(log.log())
		for i, name := range row.names {
			if i > 0 {
				r.set(func() { r.data = "data2" })
				assert.ErrorIs(t, do(t, n, withRecord("l")).Err, link.ErrSucceeded, "the vote is not that server's")
				settled(t, n, "m", func(r protocol.Reply) bool { return r.Run == name })
			}
			byReply, byScript := who(t, n)
			assert.Equal(t, name, byReply)
			assert.Equal(t, name, byScript)
			assert.Equal(t, i+1, r.connections())
		}
		assert.Equal(t, row.runID == "", log.count(n, "its master_replid is used") == 1)
		assert.Zero(t, log.count(n, "permit INFO"))
	}
	nameless := newRig(t)
	nameless.runID, nameless.data = "", ""
	var log logBuffer
	n := nameless.open(log.log())
	assert.Empty(t, do(t, n, withRecord("k")).Run)
	assert.Equal(t, 1, log.count(n, "no run_id and no substitute"))
}

// TestScriptReportsTheRunIDThatAProxyHides: the script also names the server in the record.
func TestScriptReportsTheRunIDThatAProxyHides(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	proxy := listen(t, leadTo(strings.TrimPrefix(s.url(), "redis://"), func(said []byte) {
		if at := bytes.Index(said, []byte("\r\nrun_id:")); at >= 0 {
			copy(said[at:], "\r\nwas_id:") // with the same length
		}
	}))
	var log logBuffer
	n := openNode(t, "redis://"+proxy, log.log())
	byReply, byScript := who(t, n)
	assert.Equal(t, byScript, byReply)
	assert.Regexp(t, "run_id:"+strings.Split(byScript, "/")[0], string(s.do("INFO", "server").([]byte)))
	assert.Len(t, s.clients("redlock"), 1)
	assert.Zero(t, log.count(n, "run_id"))
}

// TestDemotedServerIsLeft: the node leaves the server with the next batch.
func TestDemotedServerIsLeft(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.open()
	require.Equal(t, protocol.Granted, do(t, n, withRecord("before")).Outcome)
	r.set(func() { r.demoted = true })
	reply := do(t, n, withRecord("k"))
	assert.Equal(t, protocol.Unknown, reply.Outcome)
	assert.ErrorIs(t, reply.Err, ErrReplica)
}

// TestReplicaWithoutROLEIsRefused: INFO reports the role as well.
func TestReplicaWithoutROLEIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.demoted = true
	assert.ErrorIs(t, trouble(t, r.open(), withRecord("k")), ErrReplica)
}

// TestVoteWaitsUntilAServerWithAnotherReplicationIDNamesItsData: the server got its first replica,
// so the answer after the vote differs from the answer in the handshake. The vote counts if the
// server still has its own data.
func TestVoteWaitsUntilAServerWithAnotherReplicationIDNamesItsData(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]struct {
		change func(*rig)
		fails  error
	}{
		"a first replica":          {func(r *rig) {}, nil},
		"it took a primary's data": {func(r *rig) { r.own = false }, link.ErrSucceeded},
		"it is confirmed now":      {func(r *rig) { assert.NoError(r.t, r.Set(primaryKey, "run1/data1")) }, link.ErrSucceeded},
		"it is a replica":          {func(r *rig) { r.demoted = true }, ErrReplica},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.own = true
			n := r.open()
			before := do(t, n, withRecord("before"))
			require.Equal(t, "run1/"+record.OwnData, before.Run)
			r.set(func() { r.data = "data2" })
			change.change(r)
			reply := do(t, n, withRecord("k"))
			if change.fails != nil {
				assert.Equal(t, protocol.Unknown, reply.Outcome)
				assert.ErrorIs(t, reply.Err, change.fails)
				return
			}
			assert.Equal(t, protocol.Granted, reply.Outcome, "%v", reply.Err)
			assert.Equal(t, before.Run, reply.Run)
			asked := len(r.commands("INFO"))
			assert.Equal(t, protocol.Granted, do(t, n, withRecord("after")).Outcome)
			assert.Len(t, r.commands("INFO"), asked+1, "the new ID is known")
			assert.Equal(t, 1, r.connections())
		})
	}
}
