package pool

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/fleet/relay"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/testenv"
	"github.com/redquorum/redquorum/pool/internal/link"
)

// TestLateVoteOfAServerThatFailedOverAndBackDoesNotCount: the network holds a vote while its server
// becomes the replica of an older copy and is promoted again. The process is the same, and so is
// the record, but the server lost a lock.
func TestLateVoteOfAServerThatFailedOverAndBackDoesNotCount(t *testing.T) {
	t.Parallel()
	for name, standby := range map[string]bool{"one server": false, "a node with a standby": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t)
			wire, err := relay.New(p.addr(0))
			require.NoError(t, err)
			t.Cleanup(wire.Close)
			url, direct := wire.URL(), p.URLs()[0]
			if standby {
				url, direct = url+"?standby="+p.addr(1), p.url()
			}
			n, holder := openNode(t, url), openNode(t, direct)
			granted(t, holder, "first")
			run := do(t, holder, protocol.Request{Op: protocol.OpAdmit, Key: "redlock:epoch", Admit: &protocol.Admission{}}).Run
			written := do(t, holder, protocol.Request{Op: protocol.OpAdmit, Key: "redlock:epoch", Admit: &protocol.Admission{
				New: "a record", Run: run, Life: time.Hour,
			}})
			require.Equal(t, "a record", written.Epoch.Record, "%v", written.Err)
			granted(t, n, "before")
			eventually(t, func() bool { return p.do(1, "EXISTS", "redlock:epoch").(int64) == 1 }, "the copy has the record")
			p.promote(1)
			require.Equal(t, protocol.Granted, do(t, holder, recorded("held")).Outcome)

			require.Equal(t, protocol.Granted, do(t, n, recorded("just before")).Outcome)
			struck := wire.Struck()
			wire.Break(relay.Requests, relay.Fault{Mode: relay.Hold})
			late := submit(t, n, recorded("held"))
			eventually(t, func() bool { return wire.Struck() > struck }, "the vote is on its way")
			p.demote(0)
			p.promote(0)
			require.EqualValues(t, 0, p.do(0, "EXISTS", "held"), "the server lost the lock")
			require.EqualValues(t, 1, p.do(0, "EXISTS", "redlock:epoch"))
			wire.Heal()

			vote := late.next(t)
			assert.Equal(t, protocol.Unknown, vote.Outcome)
			assert.ErrorIs(t, vote.Err, link.ErrSucceeded)
		})
	}
}

// TestServerRestoredFromASnapshotHasForgotten: CLIENT ID went back under the same run_id. The
// client that notices this deletes the record, so that other clients notice it, too.
func TestServerRestoredFromASnapshotHasForgotten(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var log logBuffer
	n, other := r.open(log.log()), r.open()
	again := func(n protocol.Node, key string) protocol.Reply { // repeats the vote until the node has reconnected
		var reply protocol.Reply
		eventually(t, func() bool {
			key += "+"
			reply = try(t, n, withRecord(key))
			return reply.Outcome == protocol.Granted
		}, "a vote")
		return reply
	}
	writeRecord(t, other)
	require.Positive(t, again(other, "a").Life)
	require.Positive(t, again(n, "b").Life)

	r.hangUp()
	assert.Positive(t, again(n, "c").Life, "another connection is no restoration")
	assert.Positive(t, again(other, "d").Life)
	require.Empty(t, r.commands("DEL e"))

	killed := len(r.commands("CLIENT KILL"))
	r.set(func() {
		r.back = int64(len(r.ids)) // the next connection has the number 1
		clear(r.killed)
	})
	r.hangUp()
	assert.Zero(t, again(n, "e").Life)
	assert.False(t, r.Exists("e"))
	assert.Zero(t, again(other, "f").Life)
	assert.Equal(t, 1, log.count(n, "restored from a snapshot"))
	assert.Len(t, r.commands("CLIENT KILL"), killed, "the number may be another client's")

	writeRecord(t, other)
	r.hangUp()
	assert.Positive(t, again(n, "g").Life, "the numbers count from there")
}

// TestReplyHasTheNumberOfItsConnection: the memory guard reads the record again on each new
// connection, because a restored server may have an older record.
func TestReplyHasTheNumberOfItsConnection(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.open()
	granted(t, n, "a")
	for link := range 3 {
		assert.Equal(t, link, do(t, n, withRecord(fmt.Sprint("b", link))).Link)
		assert.Equal(t, link, do(t, n, protocol.Request{Op: protocol.OpAdmit, Key: "e", Admit: &protocol.Admission{}}).Link)
		r.hangUp()
		granted(t, n, fmt.Sprint("c", link))
	}
}

// TestReturnedSlotInvalidatesTheVote: a lock's slot moves to another shard, which loses the lock,
// and back. The process, its replication and the slot of the record stay the same.
func TestReturnedSlotInvalidatesTheVote(t *testing.T) {
	t.Parallel()
	testenv.NeedRedis(t)
	f, err := fleet.Start(t.Context(), fleet.Process, fleet.Options{Nodes: 2, Volatile: true, Mode: fleet.ClusterNode})
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	live{f, t}.since("7.0", "a server without slots can stay a primary")
	var conns [2]redis.Conn
	var ids [2]string
	cluster := func(i int, args ...any) string {
		t.Helper()
		v, err := redis.String(conns[i].Do("CLUSTER", args...))
		require.NoError(t, err)
		return v
	}
	for i, u := range f.URLs() {
		conns[i], err = redis.DialURL(u)
		require.NoError(t, err)
		t.Cleanup(func() { conns[i].Close() })
		ids[i] = cluster(i, "MYID")
		_, err = conns[i].Do("CONFIG", "SET", "cluster-allow-replica-migration", "no") // otherwise the shard without slots becomes a replica
		require.NoError(t, err)
	}
	slots := redis.Args{"ADDSLOTS"}
	for slot := range 16384 {
		slots = slots.Add(slot)
	}
	cluster(0, slots...)
	at, err := url.Parse(f.URLs()[1])
	require.NoError(t, err)
	cluster(0, "MEET", at.Hostname(), at.Port())
	eventually(t, func() bool {
		return strings.Contains(cluster(0, "NODES"), ids[1]) && strings.Contains(cluster(1, "NODES"), ids[0]) &&
			strings.Contains(cluster(0, "INFO"), "cluster_state:ok") && strings.Contains(cluster(1, "INFO"), "cluster_slots_assigned:16384")
	}, "two servers that know each other")
	// The claim with the higher epoch wins a slot. So each claim must wait until both know the last epoch.
	epoch := regexp.MustCompile(`cluster_current_epoch:(\d+)`)
	agreed := func() bool {
		a, b := epoch.FindString(cluster(0, "INFO")), epoch.FindString(cluster(1, "INFO"))
		return a == b
	}

	n := openNode(t, f.URLs()[0])
	before := do(t, n, protocol.Request{Op: protocol.OpAdmit, Key: "redlock:epoch", Admit: &protocol.Admission{}})
	require.Equal(t, protocol.Granted, before.Outcome, "%v", before.Err)
	require.Equal(t, before.Run, do(t, n, recorded("held")).Run, "the script and the replies name it alike")
	slot, err := redis.Int(conns[0].Do("CLUSTER", "KEYSLOT", "held"))
	require.NoError(t, err)
	_, err = conns[0].Do("DEL", "held") // as if the other shard got the keys with the slot and lost them
	require.NoError(t, err)
	for _, to := range []int{1, 0} {
		from := 1 - to
		cluster(to, "SETSLOT", slot, "IMPORTING", ids[from])
		cluster(from, "SETSLOT", slot, "MIGRATING", ids[to])
		cluster(to, "SETSLOT", slot, "NODE", ids[to])
		cluster(from, "SETSLOT", slot, "NODE", ids[to])
		eventually(t, agreed, "both servers know the claim")
	}
	eventually(t, func() bool {
		return strings.Contains(cluster(0, "INFO"), "cluster_size:1") && strings.Contains(cluster(0, "INFO"), "cluster_state:ok")
	}, "the slot is back")

	vote := do(t, n, recorded("held"))
	assert.Equal(t, protocol.Unknown, vote.Outcome)
	assert.ErrorIs(t, vote.Err, link.ErrEpoch)
	after := settled(t, n, "k", func(r protocol.Reply) bool { return r.Outcome == protocol.Granted })
	assert.NotEqual(t, before.Run, after.Run, "the guard must notice")
	named := do(t, n, protocol.Request{Op: protocol.OpAdmit, Key: "redlock:epoch", Admit: &protocol.Admission{}})
	assert.Equal(t, after.Run, named.Run)
}
