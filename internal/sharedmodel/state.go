package sharedmodel

import (
	"bytes"
	"slices"
)

// A state is one moment of a world.
type state struct {
	nodes   [N]node
	clients [MaxClients]client
	lossy   bool  // a node has lost keys
	waited  uint8 // ticks since one of those that wait began; with Patience
}

// A queue is the requests of a client on their way to a node, the first in front.
type queue [5]request

func (q *queue) push(r request) { q[slices.Index(q[:], noRequest)] = r }

func (q *queue) remove(place int) {
	copy(q[place:], q[place+1:])
	q[len(q)-1] = noRequest
}

func (q *queue) isFull() bool { return q[len(q)-1] != noRequest }

// key is the state with its nodes in order, because they are alike.
func (s *state) key() state {
	k := *s
	slices.SortFunc(k.nodes[:], func(a, b node) int {
		x, y := a.bytes(), b.bytes()
		return bytes.Compare(x[:], y[:])
	})
	return k
}

// bytes are those of all fields.
func (n *node) bytes() (b [10 + MaxClients*(1+7)]byte) {
	all := append(b[:0], n.name, n.nameFor, n.setFor, n.intent, n.intentFor, n.intentTry, n.mute, n.gained)
	all = append(all, n.members[:]...)
	for i := range n.legs {
		l := &n.legs[i]
		for _, r := range l.queue {
			all = append(all, byte(r))
		}
		all = append(all, bit(l.granted), bit(l.missing))
	}
	return b
}

func bit(is bool) byte {
	if is {
		return 1
	}
	return 0
}
