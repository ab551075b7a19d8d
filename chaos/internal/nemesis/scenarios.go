package nemesis

import (
	"slices"

	"github.com/redquorum/redquorum/internal/fleet"
)

// A Scenario has the faults of a run, and their victims.
type Scenario struct {
	Name  string
	About string
	Lanes []Lane

	Persistence []fleet.Persistence // persistence of the nodes in order, repeated if there are more nodes; nil: none
	Relayed     bool                // clients reach the servers through relays
	Standbys    bool                // each node has a standby; every second client loses its connection to a primary
	Copies      bool                // each node has a copy that clients do not know
	Clocks      bool                // the clocks of servers can be set
	Served      bool                // every second client takes its locks over HTTP, from a daemon
	ByRun       bool                // every second client takes its locks through redlock run
	Busy        bool                // clients hold their locks for most of a TTL
}

// A Lane is a series of faults, one at a time.
type Lane struct {
	Gap   [2]float64 // between the end of a fault and the next one, in TTLs
	Kinds []Kind     // kinds to draw from
}

var (
	always = [2]float64{0.002, 0.05}
	often  = [2]float64{0.1, 0.5}
	seldom = [2]float64{0.3, 1.5}
)

// Scenarios are all scenarios.
var Scenarios = []Scenario{
	{Name: "pause-servers", About: "servers hang, also most of them",
		Lanes: []Lane{{often, []Kind{PauseServer}}}},
	{Name: "pause-clients", About: "clients hang past the end of their locks, and then continue",
		Lanes: []Lane{{often, []Kind{PauseClient}}}},
	{Name: "kill-clients", About: "clients die with their locks",
		Lanes: []Lane{{often, []Kind{KillClient}}}},
	{Name: "kill-none", About: "servers that write nothing to disk are killed and restarted",
		Lanes: []Lane{{seldom, []Kind{KillServer}}}},
	{Name: "restart-majority", About: "three of five servers without persistence are restarted at once, under load",
		Busy:  true,
		Lanes: []Lane{{[2]float64{1.3, 2.5}, []Kind{RestartMajority}}}},
	{Name: "flush", About: "single servers are flushed, and sometimes most of them",
		Busy:  true,
		Lanes: []Lane{{[2]float64{0.5, 2}, []Kind{Flush}}}},
	{Name: "proxy", About: "requests or replies are lost, late or held; connections are reset",
		Relayed: true,
		Lanes:   []Lane{{often, ofNetwork}}},
	{Name: "fail-over", About: "standbys are promoted, also most of them, while some clients still reach the primaries before them",
		Standbys: true,
		Lanes:    []Lane{{[2]float64{1.2, 1.6}, []Kind{FailOver}}}},
	{Name: "fail-over-and-back", About: "primaries take the data of copies that are older, and are promoted again within milliseconds, between two packets",
		Relayed: true,
		Copies:  true,
		Busy:    true,
		Lanes:   []Lane{{[2]float64{1.1, 1.6}, []Kind{ThereAndBack}}}},
	{Name: "late", About: "single packets are up to seconds late, while servers forget and clients begin",
		Relayed: true,
		Lanes: []Lane{
			{often, []Kind{LateRequests, LateReplies}},
			{seldom, []Kind{Flush, KillServer, RestartMajority}},
			{seldom, []Kind{KillClient}},
		}},
	{Name: "clock-at-boot", About: "one or two servers at a time are restarted empty with clocks that are off, and set later, while others cannot be reached",
		Clocks:  true,
		Relayed: true,
		Busy:    true,
		Lanes:   []Lane{{seldom, []Kind{ClockAtBoot}}, {often, []Kind{DropRequests}}}},
	{Name: "serve", About: "every second client has its locks of redlock serve, whose processes hang, die and end, and whose answers are late",
		Served: true,
		Lanes: []Lane{
			{often, []Kind{PauseDaemon, KillDaemon, EndDaemon}},
			{seldom, []Kind{DelayAnswers, HoldAnswers}},
			{seldom, []Kind{PauseClient, KillClient}},
		}},
	{Name: "stop-anywhere", About: "servers, clients, redlock run, its warden and its command are stopped wherever they are, for moments and past the end of their locks",
		ByRun: true,
		Lanes: []Lane{{always, []Kind{StopServer}}, {always, []Kind{StopProcess}}}},
	{Name: "mixed", About: "all of it at once, on servers of every persistence",
		Persistence: []fleet.Persistence{fleet.None, fleet.EverySecond, fleet.Always, fleet.None, fleet.Always},
		Relayed:     true,
		Lanes: []Lane{
			{seldom, []Kind{PauseServer, KillServer, RestartMajority, Flush}},
			{seldom, []Kind{PauseClient, KillClient}},
			{seldom, ofNetwork},
		}},
}

var ofNetwork = []Kind{Reset, DropRequests, DropReplies, DelayRequests, DelayReplies, HoldRequests, HoldReplies}

// Wanted returns groups of kinds of faults. A run needs at least one fault of each group to prove
// anything.
func (s Scenario) Wanted() (groups [][]string) {
	for _, lane := range s.Lanes {
		groups = append(groups, lane.Kinds)
	}
	return groups
}

// ByName returns the scenario with the given name.
func ByName(name string) (s Scenario, ok bool) {
	i := slices.IndexFunc(Scenarios, func(s Scenario) bool { return s.Name == name })
	if i >= 0 {
		s = Scenarios[i]
	}
	return s, i >= 0
}

// Writes returns the persistence of n nodes.
func (s Scenario) Writes(n int) []fleet.Persistence {
	if s.Persistence == nil {
		return slices.Repeat([]fleet.Persistence{fleet.None}, n)
	}
	return slices.Repeat(s.Persistence, n)[:n]
}
