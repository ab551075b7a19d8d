package core

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
)

// TestFailureIsPermanentIfAMajorityRejects: the nodes that were not waited for could still make a quorum.
func TestFailureIsPermanentIfAMajorityRejects(t *testing.T) {
	t.Parallel()
	rejects := protocol.Reply{Outcome: protocol.Failed, Err: protocol.PermanentError("NOPERM")}
	isDown := protocol.Reply{Outcome: protocol.Failed, Err: errors.New("connection refused")}
	for name, c := range map[string]struct {
		replies     []protocol.Reply
		isPermanent bool
	}{
		"one rejects, one is down":  {[]protocol.Reply{rejects, isDown}, false},
		"the same, the other way":   {[]protocol.Reply{isDown, rejects}, false},
		"two reject":                {[]protocol.Reply{rejects, rejects}, true},
		"two of three that answer":  {[]protocol.Reply{isDown, rejects, rejects}, false}, // lost before the third answer
		"one of three that answer":  {[]protocol.Reply{granted, rejects, isDown}, false},
		"all are down":              {[]protocol.Reply{isDown, isDown}, false},
		"two that reject of all":    {[]protocol.Reply{granted, rejects, rejects}, true},
		"another has two, one more": {[]protocol.Reply{foreign, foreign, rejects}, false},
	} {
		h := newKey(t)
		waiter := h.waits(nil)
		h.answer(h.sent(protocol.OpAcquire), c.replies...)
		assert.Equal(t, c.isPermanent, waiter.Failure != nil, name)
	}
}

// TestNodeWithTwoAnswersVotesOnce: one node makes no quorum of three.
func TestNodeWithTwoAnswersVotesOnce(t *testing.T) {
	t.Parallel()
	h := newKey(t)
	h.tries(func(*Terms) {})
	vote := h.sent(protocol.OpAcquire)
	h.answer(vote, granted)
	assert.False(t, h.Count(vote, 0, &protocol.Reply{Outcome: protocol.Granted}))
	assert.Equal(t, 1, vote.Votes())
}

// TestAttemptEndsWithTheLastAnswer: the attempt does not wait for an answer about the ticket.
func TestAttemptEndsWithTheLastAnswer(t *testing.T) {
	t.Parallel()
	early := protocol.Reply{Outcome: protocol.Failed, Err: &protocol.QuarantineError{Reason: "it had to record the TTL first"}}
	h := newKey(t)
	h.waits(func(t *Terms) { t.Fair = true })
	home := make([]protocol.Reply, h.Home()+1)
	home[h.Home()] = granted
	h.answer(h.asked(toJoinQueue), home...) // the ticket is the first; the answer about calls is outstanding
	h.answer(h.asked(toWatch), home...)
	h.Carried()
	vote := h.contest.attempt
	h.answer(vote, early, early, granted)
	assert.NotSame(t, vote, h.sent(protocol.OpAcquire), "those that were early grant the next")
}

// TestTryReturnsWithinThreeTimeouts: the timeout of the try counts, even during an attempt of
// another caller with a longer timeout.
func TestTryReturnsWithinThreeTimeouts(t *testing.T) {
	t.Parallel()
	const timeout = 50 * time.Millisecond
	for _, after := range []time.Duration{0, time.Millisecond, 9 * time.Second} { // time since the vote of the other caller began
		h := newKey(t)
		waiter := h.waits(func(t *Terms) { t.Timeout = 10 * time.Second; t.Patience = time.Minute; t.TTL = time.Minute })
		h.pass(after)
		try := h.tries(func(t *Terms) { t.Timeout = timeout })
		came := h.now
		for try.Failure == nil {
			h.pass(time.Millisecond)
			require.LessOrEqual(t, h.now.Sub(came), 3*timeout, "its vote began %v before", after)
		}
		assert.Equal(t, NoQuorum, try.Failure.Kind)
		assert.Nil(t, waiter.Failure, "it has its own time")
	}
}

// TestTryWaitsForALateVote: a try waits a tenth of the timeout for a late vote that could grant the
// lock. A caller in the line would ask again; the try would fail with ErrHeld for a free lock.
func TestTryWaitsForALateVote(t *testing.T) {
	t.Parallel()
	h := newKey(t)
	try := h.tries(func(*Terms) {})
	vote := h.sent(protocol.OpAcquire)
	h.pass(time.Millisecond)
	h.answer(vote, foreign, granted)
	h.pass(try.Terms.Timeout/10 - time.Millisecond)
	assert.Nil(t, try.Failure)
	h.answer(vote, protocol.Reply{}, protocol.Reply{}, granted)
	assert.NotNil(t, try.Hold)
}

// TestTryWaitsForTheExplanation: a try waits a tenth of the timeout for the explanation of a
// refusal. Only the release shows that the key has no TTL, or holds other data.
func TestTryWaitsForTheExplanation(t *testing.T) {
	t.Parallel()
	otherData := protocol.Reply{Outcome: protocol.Failed, Err: protocol.ErrWrongType}
	for isLate, kind := range map[bool]Kind{false: NoQuorum, true: ByOther} {
		h := newKey(t)
		try := h.tries(func(*Terms) {})
		vote := h.sent(protocol.OpAcquire)
		h.pass(time.Millisecond)
		h.answer(vote, lacking, lacking)
		h.pass(try.Terms.Timeout/10 - time.Millisecond)
		assert.Nil(t, try.Failure)
		if isLate {
			h.pass(time.Millisecond)
		} else {
			h.answer(h.sent(protocol.OpRelease), otherData, otherData)
		}
		require.NotNil(t, try.Failure)
		assert.Equal(t, kind, try.Failure.Kind)
	}
}

// TestPatienceEndsDuringAnotherAttempt: the other attempt waits for longer.
func TestPatienceEndsDuringAnotherAttempt(t *testing.T) {
	t.Parallel()
	h := newKey(t)
	patient := h.waits(func(t *Terms) { t.Timeout = 10 * time.Second; t.Patience = time.Minute; t.TTL = time.Minute })
	h.pass(time.Second)
	waiter := h.waits(func(t *Terms) { t.Timeout = 50 * time.Millisecond })
	h.pass(waiter.Terms.Patience - time.Millisecond)
	assert.Nil(t, waiter.Failure)
	h.pass(time.Millisecond)
	require.NotNil(t, waiter.Failure)
	assert.Equal(t, NoQuorum, waiter.Failure.Kind)
	assert.Nil(t, patient.Failure)
}

// TestTryingReaderAsksAtOnce: it asks even while another reader of its process pauses after a
// refusal.
func TestTryingReaderAsksAtOnce(t *testing.T) {
	t.Parallel()
	shared := func(t *Terms) { t.Shared = true }
	h := newKey(t)
	h.waits(shared)
	h.answer(h.sent(protocol.OpShare), granted, granted, granted)
	h.pass(500 * time.Millisecond)
	h.Carried()
	h.waits(shared)
	h.answer(h.sent(protocol.OpShare), lacking, lacking, lacking) // a writer waits
	h.Carried()
	try := h.tries(shared)
	h.answer(h.sent(protocol.OpShare), lacking, lacking, lacking)
	assert.NotNil(t, try.Failure)
}

// TestTryingReaderHasItsOwnTimeout: another reader asks to join with a longer timeout.
func TestTryingReaderHasItsOwnTimeout(t *testing.T) {
	t.Parallel()
	const timeout = 50 * time.Millisecond
	shared := func(t *Terms) { t.Shared, t.Timeout, t.TTL = true, 10*time.Second, time.Minute }
	h := newKey(t)
	h.waits(shared)
	h.answer(h.sent(protocol.OpShare), granted, granted, granted)
	h.pass(time.Second)
	h.Carried()
	waiter := h.waits(shared)
	h.sent(protocol.OpShare) // the nodes do not answer
	try := h.tries(func(t *Terms) { t.Shared, t.Timeout, t.TTL = true, timeout, time.Minute })
	h.pass(3*timeout - time.Millisecond)
	assert.Nil(t, try.Failure)
	h.pass(time.Millisecond)
	require.NotNil(t, try.Failure)
	assert.Equal(t, NoQuorum, try.Failure.Kind)
	assert.Nil(t, waiter.Failure)
}

// voted returns the number of reported attempts.
func (h *held) voted() (n int) {
	for _, e := range h.Effects() {
		if e.Kind == Voted {
			n++
		}
	}
	return n
}

// TestAttemptIsReportedWithoutAWaitingCaller: the last caller has waited for long enough before the nodes answered.
func TestAttemptIsReportedWithoutAWaitingCaller(t *testing.T) {
	t.Parallel()
	h := newKey(t)
	waiter := h.waits(func(t *Terms) { t.Timeout = 10 * time.Second; t.TTL = time.Minute })
	try := h.tries(func(t *Terms) { t.Timeout = 50 * time.Millisecond; t.TTL = time.Minute })
	assert.NotNil(t, h.Leave(waiter, h.now))
	assert.Zero(t, h.voted())
	h.pass(time.Second)
	require.NotNil(t, try.Failure)
	assert.Equal(t, 1, h.voted())
}

// TestAttemptIsReportedIfNoCallerCanTakeTheLock: the caller that tried has waited for long enough,
// and the caller in line is Fair and not the first of the queue.
func TestAttemptIsReportedIfNoCallerCanTakeTheLock(t *testing.T) {
	t.Parallel()
	h := newKey(t)
	h.waits(func(t *Terms) { t.Fair = true; t.Timeout = 10 * time.Second })
	other := h.tries(func(t *Terms) { t.Timeout = 10 * time.Second })
	try := h.tries(func(t *Terms) { t.Timeout = 50 * time.Millisecond })
	vote := h.contest.attempt
	assert.NotNil(t, h.Leave(other, h.now))
	h.pass(150 * time.Millisecond)
	require.NotNil(t, try.Failure)
	h.Carried()
	h.answer(vote, granted, granted)
	assert.Equal(t, 1, h.voted())
}

// TestOwnKeyIsNotAnotherClient: a Fair caller finds the key of its own process, which has just
// released the key, and leaves.
func TestOwnKeyIsNotAnotherClient(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{-time.Millisecond, 0, time.Millisecond} { // from the question to the release; negative: the answer has arrived
		h := newHeld(t)
		fair := h.waits(func(t *Terms) { t.Fair = true })
		look := h.asked(toWatch)
		if h.pass(max(after, -after)); after < 0 {
			h.at(look, foreign)
		}
		h.Release(h.Hold, &Caller{}, h.now)
		if after >= 0 {
			h.at(look, foreign)
		}
		f := h.Leave(fair, h.now)
		require.NotNil(t, f)
		assert.Equal(t, Unknown, f.Kind)
	}
}

// TestRaisedTokenIsNotProposedAgain: nodes that have accepted the token would take the vote for a
// duplicate.
func TestRaisedTokenIsNotProposedAgain(t *testing.T) {
	t.Parallel()
	h := newKey(t)
	last := int64(1000)
	h.Group.Propose = func() int64 { last++; return last } // the clock stands still
	fenced := func(t *Terms) { t.Fenced = true }
	c := h.waits(fenced)
	vote := h.sent(protocol.OpAcquireFenced)
	low := protocol.Reply{Outcome: protocol.Granted, Floor: vote.Req.Token}
	h.answer(vote, low, low, granted)
	raise := h.sent(protocol.OpRaise)
	h.answer(raise, granted, granted, granted)
	require.NotNil(t, c.Hold)
	h.Release(c.Hold, &Caller{}, h.now)
	h.Carried()
	h.waits(fenced)
	assert.NotEqual(t, raise.Req.LastToken(), h.sent(protocol.OpAcquireFenced).Req.LastToken())
}

// TestAdoptionNamesNoHolder: this holds even if the caller's time ends before its attempt. One node
// has the value, and another does not.
func TestAdoptionNamesNoHolder(t *testing.T) {
	t.Parallel()
	for _, isLate := range []bool{false, true} {
		h := newKey(t)
		adopter := h.tries(func(t *Terms) { t.Adopts = "a value" })
		h.answer(h.sent(protocol.OpExtend), granted, lacking)
		if isLate { // the process was paused
			h.now = h.now.Add(4 * adopter.Terms.Timeout)
			h.Tick(h.now)
		} else {
			h.pass(adopter.Terms.Timeout)
		}
		require.NotNil(t, adopter.Failure)
		assert.Equal(t, NoQuorum, adopter.Failure.Kind)
	}
}

// TestAdoptionReportsItsOwnAttempt, not the attempt of another caller of its process, which was
// paused when both callers had waited long enough.
func TestAdoptionReportsItsOwnAttempt(t *testing.T) {
	t.Parallel()
	for _, isUndoing := range []bool{false, true} {
		h := newKey(t)
		try := h.tries(func(*Terms) {})
		if isUndoing {
			h.answer(h.sent(protocol.OpAcquire), foreign, foreign, foreign)
		} else {
			h.answer(h.sent(protocol.OpAcquire), foreign)
		}
		adopter := h.tries(func(t *Terms) { t.Adopts = "a value" })
		h.now = h.now.Add(4 * adopter.Terms.Timeout)
		h.Tick(h.now)
		require.NotNil(t, try.Failure)
		require.NotNil(t, adopter.Failure)
		assert.Equal(t, &Failure{Kind: NoQuorum, At: h.now, Nodes: 3}, adopter.Failure)
	}
}

func TestWorstFailureOfSeveralKeysIsReturned(t *testing.T) {
	t.Parallel()
	held := func(votes int, left time.Duration) *Failure {
		return &Failure{Kind: ByOther, Votes: votes, Remaining: left}
	}
	outage, closed := &Failure{Kind: NoQuorum, Votes: 1}, &Failure{Kind: AfterClose}
	late := &Failure{Kind: Stale, Votes: 3, Answers: []Answer{{Outcome: protocol.Refused}}}
	for name, c := range map[string]struct {
		each []*Failure
		want *Failure
	}{
		"none":                             {[]*Failure{nil, nil}, nil},
		"one":                              {[]*Failure{nil, held(2, time.Second)}, &Failure{Kind: ByOther, Votes: 2, Remaining: time.Second, Key: 6, Held: []int{6}}},
		"the longest of all":               {[]*Failure{held(2, 3), held(1, 5), held(2, 4)}, &Failure{Kind: ByOther, Votes: 1, Remaining: 5, Key: 5, Held: []int{5, 6, 7}}},
		"a key without TTL is the longest": {[]*Failure{held(2, protocol.NoTTL), held(2, 5)}, &Failure{Kind: ByOther, Votes: 2, Remaining: protocol.NoTTL, Key: 5, Held: []int{5, 6}}},
		"an outage":                        {[]*Failure{held(2, 3), outage, held(2, 4)}, &Failure{Kind: NoQuorum, Votes: 1, Remaining: 4, Key: 6, Held: []int{5, 7}}},
		"the end of the Locker":            {[]*Failure{outage, closed}, &Failure{Kind: AfterClose, Key: 6}},
		"a late vote that was refused":     {[]*Failure{late}, &Failure{Kind: Stale, Votes: 3, Answers: late.Answers, Key: 5, Held: []int{5}}},
	} {
		assert.Equal(t, c.want, Worst(5, c.each), name)
	}
	assert.Nil(t, outage.Held, "they do not change")
}
