package report

import (
	"fmt"
	"math"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// distribution draws all quantiles of acquiring, the rare ones spread out: x is
// how many acquisitions there are for one that takes longer. A line ends where
// there is but one.
func (v view) distribution(sums []record.Summary) *drawing {
	sums = acquiring(sums)
	if len(sums) == 0 {
		return nil
	}
	d := &drawing{name: "distribution", title: "How the times to acquire are spread",
		caption: "For each share of all acquisitions, the time within which they had the lock; both axes are logarithmic, the right end shows the rare slow ones. " +
			"All rounds together. Lower is better."}
	lo, hi, most := sums[0].Acquired.At(0), time.Duration(0), int64(0)
	for _, s := range sums {
		lo, hi, most = min(lo, s.Acquired.At(0)), max(hi, s.Acquired.At(1)), max(most, s.Acquired.Count())
	}
	const left, right, top, bottom = 70.0, width - 250.0, 12.0, 340.0
	x := scale{lo: 1, hi: min(max(float64(most), 10), 1e6), from: left, to: right, log: true}
	for _, one := range []float64{1, 2, 10, 100, 1e3, 1e4, 1e5, 1e6} {
		if one <= x.hi {
			x.ticks = append(x.ticks, tick{one, short6(100-100/one) + " %"})
		}
	}
	y := logarithmic(max(float64(lo), 100), float64(hi), bottom, top, spanShort)
	d.grid(x, top, bottom)
	d.ladder(y, left, right)
	d.line(left, bottom, right, bottom, "axis")
	for _, t := range x.ticks {
		d.text(x.at(t.value), bottom+17, "middle muted small", t.label)
	}
	d.text((left+right)/2, bottom+36, "middle muted", "share of the acquisitions")
	d.text(width-6, bottom+36, "end muted small", "time to acquire (logarithmic)")
	d.height = bottom + 46

	const steps = 240
	var names []end
	for _, s := range sums {
		var t trace
		last := end{class: v.stroke(s.Subject.Name), name: title(s.Subject)}
		for i := range steps + 1 {
			one := math.Pow(x.hi, float64(i)/steps)
			if n := float64(s.Acquired.Count()); one > n {
				one = n
			}
			took := float64(s.Acquired.At(1 - 1/one))
			last.x, last.y = x.at(one), y.at(took)
			t.to(last.x, last.y)
			if one == float64(s.Acquired.Count()) {
				break
			}
		}
		d.path(t.d.String(), "line "+v.stroke(s.Subject.Name), fmt.Sprintf("%s: %s; p50 %s, p99 %s, maximum %s", title(s.Subject),
			plural(s.Acquired.Count(), "acquisition"), duration(s.Acquired.At(0.5)), duration(s.Acquired.At(0.99)), duration(s.Acquired.At(1))))
		names = append(names, last)
	}
	d.ends(names, right+14, top+4, bottom-4)
	return d
}

// short6 has digits for 99.9999.
func short6(x float64) string {
	s := fmt.Sprintf("%.4f", x)
	for s[len(s)-1] == '0' {
		s = s[:len(s)-1]
	}
	if s[len(s)-1] == '.' {
		s = s[:len(s)-1]
	}
	return s
}
