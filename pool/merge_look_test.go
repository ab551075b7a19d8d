package pool

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/internal/protocol"
)

// lookAt is a look at a lock that is held.
func lookAt(key, value string) protocol.Request {
	return watching(protocol.Request{Op: protocol.OpLook, Key: key, Value: value, Timeout: testTimeout})
}

// TestMergedLooksAnswerAsSingleOnes, whatever is at their keys.
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
	assert.Equal(t, 2, s.calls("evalsha"), "one for all, and one for the key of another type")
	for i, r := range looks {
		single := do(t, n, r)
		assert.InDelta(t, single.TTL, merged[i].TTL, float64(testTimeout), i)
		single.TTL = merged[i].TTL
		assert.Equal(t, single, merged[i], i)
	}
	assert.Equal(t, protocol.Granted, merged[0].Outcome)
	assert.Equal(t, protocol.Refused, merged[1].Outcome)
	assert.Equal(t, protocol.NoTTL, merged[3].TTL)
	assert.ErrorIs(t, merged[4].Err, ErrWrongType)
}

// TestLooksAtLongValuesCostNoConnection: whoever may write to locks' keys could end them all, if looks
// answered with the values.
func TestLooksAtLongValuesCostNoConnection(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	n := openNode(t, s.url())
	hold(t, n, 6)
	connection := s.client("redlock")["id"]
	var looks []protocol.Request
	for i := range 6 {
		key, value := keyAndValue(i)
		if i > 0 {
			s.do("SET", key, strings.Repeat("x", 2*maxString), "PX", 90_000)
		}
		looks = append(looks, lookAt(key, value))
	}
	for i, to := range submitTogether(n, looks...) {
		reply := to.next(t)
		if i == 0 {
			assert.Equal(t, protocol.Granted, reply.Outcome)
			continue
		}
		assert.Equal(t, protocol.Refused, reply.Outcome)
		assert.Positive(t, reply.TTL)
		assert.Equal(t, protocol.Refused, do(t, n, looks[i]).Outcome, "alone")
	}
	assert.Equal(t, connection, s.client("redlock")["id"])
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
	assert.Equal(t, 1, s.calls("evalsha"))
	s.do("DEL", "k7", "k19")
	watchers[7].next()
	watchers[19].next()
	assert.Empty(t, watchers[8].hints)
}

// TestOnlyLooksAlikeAreMerged: those that have the server hint at the next change, and those that do
// not.
func TestOnlyLooksAlikeAreMerged(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	n := openNode(t, s.url())
	hold(t, n, 3)
	var looks []protocol.Request
	for i := range 3 {
		looks = append(looks, lookAt(keyAndValue(i)))
	}
	looks[1].Watch = false
	s.do("CONFIG", "RESETSTAT")
	grantedTogether(t, n, looks)
	assert.Equal(t, 2, s.calls("evalsha"), "the other stands between them")
}

// TestLooksAreMadeAloneWhereMergedOnesAreForbidden.
func TestLooksAreMadeAloneWhereMergedOnesAreForbidden(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	n := openNode(t, s.as("some", "~*", "+@all", "-mget"))
	hold(t, n, 2)
	looks := []protocol.Request{lookAt("k0", "v0"), lookAt("k1", "v1")}
	for _, calls := range []int{3, 2} {
		s.do("CONFIG", "RESETSTAT")
		grantedTogether(t, n, looks)
		assert.Equal(t, calls, s.calls("evalsha"))
	}
}
