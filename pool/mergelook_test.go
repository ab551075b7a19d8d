package pool

import (
	"fmt"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/protocol"
)

// lookAt is a look at a lock that is held.
func lookAt(key, value string) protocol.Request {
	return watching(protocol.Request{Op: protocol.OpInspect, Key: key, Value: value, Timeout: testTimeout})
}

// TestMergedLooksAnswerAsSingleOnes, whatever is at their keys, but for what is left of a lock that
// is held.
func TestMergedLooksAnswerAsSingleOnes(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	n := openNode(t, s.url())
	hold(t, n, 6)
	s.do("DEL", "k1")
	s.do("SET", "k2", "another", "PX", 90_000)
	s.do("SET", "k3", "another")
	s.do("DEL", "k4")
	s.do("LPUSH", "k4", "no lock")
	s.do("SET", "k5", "")
	var looks []protocol.Request
	for i := range 6 {
		looks = append(looks, lookAt(keyAndValue(i)))
	}
	s.do("CONFIG", "RESETSTAT")
	var merged []protocol.Reply
	for _, to := range submitTogether(n, looks...) {
		merged = append(merged, to.next(t))
	}
	assert.Equal(t, 1, s.calls("mget"))
	assert.Equal(t, 5, s.calls("evalsha"), "one for each that is not as expected")
	for i, r := range looks {
		single := do(t, n, r)
		assert.Equal(t, single.Outcome, merged[i].Outcome, i)
		assert.Equal(t, single.Value, merged[i].Value, i)
		assert.Equal(t, single.Err, merged[i].Err, i)
		assert.Equal(t, single.Run, merged[i].Run, i)
		if i > 0 {
			assert.InDelta(t, single.TTL, merged[i].TTL, float64(testTimeout), i)
		}
	}
	assert.Equal(t, "v0", merged[0].Value)
	assert.Equal(t, "another", merged[2].Value)
	assert.ErrorIs(t, merged[4].Err, ErrWrongType)
}

// TestHoldersAreHintedAfterMergedLooks, at the change of each key.
func TestHoldersAreHintedAfterMergedLooks(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	n := openNode(t, s.url())
	const keys = 20
	hold(t, n, keys)
	var looks []protocol.Request
	for i := range keys {
		looks = append(looks, lookAt(keyAndValue(i)))
	}
	watchers := waitForEach(t, n, looks)
	s.do("CONFIG", "RESETSTAT")
	grantedTogether(t, n, looks)
	assert.Zero(t, s.calls("evalsha"))
	s.do("DEL", "k7", "k19")
	watchers[7].next()
	watchers[19].next()
	assert.Empty(t, watchers[8].hints)
}

// TestOnlyLooksAlikeAreMerged: those that do not say what they expect want to know what is left.
func TestOnlyLooksAlikeAreMerged(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	n := openNode(t, s.url())
	hold(t, n, 4)
	looks := []protocol.Request{lookAt("k0", "v0"), lookAt("k1", ""), lookAt("k2", "v2"), lookAt("k3", "v3")}
	looks[3].Watch = false
	s.do("CONFIG", "RESETSTAT")
	got := submitTogether(n, looks...)
	for i := range looks {
		reply := got[i].next(t)
		assert.Equal(t, fmt.Sprint("v", i), reply.Value)
		assert.Positive(t, reply.TTL)
	}
	assert.Zero(t, s.calls("mget"))
}

// TestMergedLooksThatFailAreMadeAgain, each alone, and where they are forbidden all that follow.
func TestMergedLooksThatFailAreMadeAgain(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	n := openNode(t, s.as("some", "~*", "+@all", "-mget"))
	hold(t, n, 2)
	looks := []protocol.Request{lookAt("k0", "v0"), lookAt("k1", "v1")}
	for range 2 {
		s.do("CONFIG", "RESETSTAT")
		grantedTogether(t, n, looks)
		assert.Equal(t, 2, s.calls("evalsha"))
	}

	for _, answer := range []any{nil, int64(1), "OK", []any{}, []any{[]byte("v0")}, []any{nil, nil}, []any{"v0", "v1"}} {
		c := &conn{node: n.(*node)}
		var each []call
		var got []replies
		for i, q := range looks {
			got = append(got, make(replies, 1))
			each = append(each, call{request: &q, encoded: encode(&q, form{}), to: got[i]})
		}
		c.node.outstanding.Add(2)
		c.answerLooks(each, answer, redis.Error(""))
		for i := range got {
			assert.Positive(t, got[i].next(t).TTL, "%v: it was asked for alone", answer)
		}
	}
}
