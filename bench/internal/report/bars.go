package report

import (
	"fmt"
	"slices"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// A measure is a column of small bars.
type measure struct {
	head string
	of   func(record.Summary) record.Spread
	show func(float64) string
	bad  bool // anything above zero is
}

// bars draws columns of bars, one row a subject; each column has a linear scale
// of its own from zero, and its figures beside the bars instead of an axis. What
// nobody measured has no column.
func (v view) bars(d *drawing, sums []record.Summary, measures []measure) *drawing {
	var known []measure
	for _, m := range measures {
		for _, s := range sums {
			if m.of(s).Max > 0 || m.bad {
				known = append(known, m)
				break
			}
		}
	}
	if len(known) == 0 {
		return nil
	}
	r := v.newRows(d, sums, 34, 8)
	each := (r.right - r.left) / float64(len(known))
	for i, m := range known {
		left, most := r.left+each*float64(i), 0.0
		for _, s := range sums {
			most = max(most, m.of(s).Max)
		}
		x := linear(most, left, left+each-96, 1, short)
		x.hi = max(most, 1e-9) // without an axis there is no tick to end at
		r.text(left, 20, "bold", shorten(m.head, each-10))
		r.line(left, r.top, left, r.bottom(), "axis")
		for j, s := range sums {
			y, value := r.middle(j), m.of(s)
			r.rect(left, y-8, x.at(value.Median)-left, 16, "bar "+v.fill(s.Subject.Name),
				fmt.Sprintf("%s: %s %s", title(s.Subject), m.head, m.show(value.Median)))
			r.whisker(x.at(value.Min), x.at(value.Max), y)
			class, text := "", m.show(value.Median)
			if value.Max == 0 && !m.bad {
				text = "-" // not known: nothing costs nothing
			}
			if m.bad && value.Max > 0 {
				class = "bad"
			}
			r.text(max(x.at(value.Median), x.at(value.Max))+8, y+4, class, text)
		}
	}
	r.height = r.bottom() + 10
	return d
}

func (v view) costBars(sums []record.Summary) *drawing {
	sums = cycling(sums)
	return v.bars(&drawing{name: "costs", title: "What a cycle costs",
		caption: "CPU and allocations of the client processes, and what a node receives, sends and runs, for each lock acquired and released: " + rounds(sums) + ". Shorter is better."},
		sums, []measure{
			{head: "client CPU", of: func(s record.Summary) record.Spread { return s.CPUPerCycle }, show: span},
			{head: "allocations", of: func(s record.Summary) record.Spread { return s.AllocsPerCycle }, show: count},
			{head: "bytes a node", of: func(s record.Summary) record.Spread { return s.BytesPerCycle }, show: size},
			{head: "commands a node", of: func(s record.Summary) record.Spread { return s.CommandsPerCycle }, show: short},
		})
}

// heldFigure makes a figure of the medians that record.HeldLocks are.
func heldFigure(of func(*record.HeldLocks) float64) func(record.Summary) record.Spread {
	return func(s record.Summary) record.Spread {
		x := of(s.Held)
		return record.Spread{Median: x, Min: x, Max: x}
	}
}

// heldBars shows what holding locks takes.
func (v view) heldBars(sums []record.Summary) *drawing {
	sums = slices.DeleteFunc(slices.Clone(sums), func(s record.Summary) bool { return s.Held == nil })
	if len(sums) == 0 {
		return nil
	}
	return v.bars(&drawing{name: "held", title: "What holding locks costs",
		caption: fmt.Sprintf("%s held under renewal: how many were lost, and what the client processes need for them. Shorter is better.",
			plural(sums[0].Held.Wanted, "lock"))},
		sums, []measure{
			{head: "lost", of: heldFigure(func(h *record.HeldLocks) float64 { return float64(h.Lost) }), show: count, bad: true},
			{head: "memory a lock", of: heldFigure(bytesPerLock), show: size},
			{head: "CPU, share of a core", of: heldFigure(coreShare), show: percent},
		})
}
