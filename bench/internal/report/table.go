package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// A table is rows of cells below a row of heads. The first columns are words, the others figures.
type table struct {
	words int
	heads []string
	rows  [][]string
}

// write writes the table in Markdown. The separator of two cells may have a tab in it, for a
// tabwriter.
func (t table) write(w io.Writer, separator string) {
	line := func(cells []string) {
		fmt.Fprintf(w, "| %s |\n", strings.Join(cells, separator))
	}
	rules := slices.Concat(slices.Repeat([]string{"---"}, t.words), slices.Repeat([]string{"--:"}, len(t.heads)-t.words))
	line(t.heads)
	line(rules)
	for _, r := range t.rows {
		line(r)
	}
}

// Markdown writes the figures that tell most as one table.
func Markdown(w io.Writer, run record.Run) { look(run).table().write(w, " | ") }

// A figure is a column of a table. It is left out if it is "" of all rows.
type figure struct {
	head string
	of   func(record.Summary) string
}

// table tells how a fault was felt, what held locks cost, or speed and either what it costs or who
// was served.
func (v view) table() table {
	cycling := v.cycling()
	switch {
	case len(cycling) == 0:
		return tabulate(v.sums, holding)
	case slices.ContainsFunc(cycling, func(s record.Summary) bool { return s.Trials[0].Fault != nil }):
		return tabulate(cycling, effects)
	case slices.ContainsFunc(cycling, func(s record.Summary) bool { return s.Sum(checked) > 0 }):
		return tabulate(cycling, slices.Concat(speed, exclusion))
	}
	return tabulate(cycling, slices.Concat(speed, costs))
}

func tabulate(sums []record.Summary, figures []figure) table {
	words := []figure{
		{"", func(s record.Summary) string { return s.Subject.Title }},
		{"point", func(s record.Summary) string { return s.Point }},
		{"fault", func(s record.Summary) string {
			f := s.Trials[0].Fault
			if f == nil {
				return ""
			}
			return fmt.Sprintf("%s at %s", f.What, span(float64(f.From)))
		}},
	}
	t := table{rows: make([][]string, len(sums))}
	for i, f := range slices.Concat(words, figures) {
		column, known := make([]string, len(sums)), false
		for j, s := range sums {
			column[j] = f.of(s)
			known = known || column[j] != ""
		}
		if !known {
			continue
		}
		if i < len(words) {
			t.words++
		}
		t.heads = append(t.heads, f.head)
		for j, cell := range column {
			t.rows[j] = append(t.rows[j], cell)
		}
	}
	return t
}

// median shows the median of a figure over the rounds. Zero means only that nothing was measured.
func median(show func(float64) string, figure func(record.Trial) float64) func(record.Summary) string {
	return func(s record.Summary) string {
		x := s.Over(figure).Median
		if x == 0 {
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
	{"p50", median(span, func(t record.Trial) float64 { return t.Acquire.Quantile(0.5) })},
	{"p99", median(span, func(t record.Trial) float64 { return t.Acquire.Quantile(0.99) })},
}

var exclusion = []figure{
	{"overlaps", func(s record.Summary) string { return whole(s.Sum(violations)) }},
	{"fairness (Jain)", func(s record.Summary) string { return fmt.Sprintf("%.2f", s.Over(record.Trial.Fairness).Median) }},
}

var costs = []figure{
	{"client CPU", median(span, func(t record.Trial) float64 { return t.PerCycle(float64(t.CPU)) })},
	{"allocations", median(count, func(t record.Trial) float64 { return t.PerCycle(float64(t.Allocs)) })},
	{"commands a node", median(significant, func(t record.Trial) float64 { return t.PerCycle(t.Commands()) })},
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
	{"no lock for", func(s record.Summary) string {
		return span(s.Over(func(t record.Trial) float64 { return float64(t.Fault.Without) }).Median)
	}},
	{"recovery", func(s record.Summary) string {
		recovery := s.Over(func(t record.Trial) float64 {
			if t.Fault.Recovery < 0 {
				return math.Inf(1)
			}
			return float64(t.Fault.Recovery)
		}).Median
		if math.IsInf(recovery, 1) {
			return "none"
		}
		return span(recovery)
	}},
	{"p99 before", median(span, func(t record.Trial) float64 { return t.Fault.Before.Quantile(0.99) })},
	{"p99 during", median(span, func(t record.Trial) float64 { return t.Fault.During.Quantile(0.99) })},
}

// outcomes counts how the cycles ended, if any of them did otherwise than well.
func (v view) outcomes() table {
	var figures []figure
	bad := false
	for _, outcome := range []string{record.OK, record.Failed, record.NotBegun, record.UnderWay} {
		of := func(t record.Trial) int64 { return t.Outcomes[outcome] }
		if slices.ContainsFunc(v.sums, func(s record.Summary) bool { return s.Sum(of) > 0 }) {
			bad = bad || outcome != record.OK && outcome != record.UnderWay
			figures = append(figures, figure{outcome, func(s record.Summary) string { return whole(s.Sum(of)) }})
		}
	}
	if !bad {
		return table{}
	}
	return tabulate(v.sums, figures)
}
