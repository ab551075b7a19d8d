package redquorum_test

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redquorum/redquorum/internal/sim"
)

// longestStray is how late a request can still be run, and slowest messages
// take.
const longestStray = scheduleTTL

// A weather is the network of a schedule: quick, with a share of messages that
// take up to a TTL, or get lost, or are left behind in a broken connection. Hints
// have a share of their own, which may be all of them.
type weather struct {
	evidence *evidence
	base     time.Duration
	slow     float64
	loss     float64
	stray    float64 // of the lost requests
	twice    float64 // of the others

	hintLoss  float64
	hintLate  float64 // of the lost hints: they come later
	hintTwice float64 // of the others

	mu   sync.Mutex
	cuts map[pair]way
}

// A pair is a client and a server.
type pair struct{ client, node int }

// A way is which legs do not get through.
type way struct{ requests, replies bool }

func (s *schedule) newWeather() *weather {
	w := &weather{evidence: &s.evidence, cuts: map[pair]way{}}
	w.base = 10*time.Microsecond + time.Duration(s.plan.Int64N(int64(2*time.Millisecond)))
	w.slow = []float64{0, 0.005, 0.02, 0.2}[s.plan.IntN(4)]
	w.loss = []float64{0, 0, 0.005, 0.05}[s.plan.IntN(4)]
	w.stray = []float64{0, 0.5, 1}[s.plan.IntN(3)]
	if s.beyond {
		w.twice = []float64{0, 0.01, 0.1}[s.plan.IntN(3)]
	}
	w.hintLoss = []float64{0, 0, 0.3, 1}[s.plan.IntN(4)]
	w.hintLate = []float64{0, 0.5}[s.plan.IntN(2)]
	w.hintTwice = []float64{0, 0.3}[s.plan.IntN(2)]
	return w
}

func (w *weather) net() sim.Net {
	return sim.Net{Patience: 400 * time.Millisecond, Travel: w.travel, Stray: w.strays}
}

func (w *weather) travel(leg sim.Leg, r *rand.Rand) (d time.Duration, lost bool) {
	d = w.base/2 + time.Duration(r.Int64N(int64(w.base)))
	if r.Float64() < w.slow {
		w.evidence.fault(messageSlow)
		d += time.Duration(r.Int64N(int64(scheduleTTL)))
	}
	if lost = r.Float64() < w.loss; lost {
		w.evidence.fault(messageLost)
	}
	if leg.Hint && r.Float64() < w.hintLoss {
		lost = true
		w.evidence.note(hintsLost)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	cut := w.cuts[pair{leg.Client, leg.Node}]
	return d, lost || leg.Reply && cut.replies || !leg.Reply && cut.requests
}

// strays is the connection that broke where the client may not send the
// barrier, CLIENT KILL: what is left in it is run at any time, or never, but
// not twice. Only beyond the promise does something between client and server
// repeat requests.
func (w *weather) strays(leg sim.Leg, lost bool, r *rand.Rand) (d time.Duration, strays bool) {
	share, kind, note := w.stray, messageStray, w.evidence.fault
	switch hint := leg.Hint && leg.Reply; {
	case hint && lost:
		share, kind, note = w.hintLate, hintsLate, w.evidence.note
	case hint:
		share, kind, note = w.hintTwice, hintsTwice, w.evidence.note
	case !lost:
		share, kind = w.twice, runTwice
	}
	if share == 0 || r.Float64() >= share {
		return 0, false
	}
	note(kind)
	return time.Duration(r.Int64N(int64(longestStray))), true
}

// cut parts a client from a server.
func (w *weather) cut(client, node int, how way) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if how.requests && how.replies {
		w.evidence.fault(cutOff)
	} else {
		w.evidence.fault(cutOneWay)
	}
	w.cuts[pair{client, node}] = how
}

// mend ends all partitions of a server.
func (w *weather) mend(node int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for p := range w.cuts {
		if p.node == node {
			delete(w.cuts, p)
		}
	}
}
