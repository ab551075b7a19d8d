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

var speed = []figure{
	{"ratio", func(s record.Summary) string { return ratio(s.Ratio) }},
	{"cycles/s", func(s record.Summary) string { return count(s.PerSecond().Median) }},
	{"min–max", func(s record.Summary) string {
		if len(s.Trials) == 1 {
			return ""
		}
		return count(s.PerSecond().Min) + "–" + count(s.PerSecond().Max)
	}},
	{"p50", func(s record.Summary) string { return known(s.Acquire(0.5).Median, span) }},
	{"p99", func(s record.Summary) string { return known(s.Acquire(0.99).Median, span) }},
}

var exclusion = []figure{
	{"overlaps", func(s record.Summary) string { return whole(s.Sum(violations)) }},
	{"fairness (Jain)", func(s record.Summary) string { return fmt.Sprintf("%.2f", s.Over(record.Trial.Fairness).Median) }},
}

var costs = []figure{
	{"client CPU", func(s record.Summary) string {
		return known(s.Over(func(t record.Trial) float64 { return t.PerCycle(float64(t.CPU)) }).Median, span)
	}},
	{"allocations", func(s record.Summary) string {
		return known(s.Over(func(t record.Trial) float64 { return t.PerCycle(float64(t.Allocs)) }).Median, count)
	}},
	{"commands a node", func(s record.Summary) string {
		return known(s.Over(func(t record.Trial) float64 { return t.PerCycle(t.Commands(s.Subject.Single)) }).Median, significant)
	}},
}

// known shows a figure that is zero only where nothing was measured.
func known(x float64, show func(float64) string) string {
	if x == 0 {
		return "-"
	}
	return show(x)
}

var holding = []figure{
	{"acquired", func(s record.Summary) string {
		acquired := func(h *record.HeldLocks) float64 { return float64(h.Acquired) }
		return whole(int64(held(s, acquired))) + " of " + whole(int64(s.Trials[0].Held.Wanted))
	}},
	{"lost", func(s record.Summary) string {
		return whole(int64(held(s, func(h *record.HeldLocks) float64 { return float64(h.Lost) })))
	}},
	{"memory a lock", func(s record.Summary) string {
		return size(held(s, func(h *record.HeldLocks) float64 { return float64(h.Bytes) / float64(h.Acquired) }))
	}},
	{"on each server", func(s record.Summary) string {
		return known(held(s, func(h *record.HeldLocks) float64 { return float64(h.OnNode) / float64(h.Acquired) }), size)
	}},
	{"CPU of a core", func(s record.Summary) string {
		return percent(held(s, func(h *record.HeldLocks) float64 { return float64(h.CPU) / float64(h.For) }))
	}},
	{"held for", func(s record.Summary) string { return span(float64(s.Trials[0].Held.For)) }},
}

func held(s record.Summary, figure func(*record.HeldLocks) float64) float64 {
	return s.Over(func(t record.Trial) float64 { return figure(t.Held) }).Median
}

var effects = []figure{
	{"no lock for", func(s record.Summary) string {
		return span(felt(s, func(f *record.Fault) float64 { return float64(f.Without) }))
	}},
	{"recovery", func(s record.Summary) string {
		recovery := felt(s, func(f *record.Fault) float64 {
			if f.Recovery < 0 {
				return math.Inf(1)
			}
			return float64(f.Recovery)
		})
		if math.IsInf(recovery, 1) {
			return "none"
		}
		return span(recovery)
	}},
	{"p99 before", func(s record.Summary) string {
		return known(felt(s, func(f *record.Fault) float64 { return f.Before.Quantile(0.99) }), span)
	}},
	{"p99 during", func(s record.Summary) string {
		return known(felt(s, func(f *record.Fault) float64 { return f.During.Quantile(0.99) }), span)
	}},
}

func felt(s record.Summary, figure func(*record.Fault) float64) float64 {
	return s.Over(func(t record.Trial) float64 {
		if t.Fault == nil {
			return math.NaN()
		}
		return figure(t.Fault)
	}).Median
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
