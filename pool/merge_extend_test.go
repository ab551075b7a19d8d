package pool

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
)

// submitTogether queues the requests so that the writer finds them all at once.
func submitTogether(n protocol.Node, requests ...protocol.Request) (to []replies) {
	own := n.(*node)
	own.mu.Lock()
	defer own.mu.Unlock()
	for _, r := range requests {
		c := make(replies, 1)
		own.queue = append(own.queue, call{request: &r, encoded: encode(&r, own.formOf(&r)), to: c})
		own.outstanding.Add(1)
		to = append(to, c)
	}
	own.wakeWriter()
	return to
}

// grantedTogether submits the requests together, and has all of them granted.
func grantedTogether(t *testing.T, n protocol.Node, requests []protocol.Request) {
	t.Helper()
	for _, to := range submitTogether(n, requests...) {
		require.Equal(t, protocol.Granted, to.next(t).Outcome)
	}
}

// watchingAll makes the server hint at the next change of each request's key.
func watchingAll(requests []protocol.Request) {
	for i := range requests {
		requests[i] = watching(requests[i])
	}
}

// waitForEach watches the key of each request. The server can give hints then.
func waitForEach(t *testing.T, n protocol.Node, requests []protocol.Request) (watchers []*waiter) {
	t.Helper()
	for i := range requests {
		w := wait(t, n, requests[i].Key)
		watchers = append(watchers, w)
		if i == 0 {
			w.next()
		}
	}
	return watchers
}

// keyAndValue returns the key of number i, and the value that it is held by.
func keyAndValue(i int) (key, value string) { return fmt.Sprint("k", i), fmt.Sprint("v", i) }

// hold has n hold so many keys for ten seconds, and returns the extensions of all.
func hold(t *testing.T, n protocol.Node, keys int) (extensions []protocol.Request) {
	t.Helper()
	for i := range keys {
		key, value := keyAndValue(i)
		require.Equal(t, protocol.Granted, do(t, n, acquire(key, value)).Outcome)
		extensions = append(extensions, extend(key, value))
	}
	return extensions
}

func (s live) ttl(key string) time.Duration {
	s.t.Helper()
	ms, err := redis.Int64(s.do("PTTL", key), nil)
	require.NoError(s.t, err)
	return pttl(ms)
}

// TestMergedExtensionsAnswerAsSingleOnes, whatever is at their keys.
func TestMergedExtensionsAnswerAsSingleOnes(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	n := openNode(t, s.url())
	requests := hold(t, n, 6)
	s.do("DEL", "k1")
	s.do("SET", "k2", "another", "PX", 90_000)
	s.do("SET", "k3", "another")
	s.do("DEL", "k4")
	s.do("LPUSH", "k4", "no lock")
	s.do("PEXPIRE", "k5", 300_000)

	s.do("CONFIG", "RESETSTAT")
	var merged []protocol.Reply
	for _, to := range submitTogether(n, requests...) {
		merged = append(merged, to.next(t))
	}
	assert.Equal(t, 2, s.calls("evalsha"), "one for all, and one for the list")
	for i, r := range requests {
		single := do(t, n, r)
		assert.Equal(t, single.Outcome, merged[i].Outcome, i)
		assert.InDelta(t, single.TTL, merged[i].TTL, float64(testTimeout), i)
		assert.Equal(t, single.Err, merged[i].Err, i)
		assert.Equal(t, single.Run, merged[i].Run, i)
	}
	for i, want := range []protocol.Outcome{
		protocol.Granted, protocol.Refused, protocol.Refused, protocol.Refused, protocol.Failed, protocol.Granted,
	} {
		assert.Equal(t, want, merged[i].Outcome, i)
	}
	assert.Greater(t, s.ttl("k0"), 30*time.Second, "extended")
	assert.Greater(t, s.ttl("k5"), 200*time.Second, "and never shortened")
	assert.Equal(t, "another", string(s.do("GET", "k2").([]byte)))
}

// TestMergedExtensionsAreConfirmed, as other votes are, by one look at the record behind them.
func TestMergedExtensionsAreConfirmed(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	n := openNode(t, s.url())
	writeRecord(t, n)
	requests := hold(t, n, 3)
	for i := range requests {
		requests[i].Epoch = "e"
	}
	s.do("CONFIG", "RESETSTAT")
	for _, to := range submitTogether(n, requests...) {
		reply := to.next(t)
		assert.Equal(t, protocol.Granted, reply.Outcome)
		assert.Positive(t, reply.Life)
		assert.NotEmpty(t, reply.Run)
	}
	assert.Equal(t, 1, s.calls("evalsha"))
}

// TestAThousandExtensionsAreTenScripts, because a script keeps all others waiting.
func TestAThousandExtensionsAreTenScripts(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	n := openNode(t, s.url())
	requests := hold(t, n, 1000)
	s.do("CONFIG", "RESETSTAT")
	grantedTogether(t, n, requests)
	assert.Equal(t, 1000/maxMerged, s.calls("evalsha"))
}

// TestAnExtensionPassesNoOtherRequest for its key.
func TestAnExtensionPassesNoOtherRequest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.open()
	const yes, no = protocol.Granted, protocol.Refused
	both := []protocol.Request{extend("a", "v"), extend("b", "v")}
	requests := append([]protocol.Request{acquire("a", "v"), acquire("b", "v")}, both...)
	requests = append(append(requests, release("a", "v")), both...)
	for i := range requests {
		requests[i].TTL = time.Minute
	}
	var got []protocol.Outcome
	for _, to := range submitTogether(n, requests...) {
		got = append(got, to.next(t).Outcome)
	}
	assert.Equal(t, []protocol.Outcome{yes, yes, yes, yes, yes, no, yes}, got)
	merged := r.commands("EVALSHA " + extendEachScript.digest)
	require.Len(t, merged, 2)
	assert.Contains(t, merged[0], " 2 a b ")
	assert.Contains(t, merged[1], " 2 a b ")
}

// Requests that differ in what they ask for are not merged.
func TestOnlyExtensionsAlikeAreMerged(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.open()
	requests := hold(t, n, 3)
	requests[1].TTL = time.Hour
	requests[2].TTL, requests[2].Watch = time.Hour, true
	grantedTogether(t, n, requests)
	assert.Empty(t, r.commands("EVALSHA "+extendEachScript.digest))
	assert.Equal(t, time.Minute, r.TTL("k0"))
	assert.Equal(t, time.Hour, r.TTL("k1"))
}

// TestMoreKindsThanAreCollectedAtATime are merged all the same, in parts.
func TestMoreKindsThanAreCollectedAtATime(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	n := openNode(t, s.url())
	requests := hold(t, n, 3*(maxGroups+1))
	for i := range requests {
		requests[i].TTL += time.Duration(i/3) * time.Minute
	}
	s.do("CONFIG", "RESETSTAT")
	grantedTogether(t, n, requests)
	assert.Equal(t, maxGroups+1, s.calls("evalsha"), "one for each TTL")
	for i := range requests {
		key, _ := keyAndValue(i)
		assert.InDelta(t, requests[i].TTL, s.ttl(key), float64(30*time.Second), key)
	}
}

// TestMergedExtensionsOutliveALostScript: each is sent by itself, and all that follow, until the
// next connection has the script again.
func TestMergedExtensionsOutliveALostScript(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	n := openNode(t, s.url())
	requests := hold(t, n, 3)
	s.do("SCRIPT", "FLUSH")
	for range 2 {
		grantedTogether(t, n, requests)
	}
	assert.Greater(t, s.ttl("k2"), 30*time.Second)
	s.do("CLIENT", "KILL", "ID", s.client("redlock")["id"])
	eventually(t, func() bool { return outcome(n, requests[0]) == protocol.Granted }, "connected again")
	s.do("CONFIG", "RESETSTAT")
	grantedTogether(t, n, requests)
	assert.Equal(t, 1, s.calls("evalsha"))
}

// outcome is that of a request to a node that may be offline.
func outcome(n protocol.Node, r protocol.Request) protocol.Outcome {
	to := make(replies, 1)
	if n.Submit(&r, 0, to) != nil {
		return protocol.Failed
	}
	return (<-to).Outcome
}

// TestAForbiddenKeyIsNoOthersTrouble: a server refuses a script as a whole if one of its keys is
// not permitted.
func TestAForbiddenKeyIsNoOthersTrouble(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	n := openNode(t, s.as("some", "~k*", "+@all"))
	requests := hold(t, n, 2)
	requests = append(requests, extend("forbidden", "v"))
	got := submitTogether(n, requests...)
	assert.Equal(t, protocol.Granted, got[0].next(t).Outcome)
	assert.Equal(t, protocol.Granted, got[1].next(t).Outcome)
	reply := got[2].next(t)
	assert.Equal(t, protocol.Failed, reply.Outcome)
	assert.ErrorIs(t, reply.Err, ErrPermission)

	s.since("6.2", "INFO commandstats tells rejected calls")
	s.do("CONFIG", "RESETSTAT")
	for _, to := range submitTogether(n, requests...) {
		to.next(t)
	}
	stats := string(s.do("INFO", "commandstats").([]byte))
	assert.Regexp(t, "cmdstat_evalsha:calls=2,.*rejected_calls=1,", stats, "what fails each time is not tried again")
}

// TestMergedExtensionsOfABrokenConnectionAreUnknown, each of them.
func TestMergedExtensionsOfABrokenConnectionAreUnknown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	dialled, breaks := cut()
	n := r.open(dialled)
	requests := hold(t, n, 3)
	r.hangAt("EVALSHA")
	got := submitTogether(n, requests...)
	eventually(t, r.hangs, "sent")
	breaks()
	for _, to := range got {
		assert.Equal(t, protocol.Unknown, to.next(t).Outcome)
	}
	r.goOn()
	assert.Zero(t, n.(*node).outstanding.Load())
}

// TestMergedAnswersThatMakeNoSenseGrantNothing.
func TestMergedAnswersThatMakeNoSenseGrantNothing(t *testing.T) {
	t.Parallel()
	for _, answer := range []any{
		nil, int64(0), int64(-3), "OK", []any{}, []any{int64(-3)}, []any{int64(-3), int64(-3), int64(-3)},
		[]any{nil, nil}, []any{int64(-5), int64(-5)}, []any{"1", "1"}, []any{[]any{}, []any{}},
	} {
		for i := range 2 {
			_, understood := mergedReply(answer, i, 2)
			assert.False(t, understood, answer)
		}
	}
	reply, understood := mergedReply([]any{int64(1), int64(-3)}, 0, 2)
	require.True(t, understood)
	assert.Equal(t, protocol.Refused, reply.Outcome, "the last millisecond of another's key")
}

// TestHoldersAreHintedAfterMergedExtensions, at the change of each key.
func TestHoldersAreHintedAfterMergedExtensions(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	s.since("6.2", "NOLOOP covers what scripts change")
	n := openNode(t, s.url())
	const keys = 20
	requests := hold(t, n, keys)
	watchingAll(requests)
	watchers := waitForEach(t, n, requests)
	for range 2 {
		grantedTogether(t, n, requests)
	}
	s.do("PING")
	for _, w := range watchers {
		assert.Empty(t, w.hints)
	}
	s.do("DEL", "k7", "k19")
	watchers[7].next()
	watchers[19].next()
	assert.Empty(t, watchers[8].hints)
}

// TestAKeyThatGoesBeforeItIsRememberedGivesAHint: others are served between the script and what
// has its keys remembered.
func TestAKeyThatGoesBeforeItIsRememberedGivesAHint(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.tracks = true
	n := r.open()
	requests := hold(t, n, 2)
	w := wait(t, n, "k1")
	w.next()
	watchingAll(requests)
	r.hangAt("EXISTS")
	got := submitTogether(n, requests...)
	eventually(t, r.hangs, "extended")
	r.Del("k1")
	r.goOn()
	for _, to := range got {
		require.Equal(t, protocol.Granted, to.next(t).Outcome)
	}
	w.next()
}

// TestHintsGoOnWhereReadingManyKeysIsForbidden: extensions are not merged then.
func TestHintsGoOnWhereReadingManyKeysIsForbidden(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	s.since("6.2", "NOLOOP covers what scripts change")
	n := openNode(t, s.as("some", "~*", "&*", "+@all", "-exists"))
	requests := hold(t, n, 2)
	w := wait(t, n, "k1")
	w.next()
	watchingAll(requests)
	for range 2 {
		grantedTogether(t, n, requests)
		do(t, n, protocol.Request{Op: protocol.OpInspect, Key: "k0"}) // all answers before it have come
	}
	for len(w.hints) > 0 {
		w.next()
	}
	s.do("DEL", "k1")
	w.next()
}

// TestAMergedCallSaysNoSecret: it is no packet of a known operation, so its values must not come out
// with a server's error.
func TestAMergedCallSaysNoSecret(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.open()
	requests := hold(t, n, 2)
	r.fail("EVALSHA", "ERR unknown command 'EVALSHA', with args beginning with: 'f00' '2' 'k0' 'k1' '60000' 'v0' 'v1'")
	for _, to := range submitTogether(n, requests...) {
		reply := to.next(t)
		assert.Equal(t, protocol.Failed, reply.Outcome)
		assert.False(t, strings.Contains(reply.Err.Error(), "v0"), reply.Err)
	}
}
