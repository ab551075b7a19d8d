package record

import (
	"math"
	"slices"
	"time"
)

// PerSecond is the rate of cycles.
func (t Trial) PerSecond() float64 { return per(float64(t.Cycles), t.Elapsed.Seconds()) }

// CPUPerCycle is the time that the client processes used for each cycle, failed ones included.
func (t Trial) CPUPerCycle() time.Duration {
	return time.Duration(per(float64(t.CPU), float64(t.Cycles)))
}

// AllocsPerCycle is how many heap objects the client processes made for each cycle.
func (t Trial) AllocsPerCycle() float64 { return per(float64(t.Allocs), float64(t.Cycles)) }

// FailedShare is the share, from 0 to 1, of cycles that did not succeed. Cycles that the trial's
// end cut off count neither way.
func (t Trial) FailedShare() float64 {
	var all int64
	for outcome, n := range t.Outcomes {
		if outcome != UnderWay {
			all += n
		}
	}
	return per(float64(all-t.Outcomes[OK]), float64(all))
}

// BytesPerCycle and CommandsPerCycle are the bytes that a node received and sent, and the commands
// that it ran, for each cycle: the mean of the nodes that count. A subject on a single server has
// only the first node to ask.
func (t Trial) BytesPerCycle(single bool) float64 {
	return t.perNode(single, func(n NodeCosts) float64 { return float64(n.BytesIn + n.BytesOut) })
}

func (t Trial) CommandsPerCycle(single bool) float64 {
	return t.perNode(single, func(n NodeCosts) float64 {
		var commands int64
		for _, c := range n.Commands {
			commands += c
		}
		return float64(commands)
	})
}

func (t Trial) perNode(single bool, cost func(NodeCosts) float64) float64 {
	nodes := t.Nodes
	if single && len(nodes) > 1 {
		nodes = nodes[:1]
	}
	var sum, counting float64
	for _, n := range nodes {
		if c := cost(n); c > 0 {
			sum += c
			counting++
		}
	}
	return per(per(sum, counting), float64(t.Cycles))
}

// per is a/b, and zero of nothing, so that no report shows NaN or infinity.
func per(a, b float64) float64 {
	if b <= 0 {
		return 0
	}
	return a / b
}

// Median of values in any order; zero of none.
func Median(xs []float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	xs = slices.Sorted(slices.Values(xs))
	if n := len(xs); n%2 == 0 {
		return (xs[n/2-1] + xs[n/2]) / 2
	}
	return xs[len(xs)/2]
}

// Jain is Jain's index of fairness: 1 where all have the same, 1/n where one of n has everything, 0
// where none has anything.
// https://arxiv.org/abs/cs/9809099
func Jain(xs []int64) float64 {
	var sum, squares float64
	for _, x := range xs {
		sum += float64(x)
		squares += float64(x) * float64(x)
	}
	return per(sum*sum, float64(len(xs))*squares)
}

// A Spread is a figure over the rounds.
type Spread struct{ Median, Min, Max float64 }

func spread(xs []float64) Spread {
	if len(xs) == 0 {
		return Spread{}
	}
	return Spread{Median: Median(xs), Min: slices.Min(xs), Max: slices.Max(xs)}
}

// Duration is the median of a figure in nanoseconds.
func (s Spread) Duration() time.Duration { return time.Duration(math.Round(s.Median)) }
