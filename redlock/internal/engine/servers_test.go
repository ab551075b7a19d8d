package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/engine"
	"github.com/redquorum/redquorum/redlock/internal/guard"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A door is a node that leads to a server. The server grants every request.
type door struct{ name, run string }

func (d *door) String() string { return d.name }
func (d *door) Close() error   { return nil }

func (d *door) Submit(_ *protocol.Request, slot int, to protocol.Receiver) error {
	go to.Receive(slot, protocol.Reply{Outcome: protocol.Granted, Run: d.run})
	return nil
}

// TestServerHasOneVote: a server that answers for several nodes has only one vote.
func TestServerHasOneVote(t *testing.T) {
	t.Parallel()
	doors := []*door{{"a", "x/own"}, {"b", "x/own"}, {"c", "x/copied"}, {"d", "y/own"}, {"e", "z/own"}}
	e := engine.New(engine.Config{Nodes: []protocol.Node{doors[0], doors[1], doors[2], doors[3], doors[4]}, Clock: clock.System})
	t.Cleanup(func() { assert.NoError(t, e.Close(context.Background())) })
	terms := core.Terms{TTL: time.Minute, Timeout: time.Minute}
	votes := func() int {
		p := e.Ask(protocol.Request{Op: protocol.OpInspect, Key: "job", Timeout: time.Minute}, nil)
		p.Wait(t.Context(), engine.All)
		return p.Tally.Granted
	}
	for range 20 { // in any order
		lock, f, err := e.Acquire(t.Context(), "job", &terms)
		require.NoError(t, err)
		require.Nil(t, f, "three servers are a quorum")
		_, f = lock.Release(t.Context())
		require.Nil(t, f)
		require.Equal(t, 3, votes())
	}
	doors[4].run = "y/own"
	for range 20 {
		_, f, err := e.Try(t.Context(), "job", &terms, engine.Schedule{})
		require.NoError(t, err)
		require.NotNil(t, f, "two are not")
		require.Equal(t, core.NoQuorum, f.Kind)
		for _, a := range f.Answers {
			require.ErrorIs(t, a.Err, guard.ErrSameServer)
		}
		require.Equal(t, 2, votes())
	}
	doors[2].run, doors[4].run = "v/own", "w/own" // other servers
	require.Equal(t, 4, votes())
	for range 20 {
		lock, f, err := e.Acquire(t.Context(), "job", &terms)
		require.NoError(t, err)
		require.Nil(t, f)
		_, f = lock.Extend(t.Context(), 0)
		require.Nil(t, f)
		_, f = lock.Release(t.Context())
		require.Nil(t, f)
		require.Equal(t, 4, votes())
	}
}

// A gate is a node whose replies the test gives.
type gate struct {
	name string
	asks chan protocol.Receiver
}

func (g *gate) String() string { return g.name }
func (g *gate) Close() error   { return nil }

func (g *gate) Submit(_ *protocol.Request, _ int, to protocol.Receiver) error {
	g.asks <- to
	return nil
}

// TestServerVotesOnceWhenNodesSwapServers: during a ballot, server x votes through node a before
// node b leads to it.
func TestServerVotesOnceWhenNodesSwapServers(t *testing.T) {
	t.Parallel()
	nodes, gates := []protocol.Node{}, []*gate{}
	for _, name := range []string{"a", "b", "c"} {
		g := &gate{name, make(chan protocol.Receiver, 10)}
		nodes, gates = append(nodes, g), append(gates, g)
	}
	e := engine.New(engine.Config{Nodes: nodes, Clock: clock.System})
	granted := func(run string) protocol.Reply { return protocol.Reply{Outcome: protocol.Granted, Run: run} }
	asks := func() (to [3]protocol.Receiver) {
		for i, g := range gates {
			to[i] = <-g.asks
		}
		return to
	}
	inspect := protocol.Request{Op: protocol.OpInspect, Key: "job", Timeout: time.Minute}
	hasGranted := func(n int) func(quorum.Tally) bool { return func(t quorum.Tally) bool { return t.Granted == n } }
	before := e.Ask(inspect, nil)
	to := asks()
	to[0].Receive(0, granted("x/own"))
	to[1].Receive(1, granted("y/own"))
	before.Wait(t.Context(), hasGranted(2))

	vote := e.Ask(inspect, nil)
	to = asks()
	to[0].Receive(0, granted("x/own"))
	vote.Wait(t.Context(), hasGranted(1))
	meanwhile := e.Ask(inspect, nil)
	asks()[0].Receive(0, granted("y/own"))
	meanwhile.Wait(t.Context(), hasGranted(1))
	to[1].Receive(1, granted("x/own"))
	to[2].Receive(2, protocol.Reply{Outcome: protocol.Failed})
	vote.Wait(t.Context(), engine.All)
	assert.Equal(t, 1, vote.Tally.Granted)
}
