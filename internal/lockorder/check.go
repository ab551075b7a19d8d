//go:build lockorder

package lockorder

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
)

// A Mutex is a sync.Mutex with a rank, which is checked.
type Mutex[R Rank] struct{ mu sync.Mutex }

// Lock implements sync.Locker.
func (m *Mutex[R]) Lock() {
	take(*new(R))
	m.mu.Lock()
}

// TryLock is that of a sync.Mutex.
func (m *Mutex[R]) TryLock() bool {
	if !m.mu.TryLock() {
		return false
	}
	take(*new(R))
	return true
}

// Unlock implements sync.Locker.
func (m *Mutex[R]) Unlock() {
	drop(*new(R))
	m.mu.Unlock()
}

// held has what each goroutine holds, in the order in which it was taken.
var held sync.Map // of []Rank, by the goroutine's number

func take(r Rank) {
	id := goroutine()
	has, _ := held.Load(id)
	ranks, _ := has.([]Rank)
	for _, other := range ranks {
		if i, j := slices.Index(Order, other), slices.Index(Order, r); i >= j {
			panic(fmt.Sprintf("lockorder: %T is taken under %T", r, other))
		}
	}
	held.Store(id, append(slices.Clone(ranks), r))
}

func drop(r Rank) {
	id := goroutine()
	has, _ := held.Load(id)
	ranks := has.([]Rank)
	i := len(ranks) - 1
	for ranks[i] != r {
		i--
	}
	if ranks = slices.Delete(slices.Clone(ranks), i, i+1); len(ranks) == 0 {
		held.Delete(id)
		return
	}
	held.Store(id, ranks)
}

// goroutine returns the number of the goroutine, as it is in its stack: "goroutine 7 [running]:".
func goroutine() int {
	var text [32]byte
	fields := bytes.Fields(text[:runtime.Stack(text[:], false)])
	id, err := strconv.Atoi(string(fields[1]))
	if err != nil {
		panic(err)
	}
	return id
}
