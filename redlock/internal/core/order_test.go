package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// TestADoubtIsNotForgotten that comes while a place is asked for: the call may have been lost by then.
func TestADoubtIsNotForgotten(t *testing.T) {
	group := &Group{
		Nodes: 3, Lots: []uint64{1, 2, 3}, Hinting: quorum.All(3),
		Jitter:   func(time.Duration) time.Duration { return 0 },
		NewValue: func(string) string { return "value" },
	}
	for _, isDoubted := range []bool{false, true} {
		h := &held{T: t, Key: &Key{Group: group, Name: "x"}, now: clock.Instant(time.Hour)}
		h.Arrive(&Caller{Terms: &Terms{TTL: 3 * time.Second, Timeout: time.Second, Renew: true}}, h.now)
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
	h.Arrive(&Caller{Terms: &Terms{TTL: 3 * time.Second, Timeout: time.Second, Renew: true, Fair: true}}, h.now)
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
