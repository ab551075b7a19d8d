// Package explore tries everything that can happen in a small model, breadth first. A model may be
// code that is in use, if its state can be copied.
//
//	start ──each step──► states ──each step──► ... until no state is new
//
// It promises that each state which can be reached is shown, with each step that leads to it from a
// state shown before, and that a violation comes with a shortest way there. It trusts Key: states of
// one key must have the same future, or one of them hides what the other would break. It does not
// bound anything: a model must, by what it lets happen.
package explore

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
)

// A Space is the states of a model. S is a state, K what tells states apart, and T a step.
type Space[S any, K comparable, T any] struct {
	// Start is the first state.
	Start S

	// Key is alike for states that have the same future.
	Key func(*S) K

	// State is one of the states of a key.
	State func(K) S

	// Steps calls do with each step that can happen next and the state after it.
	Steps func(s *S, do func(T, *S))

	// Describe puts a step into words, with the states before and after it.
	Describe func(did T, before, after *S) string
}

// A Result is what an exploration has found.
type Result struct {
	// States is how many different ones were reached.
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

func (v *Violation) String() string {
	return fmt.Sprintf("%s\n\t%s", v.Rule, strings.Join(v.Trace, "\n\t"))
}

// Explore shows each step that can happen to look, with the state after it and whether that state
// is a new one, until look names a promise that is broken, or all have been shown. It uses one
// goroutine.
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

// explain walks a path again, to describe its steps.
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

// exploration remembers which states were reached, from which others, and in which order.
type exploration[K comparable] struct {
	seed    maphash.Seed
	keys    []K
	parents []uint32
	table   []uint32 // 1 + the place of a key, found by its hash; a map takes twice the time
}

// add reports whether the state is a new one.
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

// slot is where the key stands in the table, or would.
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

// path is the way from the beginning to a state.
func (e *exploration[K]) path(at int) []K {
	keys := []K{e.keys[at]}
	for ; at != 0; at = int(e.parents[at]) {
		keys = append(keys, e.keys[e.parents[at]])
	}
	slices.Reverse(keys)
	return keys
}
