package fencemodel

import (
	"slices"
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
	if !long.Models() {
		networks = networks[:1] // the other has ten times the states
	}
	for _, f := range append(slices.Concat(mistakes, harmless), "") {
		for _, network := range networks {
			m := Model{Attempts: 2, Tokens: 2, Block: blockFor(f), Network: network, Fault: f}
			assert.Equal(t, dumb(m), m.Explore().Violation != nil, "%+v", m)
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
		m.steps(&w.state, func(did step, s *state) {
			next := world{*s, w.history}
			if did.action == begins || did.action.gives() {
				next.history.add(event{did.action, did.attempt, did.token})
			}
			if !seen[next] {
				seen[next] = true
				todo = append(todo, next)
			}
		})
	}
	return false
}

// A history is the steps that P2 speaks of.
type history [6]event // of two attempts, with blocks of two: each begins, is granted and hands over

type event struct {
	action  action
	attempt int
	token   uint8
}

func (h *history) add(e event) {
	h[slices.Index(h[:], event{})] = e
}

// breaksP2 is P2 as it is written.
func (h *history) breaksP2() bool {
	for i, one := range h {
		for j, other := range h {
			if i == j || !one.action.gives() || !other.action.gives() {
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
			twin := s.reordered(order)
			for n, from := range orders[(i+looked)%len(orders)] {
				twin.nodes[n] = s.reordered(order).nodes[from]
			}
			require.Equal(t, s.key(), twin.key())
			require.Equal(t, want, futures(m, twin))
		}
		require.Equal(t, want, futures(m, s.key()))
	})
	assert.Positive(t, looked)
}

func futures(m Model, s state) map[state]bool {
	keys := map[state]bool{}
	m.steps(&s, func(_ step, next *state) { keys[next.key()] = true })
	return keys
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
			return did.action == runAcquire && did.answer == low && s.nodes[did.node].legs[did.attempt].answers&accepted != 0
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
