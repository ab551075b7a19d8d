package record

import (
	"math"
	"slices"
)

// PerSecond is the rate of cycles.
func (t Trial) PerSecond() float64 { return float64(t.Cycles) / t.Load.Duration.Seconds() }

// PerCycle is a figure of the trial for each cycle, failed ones included; NaN if there was none.
func (t Trial) PerCycle(figure float64) float64 {
	if t.Cycles == 0 {
		return math.NaN()
	}
	return figure / float64(t.Cycles)
}

// Commands is how many commands a node ran: the mean of the nodes that ran any, NaN if none did.
func (t Trial) Commands() float64 {
	var sum, counting int64
	for _, n := range t.Nodes {
		for _, c := range n.Commands {
			sum += c
		}
		if len(n.Commands) > 0 {
			counting++
		}
	}
	return float64(sum) / float64(counting)
}

// Fairness is Jain's index over the callers: 1 where all have the same, 1/n where one of n has
// everything, NaN where none has anything or callers are not counted.
// https://arxiv.org/abs/cs/9809099
func (t Trial) Fairness() float64 {
	var sum, squares float64
	for _, x := range t.Callers {
		sum += float64(x)
		squares += float64(x) * float64(x)
	}
	return sum * sum / (float64(len(t.Callers)) * squares)
}

// A Spread is a figure over the rounds.
type Spread struct{ Median, Min, Max float64 }

// A Summary is one subject at one point of a sweep.
type Summary struct {
	Subject Subject
	Point   string  // Load.Point
	Trials  []Trial // one a round, and one at least
	Ratio   float64 // median cycles a second by those of the run's first subject at this point; 0: that has none
}

// Over is the spread of a figure over the rounds in which it is not NaN; zero if it always is.
func (s Summary) Over(figure func(Trial) float64) Spread {
	var xs []float64
	for _, t := range s.Trials {
		if x := figure(t); !math.IsNaN(x) {
			xs = append(xs, x)
		}
	}
	if len(xs) == 0 {
		return Spread{}
	}
	slices.Sort(xs)
	n := len(xs)
	return Spread{Median: (xs[(n-1)/2] + xs[n/2]) / 2, Min: xs[0], Max: xs[n-1]}
}

// PerSecond is the rate of cycles over the rounds.
func (s Summary) PerSecond() Spread { return s.Over(Trial.PerSecond) }

// Acquire is a quantile of acquiring, in nanoseconds, over the rounds in which anything was acquired.
func (s Summary) Acquire(quantile float64) Spread {
	return s.Over(func(t Trial) float64 { return t.Acquire.Quantile(quantile) })
}

// Quantile is At in nanoseconds, and NaN if nothing was counted: zero is no latency.
func (h Histogram) Quantile(q float64) float64 {
	if h.Count() == 0 {
		return math.NaN()
	}
	return float64(h.At(q))
}

// Sum is a count of all rounds together.
func (s Summary) Sum(count func(Trial) int64) (n int64) {
	for _, t := range s.Trials {
		n += count(t)
	}
	return n
}

// Summaries are in the order in which the points were first measured, and within a point in that of
// the run's subjects.
func (r Run) Summaries() []Summary {
	var all []Summary
	for _, point := range r.Points() {
		first := 0.0
		for i, subject := range r.Subjects {
			s := Summary{Subject: subject, Point: point}
			for _, t := range r.Trials {
				if t.Subject == subject.Name && t.Load.Point == point {
					s.Trials = append(s.Trials, t)
				}
			}
			if len(s.Trials) == 0 {
				continue
			}
			if i == 0 {
				first = s.PerSecond().Median
			}
			if first > 0 {
				s.Ratio = s.PerSecond().Median / first
			}
			all = append(all, s)
		}
	}
	return all
}

// Points are those of the sweeps, or "" alone.
func (r Run) Points() []string {
	var points []string
	for _, t := range r.Trials {
		if !slices.Contains(points, t.Load.Point) {
			points = append(points, t.Load.Point)
		}
	}
	return points
}
