package core_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// TestLostAttemptIsReleasedOnAllNodes: this includes a node that reports that it did nothing. The
// release is repeated until it succeeds only on nodes that may have the key.
func TestLostAttemptIsReleasedOnAllNodes(t *testing.T) {
	g := &core.Group{Nodes: 5, Jitter: func(time.Duration) time.Duration { return 0 }, NewValue: func(string) string { return "v" }}
	k := &core.Key{Group: g, Name: "x"}
	k.Arrive(&core.Caller{Terms: &core.Terms{TTL: 10 * time.Second, Timeout: time.Second}, Try: true}, 1)
	vote := k.Effects()[0].Ballot
	k.Carried()
	refused, failed := protocol.Reply{Outcome: protocol.Refused}, protocol.Reply{Outcome: protocol.Failed, Err: errors.New("no connection")}
	released := map[bool]quorum.Set{}
	for i, reply := range []protocol.Reply{{Outcome: protocol.Granted}, failed, refused, refused} {
		assert.Empty(t, released)
		if k.Count(vote, i, &reply) {
			k.Weigh(vote, i, 2)
		}
		for _, f := range k.Effects() {
			if f.Kind == core.Send && f.Request.Op == protocol.OpRelease {
				released[f.Request.MayHold] |= f.To
			}
		}
		k.Carried()
	}
	mayHave := quorum.Of(0) | quorum.Of(4)
	assert.Equal(t, map[bool]quorum.Set{true: mayHave, false: quorum.All(5) &^ mayHave}, released)
}

// TestCountOfWaitersIsAskedElsewhere: the home does not answer the question about waiting processes,
// which goes along with a release. A closed key asks no other node, because Close would wait for it.
func TestCountOfWaitersIsAskedElsewhere(t *testing.T) {
	t.Parallel()
	for _, isClosed := range []bool{false, true} {
		g := &core.Group{Nodes: 3, Lots: []uint64{1, 2, 3}, Jitter: func(time.Duration) time.Duration { return 0 }, NewValue: func(string) string { return "v" }}
		k := &core.Key{Group: g, Name: "x"}
		sent := func(op protocol.Op) (b *core.Ballot, to quorum.Set) {
			for _, f := range k.Effects() {
				if f.Kind == core.Send && f.Request.Op == op {
					b, to = f.Ballot, f.To
				}
			}
			k.Carried()
			return b, to
		}
		answer := func(b *core.Ballot, node int, o protocol.Outcome, now clock.Instant) {
			if k.Count(b, node, &protocol.Reply{Outcome: o}) {
				k.Weigh(b, node, now)
			}
		}
		now := clock.Instant(1)
		c := &core.Caller{Terms: &core.Terms{TTL: 10 * time.Second, Timeout: time.Second}}
		k.Arrive(c, now)
		vote, _ := sent(protocol.OpAcquire)
		for now, node := now.Add(time.Millisecond), 0; node < 3; node++ {
			answer(vote, node, protocol.Granted, now)
		}
		now = now.Add(10500 * time.Microsecond) // the turn lasts for ten times the millisecond of the attempt
		k.Release(c.Hold, &core.Caller{}, now)
		ask, home := sent(protocol.OpQueue)
		assert.Equal(t, quorum.Of(k.Home()), home)
		if isClosed {
			k.Close(now)
		}
		answer(ask, k.Home(), protocol.Unknown, now.Add(time.Second))
		_, next := sent(protocol.OpQueue)
		assert.Zero(t, next&home)
		assert.Equal(t, !isClosed, next != 0)
		if next != 0 {
			assert.Equal(t, now.Add(time.Second), ask.Start, "the time of the home is not that of the next node")
		}
	}
}
