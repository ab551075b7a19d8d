package core_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

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
