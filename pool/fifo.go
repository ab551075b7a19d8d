package pool

// A fifo is a queue in a ring that grows. The zero value is empty.
type fifo[T any] struct {
	ring []T // its length is zero or a power of two
	head int
	size int
}

func (f *fifo[T]) push(v T) {
	if f.size == len(f.ring) {
		f.grow()
	}
	f.ring[(f.head+f.size)&(len(f.ring)-1)] = v
	f.size++
}

func (f *fifo[T]) pop() (v T, ok bool) {
	if f.size == 0 {
		return v, false
	}
	v, f.ring[f.head] = f.ring[f.head], v // v is zero: let go of what it held
	f.head = (f.head + 1) & (len(f.ring) - 1)
	f.size--
	return v, true
}

func (f *fifo[T]) grow() {
	ring := make([]T, max(16, 2*len(f.ring)))
	n := copy(ring, f.ring[f.head:])
	copy(ring[n:], f.ring[:f.head])
	f.ring, f.head = ring, 0
}
