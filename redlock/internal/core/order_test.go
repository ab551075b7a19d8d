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
