package report

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
)

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
				Held: &record.HeldLocks{Wanted: 10000, Acquired: 10000, Lost: lost, Bytes: int64(1e7 * (1 + float64(i)*1.3)),
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

// pointsRun sweeps over what is no number.
func pointsRun() record.Run {
	r := rand.New(rand.NewPCG(5, 5))
	run := aRun("names", "How names are chosen.", cast[:4])
	for _, point := range []string{"own names", "zipf:1000", "one name for all callers"} {
		for round := range 3 {
			for _, p := range cast[:4] {
				load := load64
				load.Point = point
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
	"points":     sync.OnceValue(pointsRun),
}
