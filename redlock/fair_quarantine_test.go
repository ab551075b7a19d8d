package redlock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// TestTheOrderOutlivesAQuarantine: whoever is the first rests while too few nodes
// have a vote, but never for so long that the next takes it for dead.
func TestTheOrderOutlivesAQuarantine(t *testing.T) {
	for _, forgot := range []int{3, 5} { // with the node that keeps the queue, or without
		for began := time.Duration(0); began < 2*time.Second; began += 200 * time.Millisecond {
			t.Run(fmt.Sprint(forgot, " nodes, ", began), func(t *testing.T) {
				simulate(t, 5, func(t *testing.T, w *sim.World) {
					ls := settled(t, w, 4, redlock.Fair(), longest)
					forget(w.Servers()[:forgot]...)
					_, err := ls[3].TryAcquire(t.Context(), "y") // the quarantine begins
					require.ErrorIs(t, err, redlock.ErrQuarantine)
					time.Sleep(ttl - 3*time.Second + began)
					r := recorded(w)
					f := &fairground{World: w, record: r}
					for i, l := range ls[:3] {
						f.queues(t.Context(), t, l, i)
					}
					f.all.Wait()
					assert.Equal(t, upTo(3), f.served)
					assert.Less(t, r.longestSilence(), time.Second*3/4)
				})
			})
		}
	}
}

// longestSilence returns the longest time between two questions of a waiter.
func (r *record) longestSilence() (longest time.Duration) {
	before := map[int]time.Time{} // by client
	for _, step := range r.of(sim.Submitted, redlock.OpQueue) {
		if at, ok := before[step.Client]; ok {
			longest = max(longest, step.At.Sub(at))
		}
		before[step.Client] = step.At
	}
	return longest
}
