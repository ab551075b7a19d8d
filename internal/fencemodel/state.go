package fencemodel

import (
	"cmp"
	"slices"
)

// A state is one moment of a world.
type state struct {
	nodes    [N]node
	attempts [MaxAttempts]attempt
}

// orders are all orders of the attempts.
var orders = [...][MaxAttempts]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}

// key is the state with attempts in ascending order, and then nodes, because nodes are alike, and
// so are attempts. Where attempts are equal but for their legs, the order that gives the least
// nodes counts.
func (s *state) key() state {
	var words [MaxAttempts]uint64
	for i, a := range s.attempts {
		words[i] = word(uint8(a.phase), a.first, a.second, a.floor, a.handed)
	}
	var least state
	found := false
	for _, order := range orders {
		if words[order[0]] > words[order[1]] || words[order[1]] > words[order[2]] {
			continue
		}
		k := s.reordered(order)
		slices.SortFunc(k.nodes[:], node.compare)
		if !found || slices.CompareFunc(k.nodes[:], least.nodes[:], node.compare) < 0 {
			least, found = k, true
		}
	}
	return least
}

// reordered is the state under other names for attempts.
func (s *state) reordered(order [MaxAttempts]int) state {
	r := *s
	for place, i := range order {
		r.attempts[place] = s.attempts[i]
		for n := range s.nodes {
			r.nodes[n].legs[place] = s.nodes[n].legs[i]
			if s.nodes[n].lock == owner(i) {
				r.nodes[n].lock = owner(place)
			}
		}
	}
	return r
}

// compare orders nodes, in any way.
func (n node) compare(other node) int { return cmp.Compare(n.word(), other.word()) }

func (n node) word() uint64 {
	a, b, c := n.legs[0], n.legs[1], n.legs[2]
	return word(n.lock, n.counter, uint8(a.run), uint8(a.answers), a.counted,
		uint8(b.run), uint8(b.answers), b.counted, uint8(c.run), uint8(c.answers), c.counted)
}

// word puts values into one number, four bits each, the first lowest.
func word(values ...uint8) (w uint64) {
	for i, v := range values {
		w |= uint64(v) << (4 * i)
	}
	return w
}
