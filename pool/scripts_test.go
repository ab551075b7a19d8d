package pool

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
)

func inQueue(id string, life time.Duration) protocol.Request {
	return protocol.Request{Op: protocol.OpQueue, Key: "q", Ticket: &protocol.Ticket{ID: id, Life: life}}
}

func TestUnusedQueueDisappears(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	n := openNode(t, s.url())
	do(t, n, inQueue("a", time.Hour))
	do(t, n, inQueue("b", time.Second))
	for _, key := range []string{"q", "q:seen"} {
		assert.Greater(t, s.ttl(key), 2*time.Hour, "a short life does not cut short a long one")
		assert.LessOrEqual(t, s.ttl(key), 3*time.Hour)
	}
	for _, id := range []string{"a", "b"} {
		leave := inQueue(id, time.Hour)
		leave.Ticket.Leave = true
		do(t, n, leave)
	}
	assert.EqualValues(t, 0, s.do("EXISTS", "q", "q:seen"))
}

// TestTicketsOfTheSameMomentHaveAnOrder: this is the order of their names, and in the same
// millisecond the order of their arrival.
func TestTicketsOfTheSameMomentHaveAnOrder(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	n := openNode(t, s.url())
	s.do("ZADD", "q", 1000, "b", 1000, "a")
	for _, id := range []string{"a", "b"} {
		s.do("HSET", "q:seen", id, time.Now().Add(time.Hour).UnixMilli())
	}
	assert.Equal(t, protocol.Refused, do(t, n, inQueue("b", time.Hour)).Outcome)
	assert.Equal(t, protocol.Granted, do(t, n, inQueue("a", time.Hour)).Outcome)
	for i, id := range strings.Split("jihgfedc", "") {
		assert.Equal(t, 2+i, do(t, n, inQueue(id, time.Hour)).Others, "all who came before")
	}
}

// One of the two keys of the queue may have the right type.
func TestQueueOfAnotherTypeLeavesNoKey(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"q", "q:seen"} {
		r := newRig(t)
		require.NoError(t, r.Set(key, "string"))
		n := r.open()
		reply := do(t, n, inQueue("a", time.Second))
		assert.Equal(t, protocol.Failed, reply.Outcome)
		assert.ErrorIs(t, reply.Err, ErrWrongType)
		r.FastForward(time.Minute)
		assert.Equal(t, []string{key}, r.Keys())
	}
}
