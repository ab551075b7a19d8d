package sharedmodel

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The explorer leaves out states that are alike but for the order of nodes, and those in which
// nothing is left to break. A second, dumb one that leaves out nothing must come to the same
// verdict, on the protocol and on faults.
func TestADumbExplorerAgrees(t *testing.T) {
	t.Parallel()
	for _, of := range []struct {
		model  Model
		faults []Fault
	}{
		{Model{Clients: []Client{writer, reader}, TTL: 2}, []Fault{ReadBesideWriter, UndoneWins}},
		{Model{Clients: []Client{changer, reader}, TTL: 1}, []Fault{DowngradeWrites}},
		{Model{Clients: []Client{waiter, reader}, TTL: 2, IntentTTL: 1, Prompt: true, Patience: 1}, []Fault{IntentOfTry}},
		{Model{Clients: []Client{waiter, reader}, TTL: 2, IntentTTL: 1, Prompt: true, Patience: 2}, []Fault{IntentOfTry}},
	} {
		for _, f := range append(of.faults, "") {
			m := of.model.with(f)
			assert.Equal(t, dumb(m), m.Explore().Violation != nil, "%s", m)
		}
	}
}

// dumb reports whether a promise can be broken.
func dumb(m Model) bool {
	m.whole = true
	seen := map[state]bool{{}: true}
	for todo := []state{{}}; len(todo) > 0; {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		switch {
		case s.broken(&m) != "":
			return true
		case m.Patience > 0 && s.isServed(&m):
			continue // one that was served waits no more
		}
		m.steps(&s, func(_ step, next *state) {
			if !seen[*next] {
				seen[*next] = true
				todo = append(todo, *next)
			}
		})
	}
	return false
}

// To take nodes for alike is sound if the same steps can happen next.
func TestStatesWithOneKeyHaveOneFuture(t *testing.T) {
	t.Parallel()
	m := Model{Clients: []Client{changer1, reader1, writer}, TTL: 2, IntentTTL: 2, Lossy: true, Forgets: true}
	looked := 0
	m.explore(func(_ step, s *state, _ bool) string {
		if looked++; looked == 50_000 {
			return "enough"
		}
		if looked%99 != 0 {
			return ""
		}
		want := futures(m, *s)
		twin := *s
		twin.nodes[0], twin.nodes[1], twin.nodes[2] = s.nodes[2], s.nodes[0], s.nodes[1]
		require.Equal(t, s.key(), twin.key())
		require.Equal(t, want, futures(m, twin))
		require.Equal(t, want, futures(m, s.key()))
		return ""
	})
}

func futures(m Model, s state) map[state]bool {
	keys := map[state]bool{}
	m.steps(&s, func(_ step, next *state) {
		keys[next.key()] = true
	})
	return keys
}

// A model in which little happens would keep any promise.
func TestTheModelGoesEverywhere(t *testing.T) {
	t.Parallel()
	reaches(t, forgetting, map[string]place{
		"a writer holds":                func(_ step, s *state) bool { return s.clients[0].believes() },
		"a writer holds after a reader": func(_ step, s *state) bool { return s.clients[0].believes() && s.clients[1].phase == over },
		"a reader holds after a writer": func(_ step, s *state) bool { return s.clients[1].believes() && s.clients[0].phase == over },
		"a read is run after its end":   func(did step, s *state) bool { return did.runs(read) && s.clients[1].phase == over },
		"a repair is granted":           func(did step, _ *state) bool { return did.runs(reread) && did.answer == granted },
		"a mute node grants":            func(did step, s *state) bool { return did.answer == granted && s.nodes[did.node].mute > 0 },
	})
	reaches(t, Model{Clients: []Client{changer1, reader1}, TTL: 2, Lossy: true}, map[string]place{
		"both read":                     func(_ step, s *state) bool { return s.clients[0].believes() && s.clients[1].believes() },
		"a downgraded lock is extended": func(did step, _ *state) bool { return did.runs(extendRead) && did.client == 0 && did.answer == granted },
		"a node missed the downgrade":   func(did step, s *state) bool { return did.runs(extendRead) && s.nodes[did.node].name == value(0) },
		"a value outlives the downgrade": func(_ step, s *state) bool {
			return s.clients[0].believes() && s.clients[0].reads && s.nodes[2].name == value(0)
		},
	})
	reaches(t, prompt(waiter, returning), map[string]place{
		"an intent refuses a read": func(did step, s *state) bool {
			return did.runs(read) && did.answer == refused && s.nodes[did.node].name <= marker
		},
	})
}

// A place is a step and the state after it.
type place func(step, *state) bool

func (did step) runs(r request) bool { return did.action == runs && did.request == r }

func reaches(t *testing.T, m Model, places map[string]place) {
	t.Helper()
	m.whole = true
	m.explore(func(did step, s *state, isNew bool) string {
		for what, is := range places {
			if is(did, s) {
				delete(places, what)
			}
		}
		if len(places) == 0 {
			return "everywhere"
		}
		return ""
	})
	for what := range places {
		t.Errorf("never reached: %s", what)
	}
}
