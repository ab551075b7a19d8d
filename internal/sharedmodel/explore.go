package sharedmodel

import "slices"

// A Result is what an exploration has found.
type Result struct {
	// States is how many different ones were reached. Those that differ in nothing but the order
	// of nodes count once.
	States int

	// Steps is how many were tried from them.
	Steps int

	// Violation of a promise, or nil. There is none shorter.
	Violation *Violation
}

// A Violation is a way to break a promise.
type Violation struct {
	Rule  string   // what is broken, and by whom
	Trace []string // from the beginning
}

// Explore tries all steps that can happen, breadth first, until a promise is broken or no step is
// left that could break one.
func (m Model) Explore() Result {
	return m.explore(func(did step, s *state) string {
		if did.isNew {
			return s.broken(&m)
		}
		return ""
	})
}

// explore shows each step to look, and the state after it, until look names what is broken.
func (m Model) explore(look func(step, *state) string) Result {
	var e exploration
	e.add(new(state).key(), 0)
	var res Result
	for at := 0; at < len(e.keys) && res.Violation == nil; at++ {
		s := e.keys[at].state()
		if s.isDecided(&m) {
			continue
		}
		m.steps(&s, func(did step, next *state) bool {
			res.Steps++
			k := next.key()
			did.isNew = e.add(k, at)
			if rule := look(did, next); rule != "" {
				res.Violation = &Violation{Rule: rule, Trace: m.explain(append(e.path(at), k))}
			}
			return res.Violation == nil
		})
	}
	res.States = len(e.keys)
	return res
}

// exploration remembers which states were reached, from which others, and in which order.
type exploration struct {
	keys    []key
	parents []uint32
	table   []uint32 // 1 + the place of a key, found by its hash; a map takes twice the time
}

// add reports whether the state is a new one.
func (e *exploration) add(k key, parent int) bool {
	if 2*len(e.keys) >= len(e.table) {
		e.table = make([]uint32, max(1<<10, 4*len(e.table)))
		for i := range e.keys {
			*e.slot(&e.keys[i]) = uint32(i) + 1
		}
	}
	slot := e.slot(&k)
	if *slot != 0 {
		return false
	}
	e.keys = append(e.keys, k)
	e.parents = append(e.parents, uint32(parent))
	*slot = uint32(len(e.keys))
	return true
}

// slot is where the key stands in the table, or would.
func (e *exploration) slot(k *key) *uint32 {
	mask := uint64(len(e.table) - 1)
	at := k.hash()
	for {
		slot := &e.table[at&mask]
		if *slot == 0 || e.keys[*slot-1] == *k {
			return slot
		}
		at++
	}
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

// explain walks a path again, to describe its steps with one and the same name for each node. A
// violation is named by the client's letters, which are the same in all states of one key.
func (m *Model) explain(path []key) (trace []string) {
	var s state
	for _, k := range path[1:] {
		m.steps(&s, func(did step, next *state) bool {
			if next.key() != k {
				return true
			}
			trace = append(trace, did.describe(&next.nodes[did.node]))
			s = *next
			return false
		})
	}
	return trace
}
