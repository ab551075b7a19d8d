package report

import (
	"fmt"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// fairness shows what each caller got of what all wanted.
func (v view) fairness(point string) *drawing {
	var sums []record.Summary
	for _, s := range cycling(v.at(point)) {
		if s.Fairness.Max > 0 {
			sums = append(sums, s)
		}
	}
	if len(sums) == 0 {
		return nil
	}
	d := &drawing{name: v.named("fairness", point), title: v.titled("How the locks were shared among the callers", point),
		caption: "Each stroke is one caller in one round: its cycles as a multiple of an equal share (1). Jain's index is 1 where all have the same. " +
			"Overlaps are holdings of the lock by two callers at once: there must be none."}
	shares := make([][]float64, len(sums))
	most := 1.0
	for i, s := range sums {
		shares[i] = v.shares(s)
		for _, x := range shares[i] {
			most = max(most, x)
		}
	}
	r := v.newRows(d, sums, 34, 190)
	x := linear(most, r.left+4, r.right, 8, short)
	r.axis(x, "cycles of a caller, an equal share = 1")
	r.line(x.at(1), r.top, x.at(1), r.bottom(), "one")
	r.text(width-110, 20, "end muted small", "Jain's index")
	r.text(width-8, 20, "end muted small", "overlaps")
	for i, s := range sums {
		var t trace
		y := r.middle(i)
		for _, share := range shares[i] {
			t.lift()
			t.to(x.at(share), y-10)
			t.to(x.at(share), y+10)
		}
		d.path(t.d.String(), fmt.Sprintf("stroke l%d", v.colour(s.Subject.Name)), title(s.Subject))
		r.text(width-110, y+4, "end bold", fmt.Sprintf("%.2f", s.Fairness.Median))
		class := "end"
		if s.Violations > 0 {
			class = "end bad"
		}
		r.text(width-8, y+4, class, whole(s.Violations))
	}
	return d
}

// shares are the cycles of all callers in all rounds, by the mean of their round.
func (v view) shares(s record.Summary) []float64 {
	var all []float64
	for _, t := range v.run.Trials {
		if t.Subject != s.Subject.Name || t.Load.Point != s.Point {
			continue
		}
		var sum int64
		for _, n := range t.Callers {
			sum += n
		}
		for _, n := range t.Callers {
			if sum > 0 {
				all = append(all, float64(n)*float64(len(t.Callers))/float64(sum))
			}
		}
	}
	return all
}
