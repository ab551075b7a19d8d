package link

import (
	"errors"
	"fmt"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/pool/internal/wire"
)

// replies counts the outcomes of its requests, by slot.
type replies map[int]protocol.Outcome

func (r replies) Receive(slot int, reply protocol.Reply) { r[slot] = reply.Outcome }

func release(key string) *protocol.Request {
	return &protocol.Request{Op: protocol.OpRelease, Key: key, Value: "v", MayHold: true, TTL: time.Hour, Timeout: time.Hour}
}

func acquire(key string) *protocol.Request {
	return &protocol.Request{Op: protocol.OpAcquire, Key: key, Value: "v", TTL: time.Hour, Timeout: time.Hour}
}

func openQueue() *queue {
	q := newQueue()
	q.open(wire.Abilities{})
	return q
}

// taken returns the keys of the next batch.
func (q *queue) taken() (keys []string) {
	q.kick()
	batch, _ := q.take(nil, nil)
	for _, k := range batch {
		keys = append(keys, k.Request.Key)
	}
	return keys
}

// TestQueueIsBounded: releases that may matter are an exception, because each follows an accepted
// acquisition.
func TestQueueIsBounded(t *testing.T) {
	t.Parallel()
	q, got := openQueue(), replies{}
	r := acquire("k")
	for i := range maxOutstanding {
		require.NoError(t, q.submit(r, i, got))
	}
	assert.ErrorIs(t, q.submit(r, 0, got), ErrFull)
	assert.NoError(t, q.submit(release("k"), maxOutstanding, got))
	q.close(ErrClosed)
	assert.Len(t, got, maxOutstanding+1, "every one of them is settled")
	assert.Zero(t, q.outstanding.Load())
	assert.ErrorIs(t, q.submit(r, 0, got), ErrClosed)
}

func TestExpiredRequestIsDropped(t *testing.T) {
	t.Parallel()
	q, got := openQueue(), replies{}
	late, undone, fine := acquire("late"), release("undone"), acquire("fine")
	late.Timeout, undone.Timeout = -1, -1
	for i, r := range []*protocol.Request{late, undone, fine} {
		require.NoError(t, q.submit(r, i, got))
	}
	assert.Equal(t, []string{"undone", "fine"}, q.taken(), "a release is never too late")
	assert.Equal(t, replies{0: protocol.Failed}, got)
}

// TestRepeatedRequestKeepsItsOrder: it follows the requests before it, and precedes all unsent
// requests.
func TestRepeatedRequestKeepsItsOrder(t *testing.T) {
	t.Parallel()
	q, got := openQueue(), replies{}
	for _, key := range []string{"first", "second", "third"} {
		r := release(key)
		k := wire.Call{Request: r, To: got}
		require.True(t, k.Answer(nil, "NOSCRIPT none").Requeue)
		q.requeue(k)
		if key == "second" { // in the meantime
			require.NoError(t, q.submit(acquire("later"), 0, got))
		}
	}
	assert.Equal(t, []string{"first", "second", "third", "later"}, q.taken())
}

// TestPendingReleasesComeFirst: the next connection sends them first, even if their keys should
// have expired.
func TestPendingReleasesComeFirst(t *testing.T) {
	t.Parallel()
	q, got := openQueue(), replies{}
	expired := release("expired")
	expired.TTL = -1
	for i, r := range []*protocol.Request{acquire("lost"), release("kept"), expired} {
		require.NoError(t, q.submit(r, i, got))
	}
	reason := errors.New("it is away")
	q.close(reason)
	assert.Equal(t, replies{0: protocol.Failed, 1: protocol.Failed, 2: protocol.Failed}, got)
	needless := release("needless")
	needless.MayHold = false
	for _, r := range []*protocol.Request{release("offline"), needless, acquire("no")} {
		assert.ErrorIs(t, q.submit(r, 9, got), reason)
	}
	q.open(wire.Abilities{})
	require.NoError(t, q.submit(acquire("new"), 3, got))
	assert.Equal(t, []string{"kept", "expired", "offline", "new"}, q.taken())
	assert.EqualValues(t, 4, q.outstanding.Load())
}

// TestPendingReleaseIsSentAgain: a connection that lasts sends it again, unless its key has
// expired.
func TestPendingReleaseIsSentAgain(t *testing.T) {
	t.Parallel()
	q, got := openQueue(), replies{}
	expired := release("expired")
	expired.TTL = -1
	q.addPending(wire.Call{Request: expired, To: got})
	kept := release("kept")
	q.addPending(wire.Call{Request: kept, To: got})
	assert.Nil(t, q.taken())
	q.resendPending()
	batch, _ := q.take(nil, nil)
	require.Len(t, batch, 1)
	assert.Equal(t, "kept", batch[0].Request.Key)
	q.reply(batch[0], protocol.Reply{Outcome: protocol.Granted})
	assert.Empty(t, got, "its caller has had a reply")
}

func TestPendingReleasesAreBounded(t *testing.T) {
	t.Parallel()
	q := newQueue()
	old, live := release("old"), release("live")
	old.TTL = -time.Second
	for range maxPending {
		q.addPendingLocked(wire.Call{Request: old})
	}
	q.addPendingLocked(wire.Call{Request: live})
	assert.Len(t, q.pending, 1, "those whose keys have expired make room")
	for range maxPending + 10 {
		q.addPendingLocked(wire.Call{Request: live})
	}
	assert.Len(t, q.pending, maxPending)
}

func TestBackoffFollowsTheLastConnection(t *testing.T) {
	t.Parallel()
	lost := func(err error) error { return fmt.Errorf("connection lost: %w", err) }
	for name, c := range map[string]struct {
		had    connection
		before time.Duration
		want   time.Duration
	}{
		"first failure":                 {connection{}, 0, firstBackoff},
		"further failures":              {connection{}, 40 * time.Millisecond, 80 * time.Millisecond},
		"many failures":                 {connection{}, maxBackoff, maxBackoff},
		"lasted":                        {connection{lasted: 2 * maxBackoff}, maxBackoff, 0},
		"hung up on at once":            {connection{err: lost(io.EOF)}, maxBackoff, maxBackoff},
		"worked and was cut":            {connection{worked: true, err: lost(io.EOF)}, maxBackoff, firstBackoff},
		"worked and was reset":          {connection{worked: true, err: lost(syscall.ECONNRESET)}, maxBackoff, firstBackoff},
		"worked and ended by an answer": {connection{worked: true, err: ErrSucceeded}, 40 * time.Millisecond, 80 * time.Millisecond},
		"worked and stalled":            {connection{worked: true, err: ErrStalled}, 40 * time.Millisecond, 80 * time.Millisecond},
		"worked and said too much":      {connection{worked: true, err: lost(wire.ErrReplyTooLarge)}, 40 * time.Millisecond, 80 * time.Millisecond},
	} {
		assert.Equal(t, c.want, backoffAfter(c.had, c.before), name)
	}
}

// TestAnswersMatchCallsInOrder: the number of calls in flight does not matter.
func TestAnswersMatchCallsInOrder(t *testing.T) {
	t.Parallel()
	s, next, pushed := inFlight{}, 0, 0
	for round := range 300 {
		var batch []wire.Call
		for range 1 + round%7 {
			batch = append(batch, wire.Call{Request: acquire("k"), Slot: pushed})
			pushed++
		}
		s.push(batch)
		for range round % 8 {
			if k, ok := s.answered(); ok {
				require.Equal(t, next, k.Slot)
				next++
			}
		}
	}
	require.Positive(t, next)
	assert.Less(t, cap(s.calls), 1000)
	left := s.unanswered()
	require.Len(t, left, pushed-next)
	assert.Equal(t, next, left[0].Slot)
}

// TestMemoryOfABurstIsFreed: it is freed after the last answer.
func TestMemoryOfABurstIsFreed(t *testing.T) {
	t.Parallel()
	var s inFlight
	for range 2 {
		s.push(make([]wire.Call, maxOutstanding))
		for range maxOutstanding {
			_, ok := s.answered()
			require.True(t, ok)
		}
		assert.LessOrEqual(t, cap(s.calls), maxIdleCalls)
	}
	s.push(make([]wire.Call, 2))
	_, ok := s.answered()
	require.True(t, ok)
	assert.Len(t, s.unanswered(), 1)
}
