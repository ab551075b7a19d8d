package trust

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/record"
)

// TestWhatANodeWasAskedForIsNoProof: the others' TTLs are left out that were told when they were asked,
// so what is left bounds nothing, however many of them remember.
func TestWhatANodeWasAskedForIsNoProof(t *testing.T) {
	t.Parallel()
	fake := clock.NewFake(1)
	fake.Step(2 * time.Hour)
	now := fake.Now()
	g := New(Config{Nodes: make([]protocol.Node, 5), Clock: fake, MaxTTL: time.Minute})
	for i := range g.nodes {
		m := &g.nodes[i]
		m.nodes, m.record, m.readAt = 5, &record.Record{Generation: "of before"}, now
		m.forgot.Basis = record.Proof
		m.knownTTLs = []knownTTL{{ttl: time.Minute, gen: "of before", until: now.Add(time.Minute)}}
	}
	born := generationStart{gen: "new", earliest: now.Add(-time.Second), latest: now}

	loss, unread := g.weigh(0, born)
	assert.Zero(t, unread)
	assert.Equal(t, record.Loss{Longest: time.Minute, Basis: record.Proof}, loss)

	born.basis = record.Asked
	loss, _ = g.weigh(0, born)
	assert.Equal(t, record.Asked, loss.Basis, "no proof, though all others remember")
}
