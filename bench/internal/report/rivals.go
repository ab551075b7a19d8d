package report

import (
	"fmt"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// throughput compares the cycles a second with those of the first subject.
func (v view) throughput(sums []record.Summary) *drawing {
	sums = cycling(sums)
	if len(sums) == 0 {
		return nil
	}
	first := 0.0
	if len(sums) > 1 && sums[0].Subject.Name == v.run.Subjects[0].Name {
		first = sums[0].PerSecond.Median
	}
	d := &drawing{name: "throughput", title: "Cycles a second"}
	d.caption = fmt.Sprintf("Locks acquired and released a second as a multiple of %s (%s/s): %s. Longer is better.",
		v.first(), count(first), rounds(sums))
	axisName, show := "cycles/s, "+v.first()+" = 1", short
	if first == 0 { // nothing to compare with
		d.caption = fmt.Sprintf("Locks acquired and released a second: %s. Longer is better.", rounds(sums))
		axisName, show, first = "cycles/s", countShort, 1
	}
	if rate := sums[0].Load.Rate; rate > 0 {
		d.caption += fmt.Sprintf(" %s/s were begun by schedule: nobody can do more.", whole(int64(rate)))
	}
	most := 0.0
	for _, s := range sums {
		most = max(most, s.PerSecond.Max/first)
	}
	r := v.newRows(d, sums, 10, 250)
	x := linear(most, r.left, r.right, 8, show)
	r.axis(x, axisName)
	for i, s := range sums {
		y, rate := r.middle(i), s.PerSecond
		r.rect(r.left, y-9, x.at(rate.Median/first)-r.left, 18, "bar "+v.fill(s.Subject.Name),
			fmt.Sprintf("%s: %s cycles/s, rounds %s", title(s.Subject), count(rate.Median), between(rate, count)))
		r.whisker(x.at(rate.Min/first), x.at(rate.Max/first), y)
		if first != 1 || axisName != "cycles/s" {
			r.text(r.right+62, y+4, "end bold", ratio(s.Ratio))
		}
		r.text(r.right+74, y+4, "", count(rate.Median)+"/s")
		if s.Rounds > 1 {
			r.text(width-8, y+4, "end muted small", between(rate, count))
		}
	}
	if axisName != "cycles/s" {
		r.line(x.at(1), r.top, x.at(1), r.bottom(), "one")
	}
	return d
}

// latency shows the quantiles of acquiring, from the median to the maximum.
func (v view) latency(sums []record.Summary) *drawing {
	some := acquiring(sums)
	if len(some) == 0 {
		return nil
	}
	sums = cycling(sums)
	d := &drawing{name: "latency", title: "Time to acquire"}
	if waiting(sums) {
		d.title = "Time waited for the lock"
	}
	d.caption = fmt.Sprintf("From asking for a lock to having it, on a logarithmic axis: %s; the maximum is that of all rounds. Further left is better.", rounds(sums))
	lo, hi := some[0].Acquire.P50.Min, 0.0
	for _, s := range some {
		lo, hi = min(lo, s.Acquire.P50.Min), max(hi, s.Acquire.Max.Max)
	}
	r := v.newRows(d, sums, 34, 170)
	x := logarithmic(lo, hi, r.left, r.right, spanShort)
	r.axis(x, "time to acquire (logarithmic)")
	r.key()
	r.text(width-90, 20, "end muted small", "p50")
	r.text(width-8, 20, "end muted small", "p99")
	for i, s := range sums {
		y := r.middle(i)
		if s.Acquired.Count() == 0 {
			r.text(r.left+8, y+4, "muted", "acquired nothing")
			continue
		}
		v.quantiles(d, s, x, y)
		r.text(width-90, y+4, "end bold", span(s.Acquire.P50.Median))
		r.text(width-8, y+4, "end", span(s.Acquire.P99.Median))
	}
	return d
}

// waiting says that callers stood in each other's way.
func waiting(sums []record.Summary) bool {
	return len(sums) > 0 && sums[0].Load.Names != "own" && sums[0].Load.Names != ""
}

// quantiles draws one subject's: further out, smaller marks.
func (v view) quantiles(d *drawing, s record.Summary, x scale, y float64) {
	name, q := s.Subject.Name, s.Acquire
	at := func(sp record.Spread) float64 { return x.at(sp.Median) }
	tip := func(quantile string, sp record.Spread) string {
		return fmt.Sprintf("%s: %s %s, rounds %s", title(s.Subject), quantile, span(sp.Median), between(sp, span))
	}
	for _, sp := range []record.Spread{q.P50, q.P99} {
		d.rect(x.at(sp.Min), y-9, x.at(sp.Max)-x.at(sp.Min), 18, "band "+v.fill(name), "")
	}
	d.line(at(q.P50), y, at(worst(q)), y, "range "+v.stroke(name))
	d.line(at(q.P50), y, at(q.P99), y, "thick "+v.stroke(name))
	d.circle(at(worst(q)), y, 3.5, "hollow "+fmt.Sprintf("l%d", v.colour(name)), tip("maximum", worst(q)))
	d.circle(at(q.P999), y, 3, v.fill(name), tip("p99.9", q.P999))
	d.circle(at(q.P90), y, 3, v.fill(name), tip("p90", q.P90))
	d.rect(at(q.P99)-2.5, y-8, 5, 16, "mark "+v.fill(name), tip("p99", q.P99))
	d.circle(at(q.P50), y, 6.5, "mark "+v.fill(name), tip("p50", q.P50))
}

// key explains the marks above the rows, in the order in which they stand in them.
func (r rows) key() {
	x, y := r.left, 16.0
	mark := func(gap float64, name string, draw func(x float64)) {
		draw(x + 8)
		r.text(x+20, y+4, "muted small", name)
		x += gap
	}
	mark(58, "p50", func(x float64) { r.circle(x, y, 6, "f6", "") })
	mark(58, "p90", func(x float64) { r.circle(x, y, 3, "f6", "") })
	mark(58, "p99", func(x float64) { r.rect(x-2.5, y-7, 5, 14, "f6", "") })
	mark(66, "p99.9", func(x float64) { r.circle(x, y, 3, "f6", "") })
	mark(100, "maximum", func(x float64) { r.circle(x, y, 3.5, "hollow l6", "") })
	if r.sums[0].Rounds > 1 {
		mark(0, "range of the rounds", func(x float64) { r.rect(x-7, y-7, 14, 14, "band f6", "") })
	}
}
