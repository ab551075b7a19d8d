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

// grantedTogether submits the requests together, and checks that all are granted.
func grantedTogether(t *testing.T, n protocol.Node, requests []protocol.Request) {
	t.Helper()
	for _, to := range submitTogether(t, n, requests...) {
		require.Equal(t, protocol.Granted, to.next(t).Outcome)
	}
}

// watchingAll makes the server hint at the next change of each request's key.
func watchingAll(requests []protocol.Request) {
	for i := range requests {
		requests[i] = watching(requests[i])
	}
}

// keyAndValue returns key number i and its value.
func keyAndValue(i int) (key, value string) { return fmt.Sprint("k", i), fmt.Sprint("v", i) }

// hold makes n hold the keys for testTTL, and returns the extensions of all.
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
	return time.Duration(ms) * time.Millisecond
}

// TestMergedRequestsAnswerLikeSingleOnes: they also have the same effects, for any values of their
// keys.
func TestMergedRequestsAnswerLikeSingleOnes(t *testing.T) {
	t.Parallel()
	const keys = 7
	var extensions, looks []protocol.Request
	for i := range keys {
		extensions = append(extensions, extend(keyAndValue(i)))
		looks = append(looks, lookAt(keyAndValue(i)))
	}
	for name, test := range map[string]struct {
		requests []protocol.Request
		calls    int           // calls of scripts, including repeated requests
		left     time.Duration // minimum TTL of a key that had a minute; zero if the key is gone
	}{
		"extensions": {extensions, 1 + 1, 100 * time.Second}, // fails for a list
		"looks":      {looks, 1 + 1, 30 * time.Second},       // fails for a list
		"releases":   {releases(keys), 1 + 5, 0},             // fails for each key without its value
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newLive(t)
			n := openGated(t, s.url())
			prepare := func() {
				s.do("FLUSHDB")
				s.do("SET", "k0", "v0", "PX", 60_000)
				s.do("SET", "k2", "another", "PX", 90_000)
				s.do("SET", "k3", strings.Repeat("0", 40)+" 1700000000000 someone")
				s.do("LPUSH", "k4", "no lock")
				s.do("SET", "k5", protocol.ReadersValue, "PX", 90_000)
				s.do("SET", "k6", "v6", "PX", 300_000)
			}
			for i := range test.requests {
				test.requests[i].TTL = 2 * time.Minute
			}
			prepare()
			do(t, n, acquire("connected", "v"))
			s.do("CONFIG", "RESETSTAT")
			var merged []protocol.Reply
			for _, to := range submitTogether(t, n, test.requests...) {
				merged = append(merged, to.next(t))
			}
			assert.Equal(t, test.calls, s.calls("evalsha"))
			assert.Equal(t, []byte("another"), s.do("GET", "k2"))
			if test.left == 0 {
				assert.Nil(t, s.do("GET", "k0"))
				assert.Nil(t, s.do("GET", "k6"))
			} else {
				assert.Greater(t, s.ttl("k0"), test.left)
				assert.Greater(t, s.ttl("k6"), 200*time.Second, "never shortened")
			}
			prepare()
			const yes, no = protocol.Granted, protocol.Refused
			for i, want := range []protocol.Outcome{yes, no, no, no, protocol.Failed, no, yes} {
				assert.Equal(t, want, merged[i].Outcome, i)
				single := do(t, n, test.requests[i])
				assert.InDelta(t, single.TTL, merged[i].TTL, float64(20*time.Second), i)
				single.TTL = merged[i].TTL
				assert.Equal(t, single, merged[i], i)
			}
			assert.Equal(t, protocol.NoTTL, merged[3].TTL)
			assert.ErrorIs(t, merged[4].Err, ErrWrongType)
		})
	}
}

// TestRequestsAreNotMergedIfThatFails: after a failure, for example without a right, these and all
// later requests are sent separately until the next connection.
func TestRequestsAreNotMergedIfThatFails(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	n := openGated(t, s.as("some", "~*", "+@all"))
	extensions := hold(t, n, 3)
	s.do("ACL", "SETUSER", "some", "-mget")
	grantedTogether(t, n, extensions)
	s.do("CONFIG", "RESETSTAT")
	grantedTogether(t, n, extensions)
	assert.Equal(t, 3, s.calls("evalsha"))
	assert.Greater(t, s.ttl("k2"), 2*testTTL)
	grantedTogether(t, n, releases(3))
	assert.Equal(t, int64(0), s.do("DBSIZE"))

	s.do("ACL", "SETUSER", "some", "+mget")
	s.do("CLIENT", "KILL", "ID", s.client("redlock")["id"])
	eventually(t, func() bool { return try(t, n, protocol.Request{Op: protocol.OpInspect, Key: "k"}).Err == nil }, "connected again")
	extensions = hold(t, n, 3)
	s.do("CONFIG", "RESETSTAT")
	grantedTogether(t, n, extensions)
	assert.Equal(t, 1, s.calls("evalsha"))
}

// TestMergingContinuesAfterScriptsWereLost: it continues on the same connection, unless loading the
// scripts is forbidden.
func TestMergingContinuesAfterScriptsWereLost(t *testing.T) {
	t.Parallel()
	for rule, calls := range map[string]int{"+@all": 1, "-script": 3} {
		s := newLive(t)
		n := openGated(t, s.as("some", "~*", "+@all"))
		extensions := hold(t, n, 3)
		s.do("SCRIPT", "FLUSH")
		s.do("ACL", "SETUSER", "some", rule)
		grantedTogether(t, n, extensions)
		s.do("CONFIG", "RESETSTAT")
		grantedTogether(t, n, extensions)
		assert.Equal(t, calls, s.calls("evalsha"), rule)
		assert.Len(t, s.clients("redlock"), 1)
	}
}

// TestServerThatRefusesWritesIsNotAskedAgainAtOnce: the keys of a merged call are not repeated, and
// releases are repeated at growing intervals.
func TestServerThatRefusesWritesIsNotAskedAgainAtOnce(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	n := openGated(t, s.url())
	extensions := hold(t, n, 3)
	s.do("CONFIG", "SET", "min-replicas-to-write", 1)
	s.do("CONFIG", "RESETSTAT")
	refused := func(requests []protocol.Request) {
		for _, to := range submitTogether(t, n, requests...) {
			reply := to.next(t)
			assert.Equal(t, protocol.Failed, reply.Outcome)
			assert.ErrorContains(t, reply.Err, "NOREPLICAS")
		}
	}
	refused(extensions)
	assert.Equal(t, 1, s.calls("evalsha"))
	needless := releases(3)
	for i := range needless {
		needless[i].MayHold = false
	}
	refused(needless)
	assert.Equal(t, 2, s.calls("evalsha"))
	refused(releases(3))
	<-time.After(3 * time.Second)                    // without growing intervals the release would be sent 12 times
	assert.LessOrEqual(t, s.calls("evalsha"), 2+1+8) // 8: in 27 seconds
	s.do("CONFIG", "SET", "min-replicas-to-write", 0)
	eventually(t, func() bool { return s.do("DBSIZE").(int64) == 0 }, "they are released")
}

// TestForbiddenKeyAffectsNoOtherKey: a server refuses a script as a whole if one of its keys is not
// permitted.
func TestForbiddenKeyAffectsNoOtherKey(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	n := openGated(t, s.as("some", "~k*", "+@all"))
	requests := hold(t, n, 2)
	requests = append(requests, extend("forbidden", "v"))
	got := submitTogether(t, n, requests...)
	assert.Equal(t, protocol.Granted, got[0].next(t).Outcome)
	assert.Equal(t, protocol.Granted, got[1].next(t).Outcome)
	reply := got[2].next(t)
	assert.Equal(t, protocol.Failed, reply.Outcome)
	assert.ErrorIs(t, reply.Err, ErrPermission)

	s.since("6.2", "INFO commandstats tells rejected calls")
	s.do("CONFIG", "RESETSTAT")
	for _, to := range submitTogether(t, n, requests...) {
		to.next(t)
	}
	stats := string(s.do("INFO", "commandstats").([]byte))
	assert.Regexp(t, "cmdstat_evalsha:calls=2,.*rejected_calls=1,", stats, "what fails each time is not tried again")
}

// TestHoldersGetHintsAfterMergedExtensions: the change of each key gives a hint.
func TestHoldersGetHintsAfterMergedExtensions(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	s.since("6.2", "NOLOOP covers what scripts change")
	n := openGated(t, s.url())
	const keys = 20
	requests := hold(t, n, keys)
	watchingAll(requests)
	watchers := []*waiter{wait(t, n, "k0")}
	watchers[0].next() // from now on the server can send hints
	for _, r := range requests[1:] {
		watchers = append(watchers, wait(t, n, r.Key))
	}
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

// TestKeyThatDisappearsBeforeItIsTrackedGivesAHint: other clients are served between the script and
// the command that tracks its keys.
func TestKeyThatDisappearsBeforeItIsTrackedGivesAHint(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.tracks = true
	n := openGated(t, r.url())
	requests := hold(t, n, 2)
	w := wait(t, n, "k1")
	w.next()
	watchingAll(requests)
	r.hangAt("EXISTS")
	got := submitTogether(t, n, requests...)
	eventually(t, r.hangs, "extended")
	r.Del("k1")
	r.goOn()
	for _, to := range got {
		require.Equal(t, protocol.Granted, to.next(t).Outcome)
	}
	w.next()
}

// TestHintsContinueWithoutTheRightToReadManyKeys: extensions are no longer merged then.
func TestHintsContinueWithoutTheRightToReadManyKeys(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	s.since("6.2", "NOLOOP covers what scripts change")
	n := openGated(t, s.as("some", "~*", "&*", "+@all", "-exists"))
	requests := hold(t, n, 2)
	w := wait(t, n, "k1")
	w.next()
	watchingAll(requests)
	for range 2 {
		grantedTogether(t, n, requests)
		do(t, n, protocol.Request{Op: protocol.OpInspect, Key: "k0"}) // all earlier answers have arrived
	}
	for len(w.hints) > 0 {
		w.next()
	}
	s.do("DEL", "k1")
	w.next()
}

// lookAt returns a look at a held lock.
func lookAt(key, value string) protocol.Request {
	return watching(protocol.Request{Op: protocol.OpLook, Key: key, Value: value, Timeout: testTimeout})
}

// releases returns the releases of the locks acquired by hold.
func releases(keys int) (all []protocol.Request) {
	for i := range keys {
		r := held(keyAndValue(i))
		r.TTL, r.Timeout = time.Minute, testTimeout
		all = append(all, r)
	}
	return all
}

// TestMergedReleasesOfABrokenConnectionAreSentAgain separately.
func TestMergedReleasesOfABrokenConnectionAreSentAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	dialled, breaks := cut()
	n := openGated(t, r.url(), dialled)
	hold(t, n, 3)
	r.hangAt("EVALSHA")
	got := submitTogether(t, n, releases(3)...)
	eventually(t, r.hangs, "sent")
	breaks()
	for _, to := range got {
		assert.Equal(t, protocol.Unknown, to.next(t).Outcome)
	}
	eventually(t, func() bool { return r.waits() == 2 }, "sent again, by a connection that has killed the first")
	r.goOn()
	eventually(t, func() bool { return len(r.commands("EVALSHA")) > 0 }, "run")
	assert.Contains(t, r.commands("EVALSHA")[0], " 3 k0 k1 k2 ")
	eventually(t, func() bool { return !r.Exists("k0") && !r.Exists("k1") && !r.Exists("k2") }, "they are released")
}
