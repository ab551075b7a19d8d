package fencemodel

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/long"
)

// The explorer leaves out much: states that are alike but for an order, states in
// which nothing is left to break, history but for the highest token. A second,
// dumb one that leaves out nothing, and reads P2 from the whole history, must
// come to the same verdict on the protocol and on every fault.
func TestADumbExplorerAgrees(t *testing.T) {
	t.Parallel()
	networks := []Network{Anyhow, InOrder}
	if !long.Exploration() {
		networks = networks[:1] // the other has ten times the states
	}
	for f := None; f <= ReleaseForgets; f++ {
		for _, network := range networks {
			m := Model{Attempts: 2, Tokens: 2, Block: blockFor(f), Network: network, Fault: f}
			assert.Equal(t, dumb(m), m.Explore().Violation != nil, "%s, fault: %s", network, f)
		}
	}
	assert.False(t, dumb(Model{Attempts: 2, Tokens: 2, Block: 2}))
}

// dumb reports whether P2 can be broken.
func dumb(m Model) bool {
	type world struct {
		state   state
		history history
	}
	seen := map[world]bool{{}: true}
	for todo := []world{{}}; len(todo) > 0; {
		w := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if w.history.breaksP2() {
			return true
		}
		m.steps(w.state, func(did step, s state) bool {
			next := world{s, w.history}
			if did.action == begins || did.gives() {
				next.history.add(did)
			}
			if !seen[next] {
				seen[next] = true
				todo = append(todo, next)
			}
			return true
		})
	}
	return false
}

// A history is the steps that P2 speaks of.
type history [6]step // of two attempts, with blocks of two: each begins, is granted and hands over

func (h *history) add(did step) {
	for i := range h {
		if h[i] == (step{}) {
			h[i] = did
			return
		}
	}
}

// breaksP2 is P2 as it is written.
func (h *history) breaksP2() bool {
	for i, one := range h {
		for j, other := range h {
			if i == j || !one.gives() || !other.gives() {
				continue
			}
			if one.token == other.token {
				return true
			}
			if i < j && one.attempt == other.attempt && one.token > other.token {
				return true
			}
			for k, begun := range h {
				if begun.action == begins && begun.attempt == other.attempt && i < k && one.token > other.token {
					return true
				}
			}
		}
	}
	return false
}

// To take nodes, and attempts, for alike is sound if the same steps can happen next.
func TestStatesWithOneKeyHaveOneFuture(t *testing.T) {
	t.Parallel()
	m := Model{Attempts: 3, Tokens: 2}
	looked := 0
	m.explore(func(_ step, s *state) {
		if looked++; looked%499 != 0 { // a thousand of half a million
			return
		}
		want := futures(m, *s)
		for i, order := range orders {
			twin := s.reordered(order, orders[(i+looked)%len(orders)])
			require.Equal(t, s.key(), twin.key())
			require.Equal(t, want, futures(m, twin))
		}
		unpacked := s.key().state()
		require.Equal(t, s.key(), unpacked.key())
		require.Equal(t, want, futures(m, unpacked))
	})
	assert.Positive(t, looked)
}

func futures(m Model, s state) map[key]bool {
	keys := map[key]bool{}
	m.steps(s, func(_ step, next state) bool {
		keys[next.key()] = true
		return true
	})
	return keys
}

// reordered is the state under other names for attempts and nodes.
func (s *state) reordered(order [MaxAttempts]int, places [N]int) state {
	var r state
	for place, i := range order {
		r.attempts[place] = s.attempts[i]
	}
	for n, from := range places {
		old := &s.nodes[from]
		r.nodes[n].counter = old.counter
		for place, i := range order {
			r.nodes[n].legs[place] = old.legs[i]
			if old.lock == owner(i) {
				r.nodes[n].lock = owner(place)
			}
		}
	}
	return r
}

// A model in which little happens would keep any promise.
func TestTheModelGoesEverywhere(t *testing.T) {
	t.Parallel()
	reaches(t, Model{Attempts: 2, Tokens: 3}, map[string]place{
		"granted in the first round":  func(did step, s *state) bool { return granting(did) && s.attempts[did.attempt].second == 0 },
		"granted in the second round": func(did step, s *state) bool { return granting(did) && s.attempts[did.attempt].second != 0 },
		"two hold it at once":         func(_ step, s *state) bool { return having(s, granted) == 2 },
		"one after the other":         func(_ step, s *state) bool { return having(s, released) == 1 && having(s, granted) == 1 },
		"equal proposals": func(_ step, s *state) bool {
			return count(s, func(a attempt) bool { return a.phase == acquiring && a.first == 1 }) == 2
		},
		"acquired after the release": func(did step, s *state) bool {
			return did.action == runAcquire && did.answer != useless && s.attempts[did.attempt].phase > granted
		},
		"raised after the release": func(did step, s *state) bool {
			return did.action == runRaise && did.answer != useless && s.attempts[did.attempt].phase > granted
		},
		"acquired twice": func(did step, s *state) bool {
			return did.action == runAcquire && did.answer == low && s.nodes[did.node].legs[did.attempt].accepted
		},
	})
	reaches(t, Model{Attempts: 2, Tokens: 3, Block: 2}, map[string]place{
		"handed over": func(did step, s *state) bool { return did.action == handsOver },
		"handed over with a raised token": func(did step, s *state) bool {
			return did.action == handsOver && s.attempts[did.attempt].second != 0
		},
		"handed over after another was granted a higher token": func(did step, s *state) bool {
			return did.action == handsOver && s.overtaken(Model{}, did.attempt, did.token)
		},
	})
	reaches(t, Model{Attempts: 3, Tokens: 3, LocksLast: true}, map[string]place{
		"three were granted": func(_ step, s *state) bool { return having(s, granted)+having(s, released) == 3 },
	})
}

// A place is a step and the state after it.
type place func(step, *state) bool

func reaches(t *testing.T, m Model, places map[string]place) {
	t.Helper()
	m.explore(func(did step, s *state) {
		for what, is := range places {
			if is(did, s) {
				delete(places, what)
			}
		}
	})
	for what := range places {
		t.Errorf("never reached: %s", what)
	}
}

func granting(did step) bool { return did.action == isGranted }

func having(s *state, p phase) int {
	return count(s, func(a attempt) bool { return a.phase == p })
}

func count(s *state, is func(attempt) bool) int {
	n := 0
	for _, a := range s.attempts {
		if is(a) {
			n++
		}
	}
	return n
}
