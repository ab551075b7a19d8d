package redlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// TestInspectReturnsTheHolder: Inspect changes no key.
func TestInspectReturnsTheHolder(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.TTL(ttl), redlock.Prefix("p:"))
		seen, err := l.Inspect(t.Context(), "x")
		require.NoError(t, err)
		_, _, ok := seen.Holder()
		assert.False(t, ok)
		lock := take(t, l, "x")
		time.Sleep(time.Second)
		seen, err = l.Inspect(t.Context(), "x")
		require.NoError(t, err)
		assert.Equal(t, "x", seen.Name)
		value, left, ok := seen.Holder()
		assert.True(t, ok)
		assert.Equal(t, lock.Value(), value)
		assert.Equal(t, ttl-time.Second-rtt, left)
		assert.Len(t, seen.Nodes, 5)
		assert.Equal(t, redlock.NodeState{Node: "node1", Value: lock.Value(), TTL: ttl - time.Second - rtt}, seen.Nodes[0])
		assert.True(t, lock.Valid())
		assert.Equal(t, 5, holding(w, "p:x"))
	})
}

// TestInspectWaitsForAllNodes: Inspect returns the received answers even if some nodes do not
// answer.
func TestInspectWaitsForAllNodes(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		w.SetNet(sim.Net{Patience: time.Hour, Travel: slowNode(3, 30*time.Millisecond)})
		l, _ := open(t, w, redlock.TTL(ttl))
		onAll(w, func(s *sim.Server) { s.Set("x", "another", time.Hour) })
		assert.Equal(t, 60*time.Millisecond, took(func() {
			seen, err := l.Inspect(t.Context(), "x")
			assert.NoError(t, err)
			assert.Equal(t, "another", seen.Nodes[3].Value)
		}))
		w.Servers()[0].Hang()
		w.Servers()[1].Crash()
		assert.Equal(t, nodeTimeout, took(func() {
			seen, err := l.Inspect(t.Context(), "x")
			assert.NoError(t, err, "a quorum answered")
			assert.ErrorContains(t, seen.Nodes[0].Err, "node1: after 500ms: no answer")
			assert.ErrorContains(t, seen.Nodes[1].Err, "node2: sim: node2: dial: connection refused")
			value, _, ok := seen.Holder()
			assert.True(t, ok)
			assert.Equal(t, "another", value)
		}))
		w.Servers()[2].Crash()
		seen, err := l.Inspect(t.Context(), "x")
		isOnly(t, err, redlock.ErrNoQuorum)
		assert.Equal(t, "another", seen.Nodes[4].Value, "what the others said is told with the error")
		_, _, ok := seen.Holder()
		assert.False(t, ok)
	})
}

func TestHolderIsHeldByAQuorum(t *testing.T) {
	t.Parallel()
	holds := func(value string, ttl time.Duration) redlock.NodeState {
		return redlock.NodeState{Value: value, TTL: ttl, Stuck: ttl == protocol.NoTTL}
	}
	free := redlock.NodeState{}
	silent := redlock.NodeState{Value: "a", TTL: time.Hour, Err: assert.AnError}
	for name, row := range map[string]struct {
		nodes []redlock.NodeState
		value string
		left  time.Duration
		ok    bool
	}{
		"nobody":                         {[]redlock.NodeState{free, free, free}, "", 0, false},
		"a minority":                     {[]redlock.NodeState{holds("a", 5), free, free}, "", 0, false},
		"a majority":                     {[]redlock.NodeState{holds("a", 5), free, holds("a", 7)}, "a", 5, true},
		"all: until the second one ends": {[]redlock.NodeState{holds("a", 5), holds("a", 9), holds("a", 7)}, "a", 7, true},
		"split":                          {[]redlock.NodeState{holds("a", 5), holds("b", 5), free}, "", 0, false},
		"half":                           {[]redlock.NodeState{holds("a", 5), holds("a", 5), holds("b", 9), holds("b", 9)}, "", 0, false},
		"three of four":                  {[]redlock.NodeState{holds("a", 5), holds("a", 6), holds("a", 4), holds("b", 9)}, "a", 4, true},
		"one did not answer":             {[]redlock.NodeState{holds("a", 5), silent, free}, "", 0, false},
		"stuck":                          {[]redlock.NodeState{holds("a", protocol.NoTTL), holds("a", protocol.NoTTL), free}, "a", protocol.NoTTL, true},
		"stuck on a minority":            {[]redlock.NodeState{holds("a", protocol.NoTTL), holds("a", 8), free}, "a", 8, true},
		"an empty value":                 {[]redlock.NodeState{holds("", 5), holds("", 5), free}, "", 5, true},
	} {
		value, left, ok := (&redlock.Inspection{Nodes: row.nodes}).Holder()
		assert.Equal(t, row.value, value, name)
		assert.Equal(t, row.left, left, name)
		assert.Equal(t, row.ok, ok, name)
	}
}

// TestInspectShowsAStuckKey: the key has no TTL, so only a DEL frees it.
func TestInspectShowsAStuckKey(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		w.Servers()[1].Set("x", "stuck", protocol.NoTTL)
		w.Servers()[2].Set("x", "fine", time.Second)
		seen, err := l.Inspect(t.Context(), "x")
		require.NoError(t, err)
		assert.False(t, seen.Nodes[0].Stuck)
		assert.True(t, seen.Nodes[1].Stuck)
		assert.Equal(t, protocol.NoTTL, seen.Nodes[1].TTL)
		assert.False(t, seen.Nodes[2].Stuck)
	})
}
