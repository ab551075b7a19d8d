package redlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// TestANodeThatLacksPermitsKeepsNobodyWaiting, whichever it is, and whether it lacks the keys of all or
// of some: it was down when they were taken. A permit that is released is had in some round trips.
func TestANodeThatLacksPermitsKeepsNobodyWaiting(t *testing.T) {
	for _, n := range []int{3, 5} {
		for _, k := range []int{2, 8, 500} {
			for _, each := range []int{1, 2} { // lacks it
				t.Run(fmt.Sprintf("%d nodes, %d permits, one in %d", n, k, each), func(t *testing.T) {
					simulate(t, n, func(t *testing.T, w *sim.World) {
						w.SetNet(uneven(time.Millisecond / 2))
						for down := 1; down <= n/2; down++ {
							for from := range n {
								lacks := func(node, slot int) bool { return (node+n-from)%n < down && slot%each == 0 }
								longest := longestWaitForPermits(t, w, k, lacks)
								assert.LessOrEqual(t, longest, 100*time.Millisecond, "%d nodes from %d", down, from)
							}
						}
					})
				})
			}
		}
	}
}

// longestWaitForPermits has four processes wait for k permits, of which two are released. It returns how
// long it takes at most until one of them is had again.
func longestWaitForPermits(t *testing.T, w *sim.World, k int, lacks func(node, slot int) bool) (longest time.Duration) {
	const another = "another"
	for i, s := range w.Servers() {
		for slot := range k {
			if !lacks(i, slot) {
				s.Set(slotKey(slot), another, time.Hour)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan *redlock.Lock)
	var all sync.WaitGroup
	for range 4 {
		l, _ := open(t, w)
		all.Go(func() {
			if lock, err := l.Acquire(ctx, "x", redlock.Permits(k)); err == nil {
				got <- lock
				<-ctx.Done()
				assert.NoError(t, lock.Release(t.Context()))
			}
		})
	}
	for _, slot := range rand.Perm(k)[:2] {
		time.Sleep(500*time.Millisecond + rand.N(100*time.Millisecond))
		start := time.Now()
		for _, s := range w.Servers() {
			if s.Keys()[slotKey(slot)] == another { // and not a waiter's, who tries it
				s.Del(slotKey(slot))
			}
		}
		assert.Equal(t, slot, (<-got).Permit())
		longest = max(longest, time.Since(start))
	}
	cancel()
	all.Wait()
	time.Sleep(time.Second)
	for _, s := range w.Servers() {
		s.Flush()
	}
	return longest
}
