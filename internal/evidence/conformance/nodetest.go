// Package conformance requires the same answers from every protocol.Node. One table of operations
// and expected replies (folder answers) runs against the fake nodes of package sim and against real
// servers. A simulation whose answers differ from those of Redis would prove nothing.
//
// The table omits operations that servers of different versions may answer differently. Times are
// compared with a tolerance, because a server's clock advances between two requests.
package conformance

import (
	"cmp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/record"
)

// A Poker changes a node's server behind the node's back.
type Poker interface {
	// Flush deletes all keys.
	Flush()
	// Set sets key to value for ttl, or without a limit if ttl is protocol.NoTTL.
	Set(key, value string, ttl time.Duration)
	// SetWrongType sets key to a value that is neither a string nor a counter.
	SetWrongType(key string)
	// SetCounter makes key a counter of fencing tokens, without a TTL.
	SetCounter(key string, score float64)
	// Advance returns when at least d, which is short, has passed for the server: in virtual time,
	// or after waiting.
	Advance(d time.Duration)
}

// A Body is one test. It closes the node.
type Body func(t *testing.T, node protocol.Node, poke Poker)

// Run runs the table. For each row it calls open, which calls body with a new node, possibly within
// a synctest bubble. The rows can share a server without other users, because each row begins with
// a Flush.
func Run(t *testing.T, open func(t *testing.T, body Body)) {
	for _, row := range table() {
		t.Run(row.name, func(t *testing.T) {
			open(t, func(t *testing.T, node protocol.Node, poke Poker) {
				row.run(t, node, poke)
			})
		})
	}
}

const (
	slack        = 15 * time.Second // tolerance for a remaining TTL
	replyTimeout = time.Minute      // limit for a reply
	timeout      = time.Minute      // timeout in the requests
)

type row struct {
	name  string
	steps []step
}

// A step is one change of the node or its server, and the expected reply.
type step struct {
	poke  func(p Poker)    // first action, if not nil
	req   protocol.Request // second action, if it has an Op
	token time.Duration    // token of a fenced request, relative to the start of the row
	want  want
	// behind submits the request without waiting for the previous reply.
	behind bool
	// again submits the Request of the previous step, the same object, once more.
	again bool
	// inTime is the time for which the expected reply is valid, from the start of the row or the
	// last poke. If a busy machine exceeds this time, the row starts over.
	inTime time.Duration
}

// want is an expected reply.
type want struct {
	outcome protocol.Outcome
	value   string
	ttl     time.Duration // maximum; the minimum is slack less. NoTTL and zero are exact
	silent  bool          // the node may omit the TTL
	readers bool          // the key has readers
	err     error         // error of a failure
	low     bool          // the token was not accepted, and the floor is near the time
	ahead   time.Duration // if set, the floor is near the time plus this
	floor   int64         // the token was not accepted, and this is the floor
	free    []int         // slots
	life    time.Duration // remaining TTL of the epoch record, or slack less
	epoch   *protocol.Epoch
	owner   string        // label of the present value, if the node reports it
	others  int           // number of other tickets in a queue
	next    time.Duration // waiting time of the next of them
}

func (r row) run(t *testing.T, node protocol.Node, poke Poker) {
	replies, isInTime := r.try(t, node, poke)
	for !isInTime {
		replies, isInTime = r.try(t, node, poke)
	}
	require.NoError(t, node.Close())
	replies.noMore(t)
	late := newReplies(1)
	req := protocol.Request{Op: protocol.OpInspect, Key: "nodetest", Timeout: timeout}
	if node.Submit(&req, 0, late) == nil {
		assert.Equal(t, protocol.Failed, late.wait(t, 0).Outcome, "a closed node runs nothing")
	}
}

// try runs the row's steps on an empty server. It stops at a late reply.
func (r row) try(t *testing.T, node protocol.Node, poke Poker) (got *replies, isInTime bool) {
	poke.Flush()
	began := time.Now()
	poked := began
	got = newReplies(len(r.steps))
	var waiting []int
	var last *protocol.Request
	settle := func() bool {
		for _, i := range waiting {
			reply := got.wait(t, i)
			if limit := r.steps[i].inTime; limit > 0 && time.Since(poked) >= limit {
				return false
			}
			r.steps[i].want.check(t, i, reply)
		}
		waiting = nil
		return true
	}
	for i, s := range r.steps {
		if !s.behind && !settle() {
			return got, false
		}
		if s.poke != nil {
			s.poke(poke)
			poked = time.Now()
		}
		if s.again {
			require.NoError(t, node.Submit(last, i, got), "step %d", i)
			waiting = append(waiting, i)
		}
		if s.req.Op != 0 {
			req := s.req
			last = &req
			req.Timeout = cmp.Or(req.Timeout, timeout)
			if req.Counter != "" {
				req.Token = began.Add(s.token).UnixMicro()
			}
			if req.Admit != nil && req.Admit.Run == "" {
				admit := *req.Admit
				admit.Run = serverOf(t, node)
				req.Admit = &admit
			}
			require.NoError(t, node.Submit(&req, i, got), "step %d", i)
			waiting = append(waiting, i)
		}
	}
	return got, settle()
}

func (w want) check(t *testing.T, i int, got protocol.Reply) {
	t.Helper()
	assert.Equal(t, w.outcome.String(), got.Outcome.String(), "step %d: outcome (%v)", i, got.Err)
	assert.Equal(t, w.value, got.Value, "step %d: value", i)
	assert.Equal(t, w.owner, got.Owner, "step %d: owner", i)
	assert.Equal(t, w.others, got.Others, "step %d: other tickets", i)
	if w.next > 0 {
		near(t, i, "how long the next has waited", w.next+slack, got.Next)
	}
	if w.outcome == protocol.Failed || w.outcome == protocol.Unknown {
		assert.ErrorIs(t, got.Err, w.err, "step %d: the error of a failure", i)
		if w.err == protocol.ErrCounter {
			assert.ErrorContains(t, got.Err, `"c"`, "step %d: the failure names the key", i)
		}
		return
	}
	assert.NoError(t, got.Err, "step %d: an answer has no error", i)
	assert.NotEmpty(t, got.Run, "step %d: the server that has answered", i)
	if w.floor != 0 {
		assert.Equal(t, w.floor, got.Floor, "step %d: floor", i)
	} else if assert.Equal(t, w.low, got.Floor != 0, "step %d: floor %d", i, got.Floor); w.low {
		assert.WithinDuration(t, time.Now().Add(w.ahead), time.UnixMicro(got.Floor), fence, "step %d: the floor is near", i)
	}
	assert.Equal(t, w.readers, got.Readers, "step %d: readers", i)
	assert.Equal(t, w.free, got.Free, "step %d: free slots", i)
	near(t, i, "life of the epoch record", w.life, got.Life)
	w.checkEpoch(t, i, got)
	switch {
	case w.silent && got.TTL == 0:
	case w.ttl <= 0:
		assert.Equal(t, w.ttl, got.TTL, "step %d: TTL", i)
	default:
		near(t, i, "TTL", w.ttl, got.TTL)
	}
}

func (w want) checkEpoch(t *testing.T, i int, got protocol.Reply) {
	t.Helper()
	if w.epoch == nil {
		assert.Nil(t, got.Epoch, "step %d", i)
		return
	}
	assert.WithinDuration(t, time.Now(), time.Unix(0, int64(got.Epoch.Clock)), slack, "step %d: the server's clock", i)
	clock := strconv.FormatInt(got.Epoch.Clock.Milliseconds(), 10)
	assert.Equal(t, strings.ReplaceAll(w.epoch.Record, "@", clock), got.Epoch.Record, "step %d: the record, with the clock in it", i)
}

// near compares remaining times. got may be shorter by slack, but not zero.
func near(t *testing.T, i int, what string, want, got time.Duration) {
	t.Helper()
	assert.LessOrEqual(t, got, want, "step %d: %s", i, what)
	assert.Equal(t, want > 0, got > 0, "step %d: %s", i, what)
	assert.GreaterOrEqual(t, got, want-slack, "step %d: %s", i, what)
}

// replies is a receiver that accepts one reply per slot, and notices further ones.
type replies struct {
	slots []chan protocol.Reply
	twice chan int
}

func newReplies(n int) *replies {
	r := &replies{slots: make([]chan protocol.Reply, n), twice: make(chan int, n)}
	for i := range r.slots {
		r.slots[i] = make(chan protocol.Reply, 1)
	}
	return r
}

// Receive implements protocol.Receiver.
func (r *replies) Receive(slot int, reply protocol.Reply) {
	select {
	case r.slots[slot] <- reply:
	default:
		r.twice <- slot
	}
}

func (r *replies) wait(t *testing.T, slot int) protocol.Reply {
	t.Helper()
	select {
	case reply := <-r.slots[slot]:
		r.slots[slot] <- protocol.Reply{} // a further reply is noticed
		return reply
	case <-time.After(replyTimeout):
		require.FailNow(t, "no reply", "step %d, after %v", slot, replyTimeout)
		panic("unreachable")
	}
}

func (r *replies) noMore(t *testing.T) {
	t.Helper()
	select {
	case slot := <-r.twice:
		assert.Fail(t, "a second reply", "step %d", slot)
	default:
	}
}

// serverOf returns the node's name for its server.
func serverOf(t *testing.T, node protocol.Node) string {
	t.Helper()
	answer := newReplies(1)
	req := protocol.Request{Op: protocol.OpAdmit, Key: "none", Timeout: timeout, Admit: &protocol.Admission{}}
	require.NoError(t, node.Submit(&req, 0, answer))
	if run := answer.wait(t, 0).Run; run != "" {
		return run
	}
	return record.Unknown
}
