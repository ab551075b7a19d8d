package pool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/protocol"
)

// TestRequestsThatMayWaitGather until there are enough, one for a key of theirs comes that may not
// wait, or they waited long enough. Those that can be merged are sent side by side.
func TestRequestsThatMayWaitGather(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	submit := func(n protocol.Node, r protocol.Request, mayWait bool) replies {
		r.MayWait = mayWait
		to := make(replies, 1)
		require.NoError(t, n.Submit(&r, 0, to))
		return to
	}
	n := openNode(t, s.url(), gathering(time.Hour))
	requests := hold(t, n, 2*maxMerged)

	s.do("CONFIG", "RESETSTAT")
	var got []replies
	for _, r := range requests[:maxMerged] {
		got = append(got, submit(n, r, true))
	}
	for _, to := range got {
		assert.Equal(t, protocol.Granted, to.next(t).Outcome)
	}
	assert.Equal(t, 1, s.calls("evalsha"), "enough for one script")

	s.do("CONFIG", "RESETSTAT")
	first, second := submit(n, requests[0], true), submit(n, requests[1], true)
	assert.Zero(t, s.calls("evalsha"))
	assert.Equal(t, protocol.Granted, submit(n, requests[1], false).next(t).Outcome)
	assert.Equal(t, protocol.Granted, first.next(t).Outcome)
	assert.Equal(t, protocol.Granted, second.next(t).Outcome)
	assert.Equal(t, 1, s.calls("evalsha"), "with one that may not wait for its key")

	s.do("CONFIG", "RESETSTAT")
	got = nil
	for i, r := range requests[:maxMerged] {
		if i%2 == 1 {
			r.TTL = 2 * r.TTL
		}
		got = append(got, submit(n, r, true))
	}
	for _, to := range got {
		assert.Equal(t, protocol.Granted, to.next(t).Outcome)
	}
	assert.Equal(t, 2, s.calls("evalsha"), "one for each TTL")

	n = openNode(t, s.url(), gathering(time.Millisecond))
	require.Equal(t, protocol.Granted, do(t, n, requests[0]).Outcome)
	for range 2 {
		assert.Equal(t, protocol.Granted, submit(n, requests[0], true).next(t).Outcome, "it waited long enough")
	}
}

func gathering(d time.Duration) Option {
	return func(s *settings) error {
		s.gather = d
		return nil
	}
}

// TestNothingPassesAWaitingRequestForItsKey.
func TestNothingPassesAWaitingRequestForItsKey(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.open(gathering(time.Hour))
	requests := hold(t, n, 3)
	for i := range requests {
		requests[i].MayWait = true
	}
	got := make(replies, 3)
	for i := range requests {
		require.NoError(t, n.Submit(&requests[i], i, got))
	}
	require.Equal(t, protocol.Granted, do(t, n, acquire("another", "v")).Outcome)
	assert.Empty(t, got, "another key's request has passed")
	require.Equal(t, protocol.Granted, do(t, n, release("k1", "v1")).Outcome)
	for range requests {
		assert.Equal(t, protocol.Granted, got.next(t).Outcome, "it was not released before")
	}
}

// TestRequestsThatWaitEndWithTheConnection, as those in the queue do.
func TestRequestsThatWaitEndWithTheConnection(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.open(gathering(time.Hour))
	requests := hold(t, n, 1)
	requests[0].MayWait = true
	got := make(replies, 1)
	require.NoError(t, n.Submit(&requests[0], 0, got))
	r.Close()
	assert.Equal(t, protocol.Failed, got.next(t).Outcome)
}
