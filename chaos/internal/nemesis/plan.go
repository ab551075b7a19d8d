package nemesis

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// A Kind names a fault.
type Kind = string

// The kinds of faults.
const (
	PauseServer     Kind = "pause-server"     // SIGSTOP, SIGCONT
	StopServer      Kind = "stop-server"      // like pause-server, but usually very short
	KillServer      Kind = "kill-server"      // kill -9, and a restart
	RestartMajority Kind = "restart-majority" // kill-server for most servers at once, with an immediate restart
	Flush           Kind = "flush"            // FLUSHALL
	FailOver        Kind = "fail-over"        // a standby is promoted; the old primary continues for some clients
	ThereAndBack    Kind = "there-and-back"   // the server follows its older copy, and is a primary again within milliseconds
	ClockAtBoot     Kind = "clock-at-boot"    // the server restarts empty with a wrong clock, which is set later
	PauseClient     Kind = "pause-client"     // SIGSTOP, SIGCONT
	StopProcess     Kind = "stop-process"     // pause of one of a client's processes, usually very short
	KillClient      Kind = "kill-client"      // kill -9, and another client replaces it
	Reset           Kind = "reset"            // all connections are broken
	DropRequests    Kind = "drop-requests"
	DropReplies     Kind = "drop-replies"
	DelayRequests   Kind = "delay-requests"
	DelayReplies    Kind = "delay-replies"
	HoldRequests    Kind = "hold-requests" // requests arrive at the end of the fault
	HoldReplies     Kind = "hold-replies"
	LateRequests    Kind = "late-requests" // the next packet of each connection is late
	LateReplies     Kind = "late-replies"
	PauseDaemon     Kind = "pause-daemon" // SIGSTOP, SIGCONT
	KillDaemon      Kind = "kill-daemon"  // kill -9, and another daemon replaces it
	EndDaemon       Kind = "end-daemon"   // SIGTERM, and another daemon replaces it
	DelayAnswers    Kind = "delay-answers"
	HoldAnswers     Kind = "hold-answers"
)

// The victims of faults.
const (
	nodes   = "nodes"
	clients = "clients"
	daemons = "daemons" // processes of "redlock serve"
)

// A profile has the ranges of the random choices for a kind of fault.
type profile struct {
	// numbers are the possible numbers of victims. A number that is listed twice is drawn twice as
	// often. Usually the victims are a minority. Without numbers, they are a bare majority.
	numbers []int
	of      string
	lasts   [2]float64 // duration in TTLs; zero: the fault is undone at once
	brief   bool       // most faults last for less than a tenth of the longest
	by      [2]float64 // length of a delay, or offset of a clock, in TTLs
}

var profiles = map[Kind]profile{
	PauseServer:     {numbers: []int{1, 1, 2, 2, 3}, of: nodes, lasts: [2]float64{0.1, 1.5}},
	StopServer:      {numbers: []int{1, 1, 2, 3}, of: nodes, lasts: [2]float64{0.002, 1.5}, brief: true},
	KillServer:      {numbers: []int{1, 1, 1, 2, 2, 3, 5}, of: nodes, lasts: [2]float64{0, 0.5}},
	RestartMajority: {of: nodes},
	Flush:           {numbers: []int{1, 1, 3}, of: nodes},
	FailOver:        {numbers: []int{1, 3, 3, 5}, of: nodes, lasts: [2]float64{1.5, 5}},
	ThereAndBack:    {numbers: []int{1, 3, 3, 5}, of: nodes, lasts: [2]float64{0.3, 1}},
	ClockAtBoot:     {numbers: []int{1, 2, 2}, of: nodes, lasts: [2]float64{0.05, 0.6}, by: [2]float64{-30, 30}},
	PauseClient:     {numbers: []int{1, 1, 2}, of: clients, lasts: [2]float64{1.1, 2.5}},
	StopProcess:     {numbers: []int{2, 4}, of: clients, lasts: [2]float64{0.002, 2.5}, brief: true},
	KillClient:      {numbers: []int{1}, of: clients},
	Reset:           {numbers: ofRelays, of: nodes},
	DropRequests:    {numbers: ofRelays, of: nodes, lasts: oneWay},
	DropReplies:     {numbers: ofRelays, of: nodes, lasts: oneWay},
	DelayRequests:   {numbers: ofRelays, of: nodes, lasts: oneWay, by: aVote},
	DelayReplies:    {numbers: ofRelays, of: nodes, lasts: oneWay, by: aVote},
	HoldRequests:    {numbers: ofRelays, of: nodes, lasts: oneWay},
	HoldReplies:     {numbers: ofRelays, of: nodes, lasts: oneWay},
	LateRequests:    {numbers: ofRelays, of: nodes, lasts: onePacket, by: [2]float64{0.005, 2}},
	LateReplies:     {numbers: ofRelays, of: nodes, lasts: onePacket, by: [2]float64{0.005, 2}},
	PauseDaemon:     {numbers: []int{1, 1, 2}, of: daemons, lasts: [2]float64{0.3, 2.5}},
	KillDaemon:      {numbers: []int{1, 1, 2}, of: daemons},
	EndDaemon:       {numbers: []int{1}, of: daemons},
	DelayAnswers:    {numbers: []int{1, 2}, of: daemons, lasts: [2]float64{1, 2.5}, by: [2]float64{0.1, 1.5}}, // possibly past the lock's deadline
	HoldAnswers:     {numbers: []int{1, 2}, of: daemons, lasts: [2]float64{0.3, 2}},
}

var (
	ofRelays  = []int{1, 1, 2, 2, 3, 5}
	oneWay    = [2]float64{0.1, 1.2}
	onePacket = [2]float64{0.02, 0.2}  // long enough that each connection sends a packet
	aVote     = [2]float64{0.005, 0.3} // from delays within the node timeout to delays above it
)

// A Step is one fault.
type Step struct {
	At      time.Duration // time since the start of the plan
	For     time.Duration // time until the fault is undone
	Kind    Kind
	Victims []int
	By      time.Duration // length of a delay, or offset of a clock
}

func (s Step) String() string {
	text := fmt.Sprintf("%7.3fs %s %s %v", s.At.Seconds(), s.Kind, profiles[s.Kind].of, s.Victims)
	if s.By != 0 {
		text += fmt.Sprintf(" by %v", s.By)
	}
	if s.For > 0 {
		text += fmt.Sprintf(" for %v", s.For)
	}
	return text
}

// A Plan is the steps of each lane, in order.
type Plan [][]Step

// A Setting is the size of the world that a plan is for.
type Setting struct {
	Seed     uint64
	Duration time.Duration
	Nodes    int
	Clients  int
	Daemons  int
	TTL      time.Duration
}

// Plan draws the scenario's faults. All are undone within the duration.
func (s Scenario) Plan(set Setting) Plan {
	plan := make(Plan, len(s.Lanes))
	for i, lane := range s.Lanes {
		h := fnv.New64a()
		fmt.Fprint(h, s.Name, i)
		d := &draw{Setting: set, rand: rand.New(rand.NewPCG(set.Seed, h.Sum64()))}
		for at := time.Duration(0); ; {
			at += d.ttls(lane.Gap)
			step := d.step(d.kind(lane.Kinds))
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
func (d *draw) ttls(between [2]float64) time.Duration {
	from, to := between[0], between[1]
	return time.Duration((from + d.rand.Float64()*(to-from)) * float64(d.TTL)).Round(time.Millisecond)
}

// kind draws a kind; each kind comes once before any kind is repeated.
func (d *draw) kind(kinds []Kind) Kind {
	if len(d.deck) == 0 {
		d.deck = slices.Clone(kinds)
		d.rand.Shuffle(len(d.deck), func(i, j int) { d.deck[i], d.deck[j] = d.deck[j], d.deck[i] })
	}
	k := d.deck[0]
	d.deck = d.deck[1:]
	return k
}

// step draws the victims of a fault, in order, and its duration.
func (d *draw) step(k Kind) Step {
	p, s := profiles[k], Step{Kind: k}
	n, all := d.Nodes/2+1, map[string]int{nodes: d.Nodes, clients: d.Clients, daemons: d.Daemons}[p.of]
	if len(p.numbers) > 0 {
		n = p.numbers[d.rand.IntN(len(p.numbers))]
	}
	s.Victims = slices.Sorted(slices.Values(d.rand.Perm(all)[:min(n, all)]))
	if p.lasts[1] > 0 {
		if p.brief {
			p.lasts[1] *= math.Pow(d.rand.Float64(), 3)
			p.lasts[1] = max(p.lasts[0], p.lasts[1])
		}
		s.For = d.ttls(p.lasts)
	}
	if p.by[1] > 0 {
		s.By = cmp.Or(d.ttls(p.by), time.Millisecond)
	}
	return s
}
