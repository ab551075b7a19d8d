package record

import (
	"maps"
	"math"
	"slices"
	"time"
)

// A Summary is one subject at one point of a sweep, over all rounds.
type Summary struct {
	Subject Subject
	Point   string // Load.Point
	Load    Load   // of the first round
	Rounds  int

	PerSecond Spread  // cycles a second
	Ratio     float64 // median cycles a second of this subject by that of the run's first subject at this point; 0: that has none
	Acquire   Latency
	Cycle     Latency
	Acquired  Histogram // the acquisitions of all rounds together

	CPUPerCycle      Spread // nanoseconds
	AllocsPerCycle   Spread
	BytesPerCycle    Spread // of a node, in and out; 0: not known
	CommandsPerCycle Spread // of a node; 0: not known
	FailedShare      Spread // 0 to 1
	Fairness         Spread // Jain's index over the callers; 0: not asked for

	// Sums over the rounds.
	Outcomes   map[string]int64
	Errors     map[string]int64
	Checked    int64
	Violations int64
	KeysLeft   int // -1: not known in any round

	Services []Service  // medians, one a fault; a recovery that did not happen is the longest
	Held     *HeldLocks // medians; nil: not of this load
}

// Latency is quantiles of one round each, in nanoseconds, over the rounds.
type Latency struct{ P50, P90, P99, P999, Max Spread }

// Summaries are in the order of the run's subjects, and within a subject in the order in which the
// points were first measured. Subjects without a trial have none.
func (r Run) Summaries() []Summary {
	subjects := slices.Clone(r.Subjects)
	for _, t := range r.Trials {
		if !slices.ContainsFunc(subjects, func(s Subject) bool { return s.Name == t.Subject }) {
			subjects = append(subjects, Subject{Name: t.Subject, Title: t.Subject})
		}
	}
	var all []Summary
	first := map[string]float64{} // by point
	for i, s := range subjects {
		for _, point := range r.points() {
			trials := r.of(s.Name, point)
			if len(trials) == 0 {
				continue
			}
			sum := summarize(s, trials)
			if i == 0 {
				first[point] = sum.PerSecond.Median
			}
			sum.Ratio = per(sum.PerSecond.Median, first[point])
			all = append(all, sum)
		}
	}
	return all
}

func (r Run) points() []string {
	var points []string
	for _, t := range r.Trials {
		if !slices.Contains(points, t.Load.Point) {
			points = append(points, t.Load.Point)
		}
	}
	return points
}

func (r Run) of(subject, point string) []Trial {
	var trials []Trial
	for _, t := range r.Trials {
		if t.Subject == subject && t.Load.Point == point {
			trials = append(trials, t)
		}
	}
	return trials
}

func summarize(s Subject, trials []Trial) Summary {
	over := func(figure func(Trial) float64) Spread {
		xs := make([]float64, len(trials))
		for i, t := range trials {
			xs[i] = figure(t)
		}
		return spread(xs)
	}
	sum := Summary{
		Subject: s, Point: trials[0].Load.Point, Load: trials[0].Load, Rounds: len(trials),
		PerSecond:        over(Trial.PerSecond),
		Acquire:          latency(trials, func(t Trial) Histogram { return t.Acquire }),
		Cycle:            latency(trials, func(t Trial) Histogram { return t.Cycle }),
		CPUPerCycle:      over(func(t Trial) float64 { return float64(t.CPUPerCycle()) }),
		AllocsPerCycle:   over(Trial.AllocsPerCycle),
		BytesPerCycle:    over(func(t Trial) float64 { return t.BytesPerCycle(s.Single) }),
		CommandsPerCycle: over(func(t Trial) float64 { return t.CommandsPerCycle(s.Single) }),
		FailedShare:      over(Trial.FailedShare),
		Outcomes:         map[string]int64{}, Errors: map[string]int64{}, KeysLeft: -1,
		Services: medianServices(trials), Held: held(trials),
	}
	var fairness []float64
	for _, t := range trials {
		if len(t.Callers) > 0 {
			fairness = append(fairness, Jain(t.Callers))
		}
		sum.Acquired.Merge(t.Acquire)
		add(sum.Outcomes, t.Outcomes)
		add(sum.Errors, t.Errors)
		sum.Checked += t.Checked
		sum.Violations += t.Violations
		if t.KeysLeft >= 0 {
			sum.KeysLeft = max(sum.KeysLeft, 0) + t.KeysLeft
		}
	}
	sum.Fairness = spread(fairness)
	return sum
}

func add(to, from map[string]int64) {
	for k, n := range from {
		to[k] += n
	}
}

// latency leaves out rounds in which nothing was counted: zero is no latency.
func latency(trials []Trial, of func(Trial) Histogram) Latency {
	var rounds []Quantiles
	for _, t := range trials {
		if q := of(t).Quantiles(); q.Count > 0 {
			rounds = append(rounds, q)
		}
	}
	over := func(figure func(Quantiles) time.Duration) Spread {
		xs := make([]float64, len(rounds))
		for i, q := range rounds {
			xs[i] = float64(figure(q))
		}
		return spread(xs)
	}
	return Latency{
		P50:  over(func(q Quantiles) time.Duration { return q.P50 }),
		P90:  over(func(q Quantiles) time.Duration { return q.P90 }),
		P99:  over(func(q Quantiles) time.Duration { return q.P99 }),
		P999: over(func(q Quantiles) time.Duration { return q.P999 }),
		Max:  over(func(q Quantiles) time.Duration { return q.Max }),
	}
}

func medianServices(trials []Trial) []Service {
	without, recovery := map[int][]float64{}, map[int][]float64{}
	for _, t := range trials {
		for _, s := range t.Services {
			without[s.Fault] = append(without[s.Fault], float64(s.Without))
			r := float64(s.Recovery)
			if s.Recovery < 0 {
				r = math.Inf(1)
			}
			recovery[s.Fault] = append(recovery[s.Fault], r)
		}
	}
	var medians []Service
	for _, fault := range slices.Sorted(maps.Keys(without)) {
		s := Service{Fault: fault, Without: time.Duration(Median(without[fault])), Recovery: -1}
		s.Before = medianQuantiles(trials, fault, func(s Service) Quantiles { return s.Before })
		s.During = medianQuantiles(trials, fault, func(s Service) Quantiles { return s.During })
		if r := Median(recovery[fault]); !math.IsInf(r, 1) {
			s.Recovery = time.Duration(r)
		}
		medians = append(medians, s)
	}
	return medians
}

// medianQuantiles are each the median over the rounds in which anything was counted.
func medianQuantiles(trials []Trial, fault int, of func(Service) Quantiles) (median Quantiles) {
	var rounds []Quantiles
	for _, t := range trials {
		for _, s := range t.Services {
			if q := of(s); s.Fault == fault && q.Count > 0 {
				rounds = append(rounds, q)
			}
		}
	}
	over := func(figure func(Quantiles) time.Duration) time.Duration {
		xs := make([]float64, len(rounds))
		for i, q := range rounds {
			xs[i] = float64(figure(q))
		}
		return time.Duration(Median(xs))
	}
	for _, q := range rounds {
		median.Count += q.Count
	}
	median.P50 = over(func(q Quantiles) time.Duration { return q.P50 })
	median.P90 = over(func(q Quantiles) time.Duration { return q.P90 })
	median.P99 = over(func(q Quantiles) time.Duration { return q.P99 })
	median.P999 = over(func(q Quantiles) time.Duration { return q.P999 })
	median.Max = over(func(q Quantiles) time.Duration { return q.Max })
	return median
}

func held(trials []Trial) *HeldLocks {
	over := func(figure func(*HeldLocks) float64) float64 {
		var xs []float64
		for _, t := range trials {
			if t.Held != nil {
				xs = append(xs, figure(t.Held))
			}
		}
		return Median(xs)
	}
	if !slices.ContainsFunc(trials, func(t Trial) bool { return t.Held != nil }) {
		return nil
	}
	return &HeldLocks{
		Wanted:   int(over(func(h *HeldLocks) float64 { return float64(h.Wanted) })),
		Acquired: int(over(func(h *HeldLocks) float64 { return float64(h.Acquired) })),
		Lost:     int(over(func(h *HeldLocks) float64 { return float64(h.Lost) })),
		Bytes:    int64(over(func(h *HeldLocks) float64 { return float64(h.Bytes) })),
		OnNode:   int64(over(func(h *HeldLocks) float64 { return float64(h.OnNode) })),
		CPU:      time.Duration(over(func(h *HeldLocks) float64 { return float64(h.CPU) })),
		For:      time.Duration(over(func(h *HeldLocks) float64 { return float64(h.For) })),
	}
}
