package nemesis

import (
	"math/rand/v2"
	"slices"
	"time"
)

// A draw makes a lane's random choices.
type draw struct {
	Setting
	rand *rand.Rand
	deck []Kind
}

// ttls draws a time between two multiples of the TTL, in whole milliseconds.
func (d *draw) ttls(from, to float64) time.Duration {
	return time.Duration((from + d.rand.Float64()*(to-from)) * float64(d.TTL)).Round(time.Millisecond)
}

// one draws one of several numbers; one that is listed twice comes twice as often.
func (d *draw) one(of ...int) int { return of[d.rand.IntN(len(of))] }

// some draws n of all, in order.
func (d *draw) some(n, all int) []int {
	drawn := d.rand.Perm(all)[:min(n, all)]
	slices.Sort(drawn)
	return drawn
}

// turn draws kinds such that all of them come before one comes again.
func (d *draw) turn(kinds []Kind) Kind {
	if len(d.deck) == 0 {
		d.deck = slices.Clone(kinds)
		d.rand.Shuffle(len(d.deck), func(i, j int) { d.deck[i], d.deck[j] = d.deck[j], d.deck[i] })
	}
	k := d.deck[0]
	d.deck = d.deck[1:]
	return k
}

// How many are struck is drawn so that it is a minority mostly, and sometimes not.

func pauseServers(d *draw, k Kind) Step {
	return Step{Kind: k, Victims: d.some(d.one(1, 1, 2, 2, 3), d.Nodes), For: d.ttls(0.1, 1.5)}
}

func killServers(d *draw, k Kind) Step {
	return Step{Kind: k, Victims: d.some(d.one(1, 1, 1, 2, 2, 3), d.Nodes), For: d.ttls(0, 0.5)}
}

func restartMajority(d *draw, k Kind) Step {
	return Step{Kind: k, Victims: d.some(d.Nodes/2+1, d.Nodes)}
}

func flush(d *draw, k Kind) Step {
	return Step{Kind: k, Victims: d.some(d.one(1, 1, 3), d.Nodes)}
}

func pauseClients(d *draw, k Kind) Step {
	return Step{Kind: k, Victims: d.some(d.one(1, 1, 2), d.Clients), For: d.ttls(1.1, 2.5)}
}

func killClients(d *draw, k Kind) Step { return Step{Kind: k, Victims: d.some(1, d.Clients)} }

func network(d *draw, k Kind) Step {
	s := Step{Kind: k, Victims: d.some(d.one(1, 1, 2, 2, 3, 5), d.Nodes), For: d.ttls(0.1, 1.2)}
	switch k {
	case Reset:
		s.For = 0
	case DelayRequests, DelayReplies:
		// From what a vote still waits for to what it does not.
		s.By = max(time.Millisecond, d.ttls(0.005, 0.3))
	}
	return s
}

func anyServer(d *draw, k Kind) Step {
	switch k {
	case PauseServer:
		return pauseServers(d, k)
	case RestartMajority:
		s := restartMajority(d, k)
		if d.one(0, 0, 1) == 1 { // as after a power failure
			s.Victims = d.some(d.Nodes, d.Nodes)
		}
		return s
	case Flush:
		return flush(d, k)
	}
	return killServers(d, k)
}

func anyClient(d *draw, k Kind) Step {
	if k == PauseClient {
		return pauseClients(d, k)
	}
	return killClients(d, k)
}
