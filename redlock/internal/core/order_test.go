package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

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
