package fencemodel

import "slices"

// A state is one moment of a world.
type state struct {
	nodes    [N]node
	attempts [MaxAttempts]attempt
}

// A key is a state in few bytes, to be remembered by the million. Nodes are
// alike, and so are attempts; states that differ in their order alone have the
// same key.
type key struct {
	nodes    [N]uint32
	attempts [MaxAttempts]uint16
}

// orders are all orders of the attempts.
var orders = [...][MaxAttempts]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}

// key puts the attempts in ascending order, then the nodes. Where attempts are
// equal but for their legs, the order that gives the smallest
// nodes counts.
func (s *state) key() key {
	var words [MaxAttempts]uint16
	for i := range s.attempts {
		words[i] = s.attempts[i].pack()
	}
	var least key
	found := false
	for _, order := range orders {
		k := key{attempts: [...]uint16{words[order[0]], words[order[1]], words[order[2]]}}
		if k.attempts[0] > k.attempts[1] || k.attempts[1] > k.attempts[2] {
			continue
		}
		for i := range s.nodes {
			k.nodes[i] = s.nodes[i].pack(order)
		}
		slices.Sort(k.nodes[:])
		if !found || slices.Compare(k.nodes[:], least.nodes[:]) < 0 {
			least, found = k, true
		}
	}
	return least
}

func (k key) state() state {
	var s state
	for i := range s.nodes {
		s.nodes[i] = unpackNode(k.nodes[i])
	}
	for i := range s.attempts {
		s.attempts[i] = unpackAttempt(k.attempts[i])
	}
	return s
}

// Widths in bits. A node takes 5 and 9 for each of three legs, an attempt 14.
const (
	lockBits  = 2
	tokenBits = 3 // up to MaxTokens
	runBits   = 2
	phaseBits = 3

	handedBits = 2 // up to MaxBlock
)

func (n *node) pack(order [MaxAttempts]int) uint32 {
	var p packer
	lock := uint8(0)
	for place, i := range order {
		if n.lock == owner(i) {
			lock = owner(place)
		}
	}
	p.put(lock, lockBits)
	p.put(n.counter, tokenBits)
	for _, i := range order {
		l := &n.legs[i]
		p.put(uint8(l.run), runBits)
		p.flag(l.accepted)
		p.flag(l.low)
		p.flag(l.took)
		p.flag(l.raised)
		p.put(l.counted, tokenBits)
	}
	return p.word
}

func unpackNode(word uint32) node {
	u := unpacker{word}
	n := node{lock: u.get(lockBits), counter: u.get(tokenBits)}
	for i := range n.legs {
		n.legs[i] = leg{
			run:      request(u.get(runBits)),
			accepted: u.flag(),
			low:      u.flag(),
			took:     u.flag(),
			raised:   u.flag(),
			counted:  u.get(tokenBits),
		}
	}
	return n
}

func (a *attempt) pack() uint16 {
	var p packer
	p.put(uint8(a.phase), phaseBits)
	p.put(a.first, tokenBits)
	p.put(a.second, tokenBits)
	p.put(a.floor, tokenBits)
	p.put(a.handed, handedBits)
	return uint16(p.word)
}

func unpackAttempt(word uint16) attempt {
	u := unpacker{uint32(word)}
	return attempt{phase: phase(u.get(phaseBits)), first: u.get(tokenBits), second: u.get(tokenBits), floor: u.get(tokenBits), handed: u.get(handedBits)}
}

type packer struct {
	word  uint32
	shift int
}

func (p *packer) put(v uint8, bits int) {
	p.word |= uint32(v) << p.shift
	p.shift += bits
}

func (p *packer) flag(v bool) {
	if v {
		p.word |= 1 << p.shift
	}
	p.shift++
}

type unpacker struct{ word uint32 }

func (u *unpacker) get(bits int) uint8 {
	v := u.word & (1<<bits - 1)
	u.word >>= bits
	return uint8(v)
}

func (u *unpacker) flag() bool { return u.get(1) == 1 }
