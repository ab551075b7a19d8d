package pool

import (
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
)

// withoutDeletion has the node release by scripts, as servers have it that know no deletion.
func withoutDeletion(n protocol.Node) protocol.Node {
	own := n.(*node)
	<-own.tried // which tells what the server has
	own.deletion.Store(nil)
	return n
}

// releases returns the releases of locks that hold has taken.
func releases(keys int) (all []protocol.Request) {
	for i := range keys {
		r := held(keyAndValue(i))
		r.TTL, r.Timeout = time.Minute, testTimeout
		all = append(all, r)
	}
	return all
}

// outcomesOf waits for the replies.
func outcomesOf(t *testing.T, to []replies) (got []protocol.Outcome) {
	t.Helper()
	for _, each := range to {
		got = append(got, each.next(t).Outcome)
	}
	return got
}

// TestMergedReleasesAnswerAsSingleOnes, whatever is at their keys.
func TestMergedReleasesAnswerAsSingleOnes(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	n := withoutDeletion(openNode(t, s.url()))
	hold(t, n, 7)
	labelled := strings.Repeat("0", 40) + " 1700000000000 someone"
	prepare := func() {
		s.do("FLUSHDB")
		s.do("SET", "k0", "v0", "PX", 60_000)
		s.do("SET", "k2", "another", "PX", 90_000)
		s.do("SET", "k3", labelled)
		s.do("LPUSH", "k4", "no lock")
		s.do("SET", "k5", protocol.ReadersValue, "PX", 90_000)
		s.do("SET", "k6", "v6", "PX", 60_000)
	}
	prepare()
	s.do("CONFIG", "RESETSTAT")
	var merged []protocol.Reply
	for _, to := range submitTogether(n, releases(7)...) {
		merged = append(merged, to.next(t))
	}
	assert.Equal(t, 1+5, s.calls("evalsha"), "one for all, and one for each that has not got its value")
	assert.Nil(t, s.do("GET", "k0"))
	assert.Nil(t, s.do("GET", "k6"))
	assert.Equal(t, []byte("another"), s.do("GET", "k2"))

	prepare()
	for i, r := range releases(7) {
		single := do(t, n, r)
		assert.Equal(t, single.Outcome, merged[i].Outcome, i)
		assert.InDelta(t, single.TTL, merged[i].TTL, float64(testTimeout), i)
		assert.Equal(t, single.Err, merged[i].Err, i)
		assert.Equal(t, single.Owner, merged[i].Owner, i)
		assert.Equal(t, single.Readers, merged[i].Readers, i)
		assert.Equal(t, single.Run, merged[i].Run, i)
	}
	const yes, no = protocol.Granted, protocol.Refused
	for i, want := range []protocol.Outcome{yes, no, no, no, protocol.Failed, no, yes} {
		assert.Equal(t, want, merged[i].Outcome, i)
	}
}

// TestReleasesAreMergedWhereverTheyStand among requests for other keys, a hundred at most.
func TestReleasesAreMergedWhereverTheyStand(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	n := withoutDeletion(openNode(t, s.url()))
	hold(t, n, 150)
	var requests []protocol.Request
	for i, r := range releases(150) {
		other := acquire("other"+r.Key, "v")
		other.TTL, other.Timeout = time.Minute, testTimeout
		if requests = append(requests, r); i%3 == 0 {
			requests = append(requests, other)
		}
	}
	s.do("CONFIG", "RESETSTAT")
	grantedTogether(t, n, requests)
	assert.Equal(t, 2, s.calls("evalsha"))
	assert.Equal(t, int64(50), s.do("DBSIZE"))
}

// TestAReleasePassesNoOtherRequestForItsKey: it would leave the lock that it is to undo.
func TestAReleasePassesNoOtherRequestForItsKey(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	n := withoutDeletion(openNode(t, s.url()))
	hold(t, n, 1)
	requests := []protocol.Request{
		held("k0", "v0"), acquire("a", "v"), held("a", "v"), acquire("a", "w"), held("a", "w"), acquire("k0", "v0"), held("k0", "v0"),
		acquire("b", "v"), held("b", "v"),
	}
	for i := range requests {
		requests[i].TTL, requests[i].Timeout = time.Minute, testTimeout
	}
	for i, o := range outcomesOf(t, submitTogether(n, requests...)) {
		assert.Equal(t, protocol.Granted, o, i)
	}
	assert.Equal(t, int64(0), s.do("DBSIZE"))
}

// TestReleasesOfAnyTTLAreMerged, and a second one for a key is refused, as it is alone.
func TestReleasesOfAnyTTLAreMerged(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	n := withoutDeletion(openNode(t, s.url()))
	hold(t, n, 20)
	requests := releases(20)
	for i := range requests {
		requests[i].TTL += time.Duration(i) * time.Second
	}
	s.do("CONFIG", "RESETSTAT")
	got := outcomesOf(t, submitTogether(n, append(requests, requests[0])...))
	assert.Equal(t, protocol.Granted, got[0])
	assert.Equal(t, protocol.Refused, got[20])
	assert.Equal(t, 2, s.calls("evalsha"))
}

// TestAReleasePassesNoRequestAboutSeveralKeys, of which its own may be one.
func TestAReleasePassesNoRequestAboutSeveralKeys(t *testing.T) {
	t.Parallel()
	n := withoutDeletion(openNode(t, newLive(t).url()))
	hold(t, n, 2)
	slots := protocol.Request{Op: protocol.OpSlots, Key: "free", Slots: &protocol.Slots{Stem: "k", N: 2}, Timeout: testTimeout}
	got := submitTogether(n, held("k0", "v0"), slots, held("k1", "v1"))
	assert.Equal(t, []int{0}, got[1].next(t).Free, "slot 1 is released behind it")
	assert.Equal(t, protocol.Granted, got[2].next(t).Outcome)
}

// TestOnlyReleasesOfHeldLocksAreMerged: others are expected to find another's key.
func TestOnlyReleasesOfHeldLocksAreMerged(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	n := withoutDeletion(openNode(t, s.url()))
	hold(t, n, 4)
	requests := releases(4)
	requests[0].Held, requests[1].Held = false, false
	requests[3].Op, requests[3].Counter, requests[3].Token, requests[3].Slack = protocol.OpReleaseFenced, "c", time.Now().UnixMicro(), time.Minute
	s.do("CONFIG", "RESETSTAT")
	grantedTogether(t, n, requests)
	assert.Equal(t, 4, s.calls("evalsha"))
}

// TestMergedReleasesOfABrokenConnectionAreSentAgain, each of them.
func TestMergedReleasesOfABrokenConnectionAreSentAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	dialled, breaks := cut()
	n := withoutDeletion(r.open(dialled))
	hold(t, n, 3)
	r.hangAt("EVALSHA")
	got := submitTogether(n, releases(3)...)
	eventually(t, r.hangs, "sent")
	breaks()
	for i, o := range outcomesOf(t, got) {
		assert.Equal(t, protocol.Unknown, o, i)
	}
	r.goOn()
	eventually(t, func() bool { return len(r.commands("EVALSHA")) > 1 }, "once on each connection")
	assert.Contains(t, r.commands("EVALSHA")[1], " 3 k0 k1 k2 ")
	eventually(t, func() bool { return n.(*node).outstanding.Load() == 0 }, "all have been answered")
	assert.False(t, r.Exists("k0") || r.Exists("k1") || r.Exists("k2"))
}

// TestMergedReleasesOutliveALostScript, as extensions do.
func TestMergedReleasesOutliveALostScript(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	n := withoutDeletion(openNode(t, s.url()))
	for range 2 {
		hold(t, n, 3)
		s.do("SCRIPT", "FLUSH")
		grantedTogether(t, n, releases(3))
		assert.Equal(t, int64(0), s.do("DBSIZE"))
	}
}

// TestNothingIsMergedWhereReadingManyKeysIsForbidden: it is tried once on a connection.
func TestNothingIsMergedWhereReadingManyKeysIsForbidden(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	n := withoutDeletion(openNode(t, s.as("some", "~*", "+@all", "-mget")))
	for first := 1; first >= 0; first-- {
		extensions := hold(t, n, 3)
		s.do("CONFIG", "RESETSTAT")
		grantedTogether(t, n, extensions)
		assert.Equal(t, first+3, s.calls("evalsha"))
		s.do("CONFIG", "RESETSTAT")
		grantedTogether(t, n, releases(3))
		assert.Equal(t, 3, s.calls("evalsha"))
		assert.Equal(t, int64(0), s.do("DBSIZE"))
	}
}

// TestMergedReleasesWithoutSenseAreMadeAgain, each alone.
func TestMergedReleasesWithoutSenseAreMadeAgain(t *testing.T) {
	t.Parallel()
	for _, answer := range []any{
		nil, int64(0), int64(2), "OK", []any{}, []any{int64(-3)}, []any{int64(-3), int64(-3), int64(-3)}, []any{nil, "1"},
	} {
		r := newRig(t)
		n := withoutDeletion(r.open()).(*node)
		c := &conn{node: n}
		to := []replies{make(replies, 1), make(replies, 1)}
		var each []call
		n.outstanding.Add(2)
		for i, q := range releases(2) {
			each = append(each, call{request: &q, encoded: encode(&q, form{}), to: to[i]})
		}
		c.answerMerged(each, answer, redis.Error(""))
		for i := range to {
			assert.Equal(t, protocol.Refused, to[i].next(t).Outcome, "%v", answer)
		}
		require.Len(t, r.commands("EVALSHA "+releaseScript.digest), 2)
	}
}

// TestAnAnswerAheadOfItsRequestHarmsNoOtherConnection: a server that answers before it is asked gets
// nothing of what is to be sent to others, though merged calls use memory again.
func TestAnAnswerAheadOfItsRequestHarmsNoOtherConnection(t *testing.T) {
	t.Parallel()
	n := withoutDeletion(newRig(t).open()).(*node)
	merge := func(m *merger, requests []protocol.Request) call {
		var batch []call
		for i := range requests {
			n.outstanding.Add(1)
			batch = append(batch, call{request: &requests[i], encoded: encode(&requests[i], form{}), to: make(replies, 1)})
		}
		merged := m.merge(batch)
		require.Len(t, merged, 1)
		return merged[0]
	}
	var one, other merger
	early := merge(&one, releases(3))
	sent := string(early.encoded.packet)
	(&conn{node: n}).answerMerged(early.encoded.each, int64(1), "")
	merge(&other, releases(5)[2:])
	assert.Equal(t, sent, string(early.encoded.packet))
}

// TestAMergedReleaseSaysNoSecret, as a merged extension.
func TestAMergedReleaseSaysNoSecret(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := withoutDeletion(r.open())
	hold(t, n, 2)
	r.fail("EVALSHA", "ERR unknown command 'EVALSHA', with args beginning with: 'f00' '2' 'k0' 'k1' 'v0' 'v1'")
	for _, to := range submitTogether(n, releases(2)...) {
		reply := to.next(t)
		assert.Equal(t, protocol.Failed, reply.Outcome)
		assert.NotContains(t, reply.Err.Error(), "v0")
	}
}
