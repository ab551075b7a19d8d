package schedules

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redquorum/redquorum/internal/sim"
)

// longestStray is how late a request can still be run. No message takes longer.
const longestStray = scheduleTTL

// A network is quick, with a share of messages that take up to a TTL, or get lost, or are left
// behind in a broken connection. Hints have a share of their own, which may be all of them.
type network struct {
	coverage *coverage
	base     time.Duration // about what a message takes
	slow     float64
	loss     float64
	stray    float64 // of the lost requests
	twice    float64 // of the others

	lateLook float64 // of the looks at the record: they come later than the vote

	hintLoss  float64
	hintLate  float64 // of the lost hints: they come later
	hintTwice float64 // of the others

	mu   sync.Mutex
	cuts map[pair]cut
}

// A pair is a client and a server.
type pair struct{ client, node int }

// A cut is which legs between the two get lost.
type cut struct{ requests, replies bool }

func (s *schedule) newNetwork() *network {
	n := &network{coverage: &s.coverage, cuts: map[pair]cut{}}
	n.base = 10*time.Microsecond + time.Duration(s.plan.Int64N(int64(2*time.Millisecond)))
	n.slow = []float64{0, 0.005, 0.02, 0.2}[s.plan.IntN(4)]
	n.loss = []float64{0, 0, 0.005, 0.05}[s.plan.IntN(4)]
	n.stray = []float64{0, 0.5, 1}[s.plan.IntN(3)]
	if s.beyond {
		n.twice = []float64{0, 0.01, 0.1}[s.plan.IntN(3)]
	}
	n.lateLook = []float64{0, 0.1, 1}[s.plan.IntN(3)]
	if s.mixed && !s.maxTTL { // the other servers can tell what was forgotten, if they are reached
		n.slow, n.loss, n.stray = 0, 0, 0
	}
	if s.longTTLs { // nothing is left behind that would block others for hours
		n.loss, n.stray = 0, 0
	}
	n.hintLoss = []float64{0, 0, 0.3, 1}[s.plan.IntN(4)]
	n.hintLate = []float64{0, 0.5}[s.plan.IntN(2)]
	n.hintTwice = []float64{0, 0.3}[s.plan.IntN(2)]
	return n
}

func (n *network) net() sim.Net {
	return sim.Net{Patience: 400 * time.Millisecond, Travel: n.travel, Stray: n.strays, Look: n.look}
}

func (n *network) travel(leg sim.Leg, r *rand.Rand) (d time.Duration, lost bool) {
	d = n.base/2 + time.Duration(r.Int64N(int64(n.base)))
	if r.Float64() < n.slow {
		n.coverage.fault(messageSlow)
		d += time.Duration(r.Int64N(int64(scheduleTTL)))
	}
	if lost = r.Float64() < n.loss; lost {
		n.coverage.fault(messageLost)
	}
	if leg.Hint && r.Float64() < n.hintLoss {
		lost = true
		n.coverage.count(hintsLost)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	cut := n.cuts[pair{leg.Client, leg.Node}]
	return d, lost || leg.Reply && cut.replies || !leg.Reply && cut.requests
}

// strays draws whether a request is run late, and when. It stands for a connection that broke
// where the client may not send CLIENT KILL: requests left in it are run at any time, or never,
// but not twice. Only beyond the promise are requests repeated, as by a proxy.
func (n *network) strays(leg sim.Leg, lost bool, r *rand.Rand) (d time.Duration, strays bool) {
	share, point, count := n.stray, messageStray, n.coverage.fault
	switch hint := leg.Hint && leg.Reply; {
	case hint && lost:
		share, point, count = n.hintLate, hintsLate, n.coverage.count
	case hint:
		share, point, count = n.hintTwice, hintsTwice, n.coverage.count
	case !lost:
		share, point = n.twice, runTwice
	}
	if share == 0 || r.Float64() >= share {
		return 0, false
	}
	count(point)
	return time.Duration(r.Int64N(int64(longestStray))), true
}

// look draws how long after a vote its node's record is asked for. Other clients' commands may
// come between.
func (n *network) look(_ sim.Leg, r *rand.Rand) time.Duration {
	if r.Float64() >= n.lateLook {
		return 0
	}
	return time.Duration(r.Int64N(int64(20 * time.Millisecond)))
}

// cutOff parts a client from a server.
func (n *network) cutOff(client, node int, how cut) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if how.requests && how.replies {
		n.coverage.fault(cutBothWays)
	} else {
		n.coverage.fault(cutOneWay)
	}
	n.cuts[pair{client, node}] = how
}

// mend ends all partitions of a server.
func (n *network) mend(node int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for p := range n.cuts {
		if p.node == node {
			delete(n.cuts, p)
		}
	}
}
