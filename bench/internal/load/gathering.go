package load

import (
	"sync"
	"time"
)

// A gathering is goroutines that are to come back from a library.
type gathering struct {
	all chan struct{} // closed when all are back

	mu   sync.Mutex
	away int
}

func newGathering(n int) *gathering { return &gathering{all: make(chan struct{}), away: n} }

func (g *gathering) one() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.away--; g.away == 0 {
		close(g.all)
	}
}

// Goroutines that are in the library at the end get some time to come back from
// it, then a nudge: the end of their contexts.
const (
	patient = 5 * time.Second
	nudged  = time.Second
)

// wait returns how many did not come back. They end with the process.
func (g *gathering) wait(nudge func()) (stuck int) {
	for _, bound := range []time.Duration{patient, nudged} {
		timer := time.NewTimer(bound)
		select {
		case <-g.all:
		case <-timer.C:
		}
		timer.Stop()
		nudge()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.away
}
