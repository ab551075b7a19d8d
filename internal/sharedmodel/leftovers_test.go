package sharedmodel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/explore"
)

// After everything was released, or has expired, no key is left. Both are tried in each state.
func TestNoKeyIsLeft(t *testing.T) {
	t.Parallel()
	for _, m := range []Model{
		{Clients: []Client{writer, reader}, TTL: 2, IntentTTL: 2, Lossy: true},
		{Clients: []Client{writer, reader1}, TTL: 2},
		{Clients: []Client{changer, reader}, TTL: 2, Lossy: true},
	} {
		res := m.leftovers()
		t.Logf("%s: %d states, %d steps", m, res.States, res.Steps)
		require.Nil(t, res.Violation, "%s: %s", m, res.Violation)
	}
}

func TestMistakesLeaveKeys(t *testing.T) {
	t.Parallel()
	for _, m := range []Model{
		Model{Clients: []Client{changer, reader}, TTL: 2, Lossy: true}.with(LeaveMember),
		Model{Clients: []Client{writer, reader}, TTL: 2, IntentTTL: 2}.with(IntentStays),
		Model{Clients: []Client{writer, reader}, TTL: 2}.with(UndoOvertakes),
	} {
		res := m.leftovers()
		require.NotNil(t, res.Violation, "%s: not found in %d states", m, res.States)
		t.Logf("%s: found in %d states: %s", m, res.States, res.Violation)
	}
}

func (m Model) leftovers() explore.Result {
	m.whole = true
	return m.explore(func(did step, s *state, isNew bool) string {
		if !isNew {
			return ""
		}
		end := *s
		end.releaseAll(&m)
		for n := range end.nodes {
			if !end.nodes[n].isEmpty() {
				return "a key is left when all have released: " + end.nodes[n].String()
			}
		}
		end = *s
		for n := range end.nodes {
			for range max(m.TTL, m.IntentTTL) {
				end.nodes[n].advance()
			}
			if !end.nodes[n].isEmpty() {
				return "a key is left when all must have expired: " + end.nodes[n].String()
			}
		}
		return ""
	})
}

// releaseAll runs what is on its way, and the releases that have not been sent. A writer
// that still waits gives up.
func (s *state) releaseAll(m *Model) {
	for n := range s.nodes {
		for i := range m.Clients {
			c, node := &s.clients[i], &s.nodes[n]
			of := call{client: i, try: c.try}
			for node.legs[i].queue[0] != noRequest {
				of.request = node.legs[i].queue[0]
				node.legs[i].queue.remove(0)
				node.run(m, of)
			}
			switch {
			case c.reads && c.phase != over:
				of.request = leave
				node.run(m, of)
			case !c.reads && (c.phase != over || m.IntentTTL > 0):
				of.request = release
				node.run(m, of)
			}
		}
	}
}

// A reader that has died blocks others for no longer than its claim lasted, whatever other readers
// do. With one expiry for all they keep it alive.
func TestWhatOutlivesItsClaim(t *testing.T) {
	t.Parallel()
	m := Model{Clients: []Client{reader, reader1}, TTL: 2, Prompt: true}
	require.Nil(t, m.outlived().Violation)
	res := m.with(OneExpiry).outlived()
	require.NotNil(t, res.Violation)
	t.Logf("found in %d states: %s", res.States, res.Violation)
}

func (m Model) outlived() explore.Result {
	m.whole = true
	return m.explore(func(_ step, s *state, _ bool) string {
		for i := range m.Clients {
			for n := range s.nodes {
				if s.clients[i].phase == lost && s.nodes[n].members[i] > expired {
					return name(i) + "'s member outlives its claim"
				}
			}
		}
		return ""
	})
}
