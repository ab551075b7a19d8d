package record

import (
	"math"
	"slices"
)

// PerSecond returns the rate of cycles.
func (t Trial) PerSecond() float64 { return float64(t.Cycles) / t.Load.Duration.Seconds() }

// CommandsOfANode returns the mean number of commands of the nodes that ran any; NaN if no node
// did.
func (t Trial) CommandsOfANode() float64 {
	var sum, counting float64
	for _, n := range t.Commands {
		sum += float64(n)
		if n > 0 {
			counting++
		}
	}
	return sum / counting
}

// Fairness returns Jain's index over the callers: 1 if all have the same number of cycles, 1/n if
// one of n has all; NaN if none has any. https://arxiv.org/abs/cs/9809099
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

// A Summary has the results of one subject in all rounds.
type Summary struct {
	Subject Subject
	Trials  []Trial // one for each round; at least one
	Ratio   float64 // median cycles a second, relative to the first subject; zero if the first subject had no cycles
}

// Over returns the spread of a figure over the rounds in which the figure is a number; zero if
// there is no such round.
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

// PerSecond returns the rate of cycles over the rounds.
func (s Summary) PerSecond() Spread { return s.Over(Trial.PerSecond) }

// Acquire returns a quantile of the time to acquire, in nanoseconds, over the rounds.
func (s Summary) Acquire(quantile float64) Spread {
	return s.Over(func(t Trial) float64 { return t.Acquire.At(quantile) })
}

// Sum returns a count over all rounds.
func (s Summary) Sum(count func(Trial) int64) (n int64) {
	for _, t := range s.Trials {
		n += count(t)
	}
	return n
}

// Summaries returns the subjects that were measured, in the order of the run.
func (r Run) Summaries() (all []Summary) {
	first := 0.0
	for i, subject := range r.Subjects {
		s := Summary{Subject: subject}
		for _, t := range r.Trials {
			if t.Subject == subject.Name {
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
	return all
}
