package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
)

// TestADoubtIsNotForgotten that comes while a place is asked for: the call may have been lost by then.
func TestADoubtIsNotForgotten(t *testing.T) {
	for _, isDoubted := range []bool{false, true} {
		h := newKey(t)
		h.waits(nil)
		h.answer(h.sent(protocol.OpAcquire), foreign, foreign, foreign)
		asked := h.sent(protocol.OpQueue)
		if isDoubted {
			h.Doubt(h.now)
		}
		h.Carried()
		behind := protocol.Reply{Outcome: protocol.Refused, Others: 5}
		for node := range 3 {
			if asked.asked.Has(node) && h.Count(asked, node, &behind) {
				h.Weigh(asked, node, h.now)
			}
		}
		isAsked := false
		for _, e := range h.Effects() {
			isAsked = isAsked || e.Kind == Send && e.Request.Op == protocol.OpQueue
		}
		assert.Equal(t, isDoubted, isAsked)
	}
}

// TestANodeIsNotSilentBecauseTheKeyExpires: that a key must have expired says nothing of the node that was asked for the
// place.
func TestANodeIsNotSilentBecauseTheKeyExpires(t *testing.T) {
	h := newHeld(t)
	h.waits(func(t *Terms) { t.Fair = true })
	h.now = h.Hold.Deadline() - clock.Instant(5*time.Millisecond)
	h.Carried()
	h.Tick(h.now)
	about := h.contest.look.asked
	replies := make([]protocol.Reply, 3)
	replies[h.contest.place.node] = protocol.Reply{Outcome: protocol.Refused, TTL: 2 * time.Millisecond}
	h.answer(about, replies...)
	place := h.contest.place.asked
	h.now = h.Hold.Deadline()
	h.Tick(h.now)
	assert.Nil(t, h.claim, "it was lost")
	assert.Greater(t, h.Due(), h.now)
	assert.Same(t, place, h.contest.place.asked)
}

// at has the node that keeps the order answer.
func (h *held) at(b *Ballot, reply protocol.Reply) {
	replies := make([]protocol.Reply, h.Home()+1)
	replies[h.Home()] = reply
	h.answer(b, replies...)
}

// TestOnlyAKeyThatLiesFreeIsTakenOutOfTurn: one that was far behind has heard of a release long ago, and those before it
// have had the key since. It gives the first its time from when it sees that the key is free.
func TestOnlyAKeyThatLiesFreeIsTakenOutOfTurn(t *testing.T) {
	t.Parallel()
	h := newKey(t)
	h.remember().pace = time.Millisecond
	h.waits(nil)
	h.answer(h.sent(protocol.OpAcquire), foreign, foreign, foreign)
	asked := h.contest.place.asked
	h.at(asked, protocol.Reply{Outcome: protocol.Refused, Others: 3})
	h.at(h.contest.look.asked, foreign)
	h.Hint(h.Home(), h.now)
	for h.contest.place.asked == asked {
		h.pass(time.Millisecond)
	}
	h.at(h.contest.place.asked, protocol.Reply{Outcome: protocol.Refused, Others: 1})
	h.at(h.contest.look.asked, granted)
	assert.Equal(t, ordered, h.contest.phase)
	h.pass(minAnswerLimit)
	assert.Equal(t, ordered, h.contest.phase)
	h.pass(minAnswerLimit / 2) // it asks once more
	h.at(h.contest.place.asked, protocol.Reply{Outcome: protocol.Refused, Others: 1})
	h.at(h.contest.look.asked, granted)
	assert.Equal(t, voting, h.contest.phase, "the first has left it lie")
}

// TestAFirstPausesForLessThanOthersLetItLie, if it is Fair: after many votes on news in vain it must not look as if it were
// stopped.
func TestAFirstPausesForLessThanOthersLetItLie(t *testing.T) {
	t.Parallel()
	h := newKey(t)
	h.remember().pace = time.Millisecond
	h.waits(func(t *Terms) { t.Fair = true })
	for h.contest.look.vain < 10 {
		h.at(h.contest.place.asked, granted)
		h.at(h.contest.look.asked, granted)
		h.pass(max(hintGap, h.contest.look.pause.Sub(h.now)))
		require.Equal(t, voting, h.contest.phase)
		h.answer(h.contest.vote, protocol.Reply{}, foreign, foreign) // the node that called it free as well
		assert.LessOrEqual(t, h.contest.look.pause.Sub(h.now), minAnswerLimit)
	}
}

// TestAReaderBehindAWriterDoesNotPassIt: it hears that the key has readers before it hears of its place.
func TestAReaderBehindAWriterDoesNotPassIt(t *testing.T) {
	t.Parallel()
	h := newKey(t)
	h.remember().pace = time.Millisecond
	h.waits(func(t *Terms) { t.Shared = true })
	h.answer(h.sent(protocol.OpShare), foreign, foreign, foreign)
	place := h.contest.place.asked
	h.at(h.contest.look.asked, granted)
	h.at(place, protocol.Reply{Outcome: protocol.Refused, Others: 1})
	h.pass(2 * minAnswerLimit)
	assert.Equal(t, ordered, h.contest.phase)
	assert.Same(t, place, h.contest.place.asked)
}

// TestAFirstThatIsCalledWhileItAsksAsksAgain, if it is Fair: an older place has come back after the node had answered.
func TestAFirstThatIsCalledWhileItAsksAsksAgain(t *testing.T) {
	t.Parallel()
	h := newHeld(t)
	h.waits(func(t *Terms) { t.Fair = true })
	asked := h.contest.place.asked
	h.Call(h.contest.place.id, h.now)
	h.at(asked, granted)
	require.NotSame(t, asked, h.contest.place.asked)
	h.at(h.contest.place.asked, granted)
	assert.Equal(t, first, h.contest.place.standing)
}
