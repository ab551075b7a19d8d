package nemesis

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// A Kind names a fault.
type Kind string

// The kinds of faults. Those of servers and of the network have nodes as their victims, the others
// clients.
const (
	PauseServer     Kind = "pause-server"     // SIGSTOP, SIGCONT
	KillServer      Kind = "kill-server"      // kill -9, and a restart
	RestartMajority Kind = "restart-majority" // the same for most servers at once, and right away
	Flush           Kind = "flush"            // FLUSHALL
	FailOver        Kind = "fail-over"        // a standby is promoted; the primary before it goes on for some clients
	PauseClient     Kind = "pause-client"     // SIGSTOP, SIGCONT
	KillClient      Kind = "kill-client"      // kill -9, and another client in its place
	Reset           Kind = "reset"            // all connections are broken
	DropRequests    Kind = "drop-requests"
	DropReplies     Kind = "drop-replies"
	DelayRequests   Kind = "delay-requests"
	DelayReplies    Kind = "delay-replies"
	HoldRequests    Kind = "hold-requests" // they arrive when the fault is over
	HoldReplies     Kind = "hold-replies"
)

// ofClients reports whether the victims are clients.
func (k Kind) ofClients() bool { return k == PauseClient || k == KillClient }

// forgets reports whether the nodes have no vote for a while when the fault is over: a server that
// was restarted, or promoted, does not know whether it remembers all.
func (k Kind) forgets() bool {
	return k == KillServer || k == RestartMajority || k == Flush || k == FailOver
}

// A Step is one fault.
type Step struct {
	At      time.Duration // since the plan began
	For     time.Duration // until it is undone
	Kind    Kind
	Victims []int
	By      time.Duration // of a delay
}

func (s Step) String() string {
	who := "nodes"
	if s.Kind.ofClients() {
		who = "clients"
	}
	text := fmt.Sprintf("%7.3fs %s %s %v", s.At.Seconds(), s.Kind, who, s.Victims)
	if s.By > 0 {
		text += fmt.Sprintf(" by %v", s.By)
	}
	if s.For > 0 {
		text += fmt.Sprintf(" for %v", s.For)
	}
	return text
}

// nodes are the victims, if these are nodes.
func (s Step) nodes() []int {
	if s.Kind.ofClients() {
		return nil
	}
	return s.Victims
}

// A Plan is what happens in each lane, in order.
type Plan [][]Step

func (p Plan) String() string {
	steps := slices.Concat(p...)
	slices.SortStableFunc(steps, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
	var b strings.Builder
	for _, s := range steps {
		fmt.Fprintln(&b, s)
	}
	return b.String()
}

// A Setting is the size of the world that a plan is for.
type Setting struct {
	Seed     uint64
	Duration time.Duration
	Nodes    int
	Clients  int
	TTL      time.Duration
}

// Shortest is how many TTLs a plan must last to have at least one fault in each lane: the longest
// gap, and the longest fault.
func (s Scenario) Shortest() int {
	if s.Standbys { // a client takes a TTL to lose sight of a primary, and a quarantine another
		return 7
	}
	return 4
}

// Plan draws the scenario's faults. All are undone within the duration.
func (s Scenario) Plan(set Setting) Plan {
	plan := make(Plan, len(s.Lanes))
	for i, lane := range s.Lanes {
		h := fnv.New64a()
		fmt.Fprint(h, s.Name, i)
		d := &draw{Setting: set, rand: rand.New(rand.NewPCG(set.Seed, h.Sum64()))}
		for at := time.Duration(0); ; {
			at += d.ttls(lane.Gap[0], lane.Gap[1])
			step := lane.Draw(d)
			step.At = at
			if at += step.For; at > set.Duration {
				break
			}
			plan[i] = append(plan[i], step)
		}
	}
	return plan
}

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

// kind draws kinds such that all of them come before one comes again.
func (d *draw) kind(kinds []Kind) Kind {
	if len(d.deck) == 0 {
		d.deck = slices.Clone(kinds)
		d.rand.Shuffle(len(d.deck), func(i, j int) { d.deck[i], d.deck[j] = d.deck[j], d.deck[i] })
	}
	k := d.deck[0]
	d.deck = d.deck[1:]
	return k
}

// The number of victims is drawn so that it is a minority mostly, and sometimes not.

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

func failOver(d *draw, k Kind) Step {
	return Step{Kind: k, Victims: d.some(d.one(1, 3, 3, 5), d.Nodes), For: d.ttls(1.5, 5)}
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
