package fencemodel

import "slices"

// A Result is what an exploration has found.
type Result struct {
	// States is how many different ones were reached. Those that differ in nothing
	// but the order of nodes or attempts count once.
	States int

	// Steps is how many were tried from them.
	Steps int

	// Violation of P2, or nil. There is none shorter.
	Violation *Violation
}

// A Violation is a way to break P2.
type Violation struct {
	Rule  string   // which part, and by whom
	Trace []string // from the beginning
}

// Explore tries all steps that can happen, breadth first, until P2 is broken
// or no step is left that could break it.
func (m Model) Explore() Result { return m.explore(func(step, *state) {}) }

// explore shows each step to visit, and the state after it.
func (m Model) explore(visit func(step, *state)) Result {
	e := exploration{seen: map[key]struct{}{}}
	e.add(new(state).key(), 0)
	var res Result
	for at := 0; at < len(e.keys) && res.Violation == nil; at++ {
		s := e.keys[at].state()
		if s.over(m) {
			continue
		}
		m.steps(s, func(did step, next state) bool {
			res.Steps++
			visit(did, &next)
			k := next.key()
			if did.gives() && s.broken(m, did.attempt, did.token) != "" {
				res.Violation = m.explain(append(e.path(at), k))
				return false
			}
			e.add(k, at)
			return true
		})
	}
	res.States = len(e.keys)
	return res
}

// exploration remembers which states were reached, from which others, and in which
// order.
type exploration struct {
	keys    []key
	parents []uint32
	seen    map[key]struct{}
}

func (e *exploration) add(k key, parent int) {
	if _, ok := e.seen[k]; ok {
		return
	}
	e.seen[k] = struct{}{}
	e.keys = append(e.keys, k)
	e.parents = append(e.parents, uint32(parent))
}

// path is the way from the beginning to a state.
func (e *exploration) path(at int) []key {
	keys := []key{e.keys[at]}
	for ; at != 0; at = int(e.parents[at]) {
		keys = append(keys, e.keys[e.parents[at]])
	}
	slices.Reverse(keys)
	return keys
}

// explain walks a path again, to describe its steps with one and the same name for
// each node. The last of them is the violation.
func (m Model) explain(path []key) *Violation {
	v := new(Violation)
	var s state
	for _, k := range path[1:] {
		m.steps(s, func(did step, next state) bool {
			if next.key() != k {
				return true
			}
			v.Trace = append(v.Trace, did.describe(m))
			if did.gives() {
				v.Rule = s.broken(m, did.attempt, did.token)
			}
			s = next
			return false
		})
	}
	return v
}
