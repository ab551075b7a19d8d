package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// Markdown writes the main figures as a table.
func Markdown(w io.Writer, run record.Run) { writeTable(w, " | ", run.Summaries(), figures(run)) }

// A figure is a column of a table. It is omitted if it is "" in all rows.
type figure struct {
	head string
	of   func(record.Summary) string
}

// writeTable writes a table in Markdown with a row for each summary. The separator of cells may
// contain a tab, for a tabwriter.
func writeTable(w io.Writer, separator string, sums []record.Summary, figures []figure) {
	words := []figure{
		{"", func(s record.Summary) string { return s.Subject.Title }},
		{"fault", func(s record.Summary) string {
			if f := s.Trials[0].Fault; f != nil {
				return fmt.Sprintf("%s at %s", f.What, span(float64(f.From)))
			}
			return ""
		}},
	}
	rows := make([][]string, 2+len(sums)) // heads, rules
	for i, f := range slices.Concat(words, figures) {
		column, rule := []string{}, "--:"
		if i < len(words) {
			rule = "---"
		}
		for _, s := range sums {
			column = append(column, f.of(s))
		}
		if !slices.ContainsFunc(column, func(cell string) bool { return cell != "" }) {
			continue
		}
		for j, cell := range append([]string{f.head, rule}, column...) {
			rows[j] = append(rows[j], cell)
		}
	}
	for _, cells := range rows {
		fmt.Fprintf(w, "| %s |\n", strings.Join(cells, separator))
	}
}

// figures returns the columns that suit the run: the effect of a fault, the cost of held locks, or
// the speed. With the speed it shows either the exclusion of callers or the cost of a cycle.
func figures(run record.Run) []figure {
	is := func(what func(record.Trial) bool) bool { return slices.ContainsFunc(run.Trials, what) }
	switch {
	case is(func(t record.Trial) bool { return t.Held != nil }):
		return holding
	case is(func(t record.Trial) bool { return t.Fault != nil }):
		return effects
	case is(func(t record.Trial) bool { return t.Checked > 0 }):
		return slices.Concat(speed, exclusion)
	}
	return slices.Concat(speed, costs)
}

// median writes the median of a figure over the rounds, or "-" if it is unknown.
func median(show func(float64) string, figure func(record.Trial) float64) func(record.Summary) string {
	return func(s record.Summary) string {
		x := s.Over(figure).Median
		if x == 0 || math.IsInf(x, 0) {
			return "-"
		}
		return show(x)
	}
}

var speed = []figure{
	{"ratio", func(s record.Summary) string { return ratio(s.Ratio) }},
	{"cycles/s", func(s record.Summary) string { return count(s.PerSecond().Median) }},
	{"min–max", func(s record.Summary) string {
		if len(s.Trials) == 1 {
			return ""
		}
		return count(s.PerSecond().Min) + "–" + count(s.PerSecond().Max)
	}},
	{"p50", median(span, func(t record.Trial) float64 { return t.Acquire.At(0.5) })},
	{"p99", median(span, func(t record.Trial) float64 { return t.Acquire.At(0.99) })},
}

var exclusion = []figure{
	{"overlaps", func(s record.Summary) string { return whole(s.Sum(violations)) }},
	{"fairness (Jain)", func(s record.Summary) string { return fmt.Sprintf("%.2f", s.Over(record.Trial.Fairness).Median) }},
}

var costs = []figure{
	{"client CPU", median(span, func(t record.Trial) float64 { return float64(t.CPU) / float64(t.Cycles) })},
	{"allocations", median(count, func(t record.Trial) float64 { return float64(t.Allocs) / float64(t.Cycles) })},
	{"commands a node", median(significant, func(t record.Trial) float64 { return t.CommandsOfANode() / float64(t.Cycles) })},
}

var holding = []figure{
	{"acquired", func(s record.Summary) string {
		acquired := s.Over(func(t record.Trial) float64 { return float64(t.Held.Acquired) }).Median
		return whole(int64(acquired)) + " of " + whole(int64(s.Trials[0].Held.Wanted))
	}},
	{"lost", func(s record.Summary) string {
		return whole(int64(s.Over(func(t record.Trial) float64 { return float64(t.Held.Lost) }).Median))
	}},
	{"memory a lock", median(size, func(t record.Trial) float64 { return float64(t.Held.Bytes) / float64(t.Held.Acquired) })},
	{"on each server", median(size, func(t record.Trial) float64 { return float64(t.Held.OnNode) / float64(t.Held.Acquired) })},
	{"CPU of a core", median(percent, func(t record.Trial) float64 { return float64(t.Held.CPU) / float64(t.Held.For) })},
	{"held for", median(span, func(t record.Trial) float64 { return float64(t.Held.For) })},
}

var effects = []figure{
	{"no lock for", median(span, func(t record.Trial) float64 { return float64(t.Fault.Without) })},
	{"recovery", func(s record.Summary) string {
		recovery := s.Over(func(t record.Trial) float64 { return float64(t.Fault.Recovery) }).Median
		if recovery < 0 {
			return "none"
		}
		return span(recovery)
	}},
	{"p99 before", median(span, func(t record.Trial) float64 { return t.Fault.Before.At(0.99) })},
	{"p99 during", median(span, func(t record.Trial) float64 { return t.Fault.During.At(0.99) })},
}

func violations(t record.Trial) int64 { return t.Violations }
func cycles(t record.Trial) int64     { return t.Cycles }
