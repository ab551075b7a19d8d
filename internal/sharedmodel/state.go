package sharedmodel

import "slices"

// A state is one moment of a world.
type state struct {
	nodes   [N]node
	clients [MaxClients]client
	lossy   bool  // a node has lost keys
	waited  uint8 // ticks since one of those that wait began; with Patience
}

// A queue is the requests of a client on their way to a node. The first has the lowest bits.
type queue uint64

const (
	requestBits = 4
	queueBits   = 5 * requestBits
)

func (q *queue) push(r request) {
	shift := 0
	for *q>>shift != 0 {
		shift += requestBits
	}
	*q |= queue(r) << shift
}

func (q queue) isFull() bool { return q>>(queueBits-requestBits) != 0 }

// at returns the request in a place, or noRequest.
func (q queue) at(place int) request {
	return request(q >> (place * requestBits) & (1<<requestBits - 1))
}

func (q *queue) remove(place int) {
	before := *q & (1<<(place*requestBits) - 1)
	*q = before | *q>>((place+1)*requestBits)<<(place*requestBits)
}

// A key is a state in few bytes, to be remembered by the million. Nodes are alike; states that
// differ in the order of nodes alone have the same key.
type key struct {
	nodes   [N][2]uint64
	clients uint64
}

func (s *state) key() key {
	var k key
	for i := range s.nodes {
		k.nodes[i] = s.nodes[i].pack()
	}
	slices.SortFunc(k.nodes[:], func(a, b [2]uint64) int { return slices.Compare(a[:], b[:]) })
	var p packer
	for i := range s.clients {
		s.clients[i].pack(&p)
	}
	p.flag(s.lossy)
	p.put(uint64(s.waited), waitedBits)
	k.clients = p.word
	return k
}

func (k *key) state() state {
	var s state
	for i := range s.nodes {
		s.nodes[i] = unpackNode(k.nodes[i])
	}
	u := unpacker{k.clients}
	for i := range s.clients {
		s.clients[i] = unpackClient(&u)
	}
	s.lossy = u.flag()
	s.waited = uint8(u.get(waitedBits))
	return s
}

// Widths in bits. A node takes 60 for its queues and 35 for the rest, a client 16.
const (
	timeBits   = 2 // up to MaxTTL
	memberBits = 3
	valueBits  = 3
	tryBits    = 2
	phaseBits  = 3
	waitedBits = 4
)

func (n *node) pack() [2]uint64 {
	var queues, p packer
	p.put(uint64(n.name), valueBits)
	p.put(uint64(n.nameFor), timeBits)
	for _, left := range n.members {
		p.put(uint64(left), memberBits)
	}
	p.put(uint64(n.setFor), timeBits)
	p.put(uint64(n.intent), valueBits)
	p.put(uint64(n.intentFor), timeBits)
	p.put(uint64(n.intentTry), tryBits)
	p.put(uint64(n.mute), timeBits)
	p.put(uint64(n.gained), timeBits)
	for i := range n.legs {
		l := &n.legs[i]
		queues.put(uint64(l.queue), queueBits)
		p.flag(l.granted)
		p.flag(l.missing)
	}
	return [...]uint64{p.word, queues.word}
}

func unpackNode(words [2]uint64) node {
	u, queues := unpacker{words[0]}, unpacker{words[1]}
	var n node
	n.name = uint8(u.get(valueBits))
	n.nameFor = uint8(u.get(timeBits))
	for i := range n.members {
		n.members[i] = uint8(u.get(memberBits))
	}
	n.setFor = uint8(u.get(timeBits))
	n.intent = uint8(u.get(valueBits))
	n.intentFor = uint8(u.get(timeBits))
	n.intentTry = uint8(u.get(tryBits))
	n.mute = uint8(u.get(timeBits))
	n.gained = uint8(u.get(timeBits))
	for i := range n.legs {
		n.legs[i] = leg{queue: queue(queues.get(queueBits)), granted: u.flag(), missing: u.flag()}
	}
	return n
}

func (c *client) pack(p *packer) {
	p.put(uint64(c.phase), phaseBits)
	p.flag(c.reads)
	p.put(uint64(c.valid), timeBits)
	p.put(uint64(c.round), timeBits)
	p.put(uint64(c.extended), timeBits)
	p.put(uint64(c.try), tryBits)
	p.flag(c.tried)
	p.flag(c.learned)
}

func unpackClient(u *unpacker) client {
	return client{
		phase:    phase(u.get(phaseBits)),
		reads:    u.flag(),
		valid:    uint8(u.get(timeBits)),
		round:    uint8(u.get(timeBits)),
		extended: uint8(u.get(timeBits)),
		try:      uint8(u.get(tryBits)),
		tried:    u.flag(),
		learned:  u.flag(),
	}
}

type packer struct {
	word  uint64
	shift int
}

func (p *packer) put(v uint64, bits int) {
	p.word |= v << p.shift
	p.shift += bits
}

func (p *packer) flag(v bool) {
	if v {
		p.word |= 1 << p.shift
	}
	p.shift++
}

type unpacker struct{ word uint64 }

func (u *unpacker) get(bits int) uint64 {
	v := u.word & (1<<bits - 1)
	u.word >>= bits
	return v
}

func (u *unpacker) flag() bool { return u.get(1) == 1 }
