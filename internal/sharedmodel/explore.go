package sharedmodel

import "github.com/redquorum/redquorum/internal/explore"

// Explore tries all steps that can happen, breadth first, until a promise is broken or no step is
// left that could break one. States that differ in nothing but the order of nodes count once.
func (m Model) Explore() explore.Result {
	return m.explore(func(_ step, s *state, isNew bool) string {
		if isNew {
			return s.broken(&m)
		}
		return ""
	})
}

// explore shows each step to look, the state after it and whether that is a new one, until look
// names what is broken. A violation is named by the client's letters, which are the same in all
// states of one key; the trace has one and the same name for each node.
func (m Model) explore(look func(step, *state, bool) string) explore.Result {
	return explore.Space[state, key, step]{
		Key:   (*state).key,
		State: func(k key) state { return k.state() },
		Steps: func(s *state, do func(step, *state)) {
			if !s.isDecided(&m) {
				m.steps(s, do)
			}
		},
		Describe: func(did step, _, after *state) string { return did.describe(&after.nodes[did.node]) },
	}.Explore(look)
}
