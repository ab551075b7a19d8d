// Package explore visits every state of a small model, breadth first. A model may be production
// code, if its state can be copied.
//
//	start ──each step──► states ──each step──► ... until no state is new
//
// Explore shows each reachable state, with each step that leads to it from an earlier state. A
// violation comes with a shortest path. Explore trusts Key: states with the same key must have the
// same future, or one state hides the violations of the other. Explore has no bounds: the model must
// have a limited number of states.
package explore

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
)

// A Space is the set of states of a model. S is a state, K identifies states, and T is a step.
type Space[S any, K comparable, T any] struct {
	// Start is the first state.
	Start S

	// Key returns the same value for states that have the same future.
	Key func(*S) K

	// State returns a state with the given key.
	State func(K) S

	// Steps calls do with each possible next step and the state after it.
	Steps func(s *S, do func(T, *S))

	// Describe returns a text for a step, given the states before and after it.
	Describe func(did T, before, after *S) string
}

// A Result is the outcome of an exploration.
type Result struct {
	// States is the number of distinct states that were reached.
	States int

	// Steps is the number of steps that were tried from these states.
	Steps int

	// Violation of a promise, with a shortest trace; nil if the promises hold.
	Violation *Violation
}

// A Violation is a way to break a promise.
type Violation struct {
	Rule  string   // the broken promise, and the step that breaks it
	Trace []string // from the beginning
}

func (v *Violation) String() string {
	return fmt.Sprintf("%s\n\t%s", v.Rule, strings.Join(v.Trace, "\n\t"))
}

// Explore calls look with each step, with the state after it and whether that state is new. It ends
// when look returns a broken promise, or after all steps. It uses one goroutine.
func (s Space[S, K, T]) Explore(look func(did T, next *S, isNew bool) string) Result {
	e := exploration[K]{seed: maphash.MakeSeed()}
	e.add(s.Key(&s.Start), 0)
	var res Result
	for at := 0; at < len(e.keys) && res.Violation == nil; at++ {
		from := s.State(e.keys[at])
		s.Steps(&from, func(did T, next *S) {
			if res.Violation != nil {
				return
			}
			res.Steps++
			k := s.Key(next)
			if rule := look(did, next, e.add(k, at)); rule != "" {
				res.Violation = &Violation{rule, s.explain(append(e.path(at), k))}
			}
		})
	}
	res.States = len(e.keys)
	return res
}

// explain repeats a path to describe its steps.
func (s Space[S, K, T]) explain(path []K) (trace []string) {
	at := s.Start
	for _, k := range path[1:] {
		before, found := at, false
		s.Steps(&before, func(did T, next *S) {
			if !found && s.Key(next) == k {
				trace = append(trace, s.Describe(did, &before, next))
				at, found = *next, true
			}
		})
	}
	return trace
}

// exploration remembers the reached states, in order, and the parent of each.
type exploration[K comparable] struct {
	seed    maphash.Seed
	keys    []K
	parents []uint32
	table   []uint32 // 1 + the index of a key, found by its hash; a map takes twice the time
}

// add adds a state, and reports whether it is new.
func (e *exploration[K]) add(k K, parent int) bool {
	if 2*len(e.keys) >= len(e.table) {
		e.table = make([]uint32, max(1<<10, 4*len(e.table)))
		for i := range e.keys {
			*e.slot(e.keys[i]) = uint32(i) + 1
		}
	}
	slot := e.slot(k)
	if *slot != 0 {
		return false
	}
	e.keys = append(e.keys, k)
	e.parents = append(e.parents, uint32(parent))
	*slot = uint32(len(e.keys))
	return true
}

// slot returns the table slot of the key, or the free slot for it.
func (e *exploration[K]) slot(k K) *uint32 {
	mask := uint64(len(e.table) - 1)
	at := maphash.Comparable(e.seed, k)
	for {
		slot := &e.table[at&mask]
		if *slot == 0 || e.keys[*slot-1] == k {
			return slot
		}
		at++
	}
}

// path returns the keys from the first state to the given one.
func (e *exploration[K]) path(at int) []K {
	keys := []K{e.keys[at]}
	for ; at != 0; at = int(e.parents[at]) {
		keys = append(keys, e.keys[e.parents[at]])
	}
	slices.Reverse(keys)
	return keys
}
