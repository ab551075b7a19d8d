package fencemodel

import "testing"

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
			return did.what == runAcquire && did.answer != useless && s.attempts[did.attempt].phase > granted
		},
		"raised after the release": func(did step, s *state) bool {
			return did.what == runRaise && did.answer != useless && s.attempts[did.attempt].phase > granted
		},
		"acquired twice": func(did step, s *state) bool {
			return did.what == runAcquire && did.answer == low && s.nodes[did.node].legs[did.attempt].accepted
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

func granting(did step) bool { return did.what == isGranted }

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
