package report

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// The fixtures are runs as they could have been, made from a fixed seed. A performer is how a
// made-up subject behaves.
type performer struct {
	record.Subject
	rate   float64       // cycles a second
	p50    time.Duration // to acquire
	tail   float64       // of the log-normal distribution
	cpu    time.Duration // of a cycle
	allocs float64
	stalls bool // while a node hangs
}

var cast = []performer{
	{record.Subject{Name: "redquorum", Title: "redquorum", Note: "as it comes: memory guard and renewal on"}, 17200, 1700 * time.Microsecond, 0.25, 62 * time.Microsecond, 38, false},
	{record.Subject{Name: "redquorum-fenced", Title: "redquorum, fencing tokens", Note: "Fenced()"}, 14100, 2100 * time.Microsecond, 0.3, 75 * time.Microsecond, 44, false},
	{record.Subject{Name: "redsync", Title: "redsync 4.18 (redigo)", Note: "pools of redigo; read and write timeouts of 1 s, which redsync's README does not have"}, 3420, 8900 * time.Microsecond, 0.5, 410 * time.Microsecond, 310, true},
	{record.Subject{Name: "redsync-goredis-failfast", Title: "redsync 4.18 (go-redis, fail fast)", Note: "WithFailFast(true)"}, 3900, 7600 * time.Microsecond, 0.55, 370 * time.Microsecond, 402, true},
	{record.Subject{Name: "rueidislock", Title: "rueidislock 1.0.79", Note: "client-side caching; KeyMajority 2 on one server", Single: true}, 9800, 3100 * time.Microsecond, 0.4, 130 * time.Microsecond, 120, true},
	{record.Subject{Name: "limit", Title: "the limit: raw sockets, no lock logic", Note: "what these servers could do at the very most"}, 24800, 1200 * time.Microsecond, 0.2, 21 * time.Microsecond, 0, false},
}

func subjects(cast []performer) []record.Subject {
	var all []record.Subject
	for _, p := range cast {
		all = append(all, p.Subject)
	}
	return all
}

func aRun(scenario, about string, cast []performer) record.Run {
	return record.Run{
		Scenario: scenario, About: about,
		Command:  "bench --scenario " + scenario + " --nodes process",
		Date:     time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		Machine:  record.Machine{OS: "linux", Arch: "amd64", CPUs: 2, GOMAXPROCS: 2, Go: "go1.26.0", Nodes: "process", Servers: "redis 7.0.15"},
		Subjects: subjects(cast),
	}
}

// aTrial is steady for its whole time.
func aTrial(p performer, round int, load record.Load, r *rand.Rand) record.Trial {
	rate := p.rate * (1 + 0.06*r.NormFloat64())
	elapsed := load.Duration
	t := record.Trial{
		Subject: p.Name, Round: round, Load: load, Elapsed: elapsed,
		Cycles:   int64(rate * elapsed.Seconds()),
		Outcomes: map[string]int64{},
		KeysLeft: 0,
	}
	for range min(t.Cycles, 4000) {
		took := p.draw(r)
		t.Acquire.Add(took)
		t.Cycle.Add(2 * took)
	}
	t.Outcomes[record.OK] = t.Cycles
	t.CPU = time.Duration(float64(p.cpu) * float64(t.Cycles) * (1 + 0.03*r.NormFloat64()))
	t.Allocs = int64(p.allocs * float64(t.Cycles))
	nodes := load.Nodes
	if p.Single {
		nodes = 1
	}
	for range nodes {
		t.Nodes = append(t.Nodes, record.NodeCosts{Commands: map[string]int64{"set": t.Cycles, "evalsha": t.Cycles}, BytesIn: 160 * t.Cycles, BytesOut: 9 * t.Cycles})
	}
	return t
}

func (p performer) draw(r *rand.Rand) time.Duration {
	took := float64(p.p50) * math.Exp(p.tail*r.NormFloat64())
	if r.Float64() < 0.002 {
		took *= 4 + 10*r.Float64()
	}
	return time.Duration(took)
}

var load64 = record.Load{Nodes: 5, Processes: 1, Callers: 64, Names: "own", TTL: 2 * time.Second, Duration: 2 * time.Second}

// steadyRun has six subjects and three rounds.
func steadyRun(cast []performer, rounds int) record.Run {
	r := rand.New(rand.NewPCG(1, 1))
	run := aRun("steady", "Every caller locks and unlocks a name of its own, as fast as it can.", cast)
	for round := range rounds {
		for _, p := range cast {
			run.Trials = append(run.Trials, aTrial(p, round, load64, r))
		}
	}
	return run
}

// sweepRun goes through numbers of callers.
func sweepRun() record.Run {
	r := rand.New(rand.NewPCG(2, 2))
	run := aRun("callers", "The same with more and more callers.", cast)
	for _, callers := range []int{1, 4, 16, 64, 256} {
		for round := range 3 {
			for _, p := range cast {
				load := load64
				load.Callers, load.Point = callers, fmt.Sprintf("callers=%d", callers)
				p.rate *= math.Min(1, math.Pow(float64(callers)/64, 0.7))
				p.p50 = time.Duration(float64(p.p50) * math.Max(0.1, float64(callers)/64))
				t := aTrial(p, round, load, r)
				if p.Name == "redsync" && callers == 256 {
					t.Cycles, t.Acquire, t.CPU = 0, record.Histogram{}, 0
					t.Outcomes = map[string]int64{record.Gave: 512}
				}
				run.Trials = append(run.Trials, t)
			}
		}
	}
	return run
}

// pauseRun hangs two of five nodes for five of fifteen seconds.
func pauseRun(cast []performer, slow bool) record.Run {
	run := aRun("pause-2-of-5", "Two of five nodes hang for five seconds: a majority is still there.", cast)
	faults := []record.Fault{{What: "pause 2 of 5", Kind: "pause", Nodes: []int{0, 1}, From: 5003 * time.Millisecond, To: 10012 * time.Millisecond}}
	if slow {
		faults = append(faults,
			record.Fault{What: "slow nodes 4 of 5 by 20ms", Kind: "slow", Nodes: []int{3}, From: 10100 * time.Millisecond, To: 11 * time.Second},
			record.Fault{What: "slow nodes 5 of 5 by 20ms", Kind: "slow", Nodes: []int{4}, From: 11100 * time.Millisecond, To: 12 * time.Second})
	}
	r := rand.New(rand.NewPCG(3, 3))
	for _, p := range cast {
		load := load64
		load.Duration, load.Rate, load.Patience = 15*time.Second, 2000, 3*time.Second
		t := aTrial(p, 0, load, r)
		t.Faults = faults
		for i := range faults {
			t.Services = append(t.Services, record.Service{Fault: i, Without: 12 * time.Millisecond, Recovery: 20 * time.Millisecond})
			if p.stalls {
				t.Services[i] = record.Service{Fault: i, Without: 5100 * time.Millisecond, Recovery: 800 * time.Millisecond}
			}
		}
		if p.Name == "redsync" {
			t.Services[0].Recovery = -1
			t.Errors = map[string]int64{"redsync: failed to acquire lock, # of # nodes": 412, "dial redis://user:s3cret@10.0.0.1:6379: i/o timeout": 20}
		}
		t.Slices = slices100ms(p, faults[0], load, r)
		t.Probes = probes(load.Nodes, load.Duration, faults, r)
		t.Outcomes = map[string]int64{}
		for _, s := range t.Slices {
			for outcome, n := range s.Outcomes {
				t.Outcomes[outcome] += n
			}
		}
		run.Trials = append(run.Trials, t)
	}
	return run
}

func slices100ms(p performer, f record.Fault, load record.Load, r *rand.Rand) []record.Slice {
	var all []record.Slice
	for from := time.Duration(0); from < load.Duration; from += 100 * time.Millisecond {
		s := record.Slice{From: from, Length: 100 * time.Millisecond, Outcomes: map[string]int64{}}
		var waits []time.Duration
		n := int(load.Rate/10) + r.IntN(9)
		broken := from >= f.From && from < f.To
		late := p.stalls && from >= f.To && from < f.To+time.Second
		switch {
		case broken && p.Name == "redsync":
			if r.IntN(4) > 0 {
				n = 0
			} else {
				n = 3
			}
			s.Outcomes[record.Failed] = int64(20 + r.IntN(30))
			s.Outcomes[record.Gave] = int64(10 + r.IntN(30))
		case broken && p.stalls:
			s.Outcomes[record.NoQuorum] = int64(1200 + r.IntN(600))
			s.Outcomes[record.Held] = int64(30 + r.IntN(30))
			n /= 3
		case late:
			n = n * 2
			s.Outcomes[record.Lost] = int64(r.IntN(3))
		}
		for range n {
			took := p.draw(r)
			if broken && p.stalls {
				took += 200 * time.Millisecond
			}
			if late {
				took += f.To + time.Second - from
			}
			waits = append(waits, took)
		}
		s.Acquire = quantiles(waits)
		s.Outcomes[record.OK] = int64(n)
		all = append(all, s)
	}
	return append(all, record.Slice{From: load.Duration, Length: 7 * time.Millisecond, Outcomes: map[string]int64{record.OK: 60, record.UnderWay: 4}})
}

// quantiles without the cost of a histogram for each of thousands of slices.
func quantiles(all []time.Duration) record.Quantiles {
	if len(all) == 0 {
		return record.Quantiles{}
	}
	slices.Sort(all)
	at := func(q float64) time.Duration { return all[int(q*float64(len(all)-1))] }
	return record.Quantiles{Count: int64(len(all)), P50: at(0.5), P90: at(0.9), P99: at(0.99), P999: at(0.999), Max: at(1)}
}

func probes(nodes int, end time.Duration, faults []record.Fault, r *rand.Rand) [][]record.Probe {
	all := make([][]record.Probe, nodes)
	for i := range all {
		for at := time.Duration(0); at < end; at += 50 * time.Millisecond {
			took := time.Duration(200+r.IntN(600)) * time.Microsecond
			for _, f := range faults {
				for _, n := range f.Nodes {
					if n == i && at >= f.From && at < f.To {
						took = -1
						if f.Kind == "slow" {
							took = 41 * time.Millisecond
						}
					}
				}
			}
			all[i] = append(all[i], record.Probe{At: at, Took: took})
		}
	}
	return all
}

// contentionRun has all callers want one name.
func contentionRun() record.Run {
	r := rand.New(rand.NewPCG(4, 4))
	run := aRun("contention", "All callers want the same lock.", cast[:5])
	for round := range 3 {
		for i, p := range cast[:5] {
			load := load64
			load.Names, load.Callers = "single", 32
			p.rate, p.p50, p.tail = p.rate/12, p.p50*14, p.tail*3
			t := aTrial(p, round, load, r)
			t.Checked = t.Cycles
			for range 32 {
				t.Callers = append(t.Callers, int64(math.Max(0, float64(t.Cycles)/32*(1+0.15*float64(i)*r.NormFloat64()))))
			}
			t.Outcomes[record.Gave] = int64(i * 3)
			if p.Name == "redsync" && round == 1 {
				t.Violations, t.Violation = 2, "bench:one held by caller 3 until 1.204 s and by caller 9 from 1.203 s"
				t.KeysLeft = 3
			}
			run.Trials = append(run.Trials, t)
		}
	}
	return run
}

func heldRun() record.Run {
	run := aRun("held", "Ten thousand locks are held under renewal.", cast[:5])
	for round := range 3 {
		for i, p := range cast[:5] {
			load := load64
			load.Held, load.Duration = 10000, 10*time.Second
			lost := 0
			if i == 3 {
				lost = 120 + round
			}
			run.Trials = append(run.Trials, record.Trial{Subject: p.Name, Round: round, Load: load, Elapsed: load.Duration,
				Held: &record.HeldLocks{Wanted: 10000, Acquired: 10000, Lost: lost, Bytes: int64(1e7 * (1 + float64(i)*1.3)), OnNode: 2_100_000,
					CPU: time.Duration(float64(time.Second) * (0.8 + 3*float64(i))), For: load.Duration}})
		}
	}
	return run
}

// heldSweepRun holds more and more.
func heldSweepRun() record.Run {
	run := aRun("held", "What more held locks cost.", cast[:2])
	for _, held := range []int{1, 100, 1000, 10000, 100000} {
		for i, p := range cast[:2] {
			load := load64
			load.Held, load.Duration, load.Point = held, 15*time.Second, fmt.Sprintf("held=%d", held)
			run.Trials = append(run.Trials, record.Trial{Subject: p.Name, Load: load, Elapsed: load.Duration,
				Held: &record.HeldLocks{Wanted: held, Acquired: held, Bytes: int64(60000 + 900*held*(1+i)),
					CPU: time.Duration(float64(time.Millisecond) * (20 + 0.3*float64(held))), For: load.Duration}})
		}
	}
	return run
}

// longCast has ten subjects, some with titles that fit nowhere.
func longCast() []performer {
	all := append([]performer{}, cast...)
	for i := range 4 {
		p := cast[2]
		p.Name = fmt.Sprintf("another-%d", i)
		p.Title = fmt.Sprintf("another library %d with a title that goes on and on, as if there were room for it", i)
		p.rate *= 1 + float64(i)/3
		p.p50 = p.p50 * time.Duration(10+i) / 9
		all = append(all, p)
	}
	return all
}

// nothingRun is a run in which nothing ever succeeded, or was measured.
func nothingRun() record.Run {
	run := aRun("nothing", "No node answers.", cast[:3])
	run.Machine.Nodes = "embedded"
	for _, p := range cast[:3] {
		run.Trials = append(run.Trials, record.Trial{Subject: p.Name, Load: load64, Elapsed: 2 * time.Second, Outcomes: map[string]int64{record.NoQuorum: 120}, KeysLeft: -1,
			Faults: []record.Fault{{What: "kill 5 of 5", Kind: "kill", From: 0, To: time.Second}},
			Slices: []record.Slice{{Length: time.Second, Outcomes: map[string]int64{record.NoQuorum: 120}}, {From: time.Second}},
			Probes: [][]record.Probe{{{At: 0, Took: -1}}, {}}})
	}
	return run
}

// outlierRun has one subject a thousand times slower and one stall of a minute.
func outlierRun() record.Run {
	slow := cast[2]
	slow.rate, slow.p50, slow.cpu = 4, 900*time.Millisecond, 30*time.Millisecond
	run := steadyRun([]performer{cast[0], slow, cast[5]}, 3)
	run.Trials[0].Acquire.Add(time.Minute)
	return run
}

// scaleRun is several sweeps in one run.
func scaleRun() record.Run {
	r := rand.New(rand.NewPCG(5, 5))
	run := aRun("scale", "More of everything.", cast[:4])
	for _, point := range []string{"nodes=9", "nodes=3", "nodes=1", "callers=1", "callers=16", "callers=1024",
		"processes=1", "processes=16", "length=16", "length=1000", "length=1024"} {
		for round := range 3 {
			for _, p := range cast[:4] {
				load := load64
				load.Point = point
				if point == "callers=1" {
					p.rate, p.p50 = p.rate/100, p.p50/20
				}
				run.Trials = append(run.Trials, aTrial(p, round, load, r))
			}
		}
	}
	return run
}

// fixtures are all of them, by name. They are made once and not to be changed.
var fixtures = map[string]func() record.Run{
	"steady":     sync.OnceValue(func() record.Run { return steadyRun(cast, 3) }),
	"sweep":      sync.OnceValue(sweepRun),
	"pause":      sync.OnceValue(func() record.Run { return pauseRun([]performer{cast[0], cast[2], cast[3]}, false) }),
	"flapping":   sync.OnceValue(func() record.Run { return pauseRun(longCast(), true) }),
	"contention": sync.OnceValue(contentionRun),
	"held":       sync.OnceValue(heldRun),
	"heldsweep":  sync.OnceValue(heldSweepRun),
	"ten":        sync.OnceValue(func() record.Run { return steadyRun(longCast(), 3) }),
	"alone":      sync.OnceValue(func() record.Run { return steadyRun(cast[:1], 1) }),
	"nothing":    sync.OnceValue(nothingRun),
	"empty":      sync.OnceValue(func() record.Run { return record.Run{} }),
	"outlier":    sync.OnceValue(outlierRun),
	"scale":      sync.OnceValue(scaleRun),
}
