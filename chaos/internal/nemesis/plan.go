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

// The kinds of faults. Those of servers and of the network have nodes as their
// victims, the others clients.
const (
	PauseServer     Kind = "pause-server"     // SIGSTOP, SIGCONT
	KillServer      Kind = "kill-server"      // kill -9, and a restart
	RestartMajority Kind = "restart-majority" // the same for most servers at once, and right away
	Flush           Kind = "flush"            // FLUSHALL
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
	if s.Kind == PauseClient || s.Kind == KillClient {
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

// A Setting is what a plan is for.
type Setting struct {
	Seed     uint64
	Duration time.Duration
	Nodes    int
	Clients  int
	TTL      time.Duration
}

// Shortest is how many TTLs a plan must last to have at least one fault in each
// lane: the longest gap, and the longest fault.
const Shortest = 4

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
