package subject

// limitBacklog is the number of unanswered requests of one server at which the run
// ends: far more than are ever under way unless it hangs.
const limitBacklog = 1 << 18

// A limitAsked is a request under way.
type limitAsked struct {
	slot int32
	seq  uint32 // as of its slot
}

// A limitQueue is a first-in-first-out queue that allocates only when it grows.
type limitQueue struct {
	ring       []limitAsked // its length is a power of two
	head, tail uint
}

func (q *limitQueue) len() int { return int(q.tail - q.head) }

func (q *limitQueue) push(a limitAsked) {
	if q.len() == len(q.ring) {
		ring := make([]limitAsked, max(64, 2*len(q.ring)))
		n := copy(ring, q.ring[q.at(q.head):])
		copy(ring[n:], q.ring[:q.at(q.head)])
		q.head, q.tail, q.ring = 0, uint(q.len()), ring
	}
	q.ring[q.at(q.tail)] = a
	q.tail++
}

func (q *limitQueue) pop() (limitAsked, bool) {
	if q.len() == 0 {
		return limitAsked{}, false
	}
	a := q.ring[q.at(q.head)]
	q.head++
	return a, true
}

func (q *limitQueue) at(i uint) int {
	if len(q.ring) == 0 {
		return 0
	}
	return int(i & uint(len(q.ring)-1))
}
