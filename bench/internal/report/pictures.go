package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// A Picture is one drawing as a file of its own.
type Picture struct {
	Name string // of the file
	SVG  []byte
}

// SVGs draws the pictures of a run, but for those of which it has no figures.
func SVGs(run record.Run) []Picture {
	v := look(run)
	var pictures []Picture
	add := func(d *drawing) {
		if d != nil {
			pictures = append(pictures, Picture{run.Scenario + "-" + d.name + ".svg", d.svg()})
		}
	}
	if v.sweep() {
		add(v.scaling())
		return pictures
	}
	add(v.throughFaults())
	add(v.throughput())
	add(v.latency())
	return pictures
}

const rowHeight = 50.0

// rows is the layout with one row a subject: a line with its title and figures, and a plot below it
// that is as wide as the picture.
type rows struct {
	*drawing
	sums        []record.Summary
	top         float64
	left, right float64 // of the plot
}

// newRows makes rows below top, whose figures take the last pixels of their lines.
func newRows(d *drawing, sums []record.Summary, top, figures float64) rows {
	r := rows{drawing: d, sums: sums, top: top, left: margin + 22, right: width - margin - 22}
	for i, s := range sums {
		r.label(xy{margin, r.base(i)}, width-2*margin-figures, s.Subject.Title)
	}
	return r
}

// base is the base line of a row's text, middle that of its plot.
func (r rows) base(i int) float64   { return r.top + rowHeight*float64(i) + 18 }
func (r rows) middle(i int) float64 { return r.base(i) + 17 }

// axis draws the scale below the rows and its grid behind their plots; it is drawn before the data.
func (r rows) axis(s scale, name string) {
	for i := range r.sums {
		r.grid(s, extent{r.middle(i) - 10, r.middle(i) + 12})
	}
	bottom := r.top + rowHeight*float64(len(r.sums)) + 4
	r.line(xy{r.left, bottom}, xy{r.right, bottom}, "axis")
	for _, t := range s.ticks {
		r.text(xy{s.at(t.value), bottom + 18}, "middle muted small", t.label)
	}
	r.text(xy{(r.left + r.right) / 2, bottom + 40}, "middle muted", name)
	r.height = bottom + 50
}

// throughput compares the cycles a second with those of the first subject.
func (v view) throughput() *drawing {
	sums := v.cycling()
	if len(sums) < 2 || sums[0].Ratio == 0 {
		return nil
	}
	first, name := sums[0].PerSecond().Median, sums[0].Subject.Title
	d := &drawing{name: "throughput", title: "Cycles a second"}
	d.caption = fmt.Sprintf("Locks acquired and released a second as a multiple of %s (%s/s): %s. Longer is better.",
		name, count(first), rounds(sums))
	if rate := sums[0].Trials[0].Load.Rate; rate > 0 {
		d.caption += fmt.Sprintf(" %s/s were begun by schedule, which no subject can exceed.", whole(int64(rate)))
	}
	most := 0.0
	for _, s := range sums {
		most = max(most, s.PerSecond().Max/first)
	}
	r := newRows(d, sums, 0, 150)
	x := linear(most, extent{r.left, r.right}, short)
	r.axis(x, "cycles/s, "+name+" = 1")
	for i, s := range sums {
		y, rate := r.middle(i), s.PerSecond()
		r.rect(box{r.left, y - 9, x.at(rate.Median/first) - r.left, 18}, "bar "+v.fill(s.Subject.Name))
		r.whisker(x.at(rate.Min/first), x.at(rate.Max/first), y)
		r.line(xy{x.at(1), y - 12}, xy{x.at(1), y + 12}, "one")
		r.text(xy{width - margin - 88, r.base(i)}, "end bold", ratio(s.Ratio))
		r.text(xy{width - margin, r.base(i)}, "end", count(rate.Median)+"/s")
	}
	return d
}

// whisker draws the range of the rounds.
func (d *drawing) whisker(from, to, y float64) {
	if to-from >= 1 {
		d.line(xy{from, y}, xy{to, y}, "whisker")
		d.line(xy{from, y - 4}, xy{from, y + 4}, "whisker")
		d.line(xy{to, y - 4}, xy{to, y + 4}, "whisker")
	}
}

// latency shows the quantiles of acquiring, from the median to the maximum.
func (v view) latency() *drawing {
	sums := v.cycling()
	var values extent
	for _, s := range sums {
		values.include(s.Acquire(0.5).Min)
		values.include(s.Acquire(1).Max)
	}
	if values.to == 0 {
		return nil
	}
	d := &drawing{name: "latency", title: "Time to acquire"}
	if sums[0].Trials[0].Load.Names == "single" {
		d.title = "Time waited for the lock"
	}
	d.caption = fmt.Sprintf("From asking for a lock to having it, on a logarithmic axis: %s; the maximum is that of all rounds. Further left is better.", rounds(sums))
	const p50, p99 = width - margin - 88, width - margin // where their columns end
	r := newRows(d, sums, 46, 176)
	x := logarithmic(values, extent{r.left, r.right}, lying, spanShort)
	r.axis(x, "time to acquire (logarithmic)")
	r.key()
	r.text(xy{p50, 46}, "end muted small", "p50")
	r.text(xy{p99, 46}, "end muted small", "p99")
	for i, s := range sums {
		y := r.middle(i)
		if s.Acquire(1).Max == 0 {
			r.text(xy{r.left, y + 5}, "muted", "acquired nothing")
			continue
		}
		v.quantiles(d, s, x, y)
		r.text(xy{p50, r.base(i)}, "end bold", span(s.Acquire(0.5).Median))
		r.text(xy{p99, r.base(i)}, "end", span(s.Acquire(0.99).Median))
	}
	return d
}

// quantiles draws one subject's: each has a mark of its own, smaller ones further out.
func (v view) quantiles(d *drawing, s record.Summary, x scale, y float64) {
	fill, stroke := v.fill(s.Subject.Name), v.stroke(s.Subject.Name)
	for _, q := range []float64{0.5, 0.99} {
		over := s.Acquire(q)
		d.rect(box{x.at(over.Min), y - 9, x.at(over.Max) - x.at(over.Min), 18}, "band "+fill)
	}
	d.line(xy{x.at(marks[0].of(s)), y}, xy{x.at(marks[3].of(s)), y}, "range "+stroke)
	d.line(xy{x.at(marks[0].of(s)), y}, xy{x.at(marks[1].of(s)), y}, "thick "+stroke)
	for _, m := range slices.Backward(marks[:]) { // p50 lies on top
		m.draw(d, xy{x.at(m.of(s)), y}, fill)
	}
}

// A mark is the sign of a quantile, in the pictures and in their key.
type mark struct {
	name string
	of   func(record.Summary) float64
	draw func(d *drawing, at xy, fill string)
}

// marks are in the order in which they stand in a row.
var marks = [...]mark{
	{"p50", func(s record.Summary) float64 { return s.Acquire(0.5).Median }, func(d *drawing, at xy, fill string) {
		d.circle(at, 6.5, "mark "+fill)
	}},
	{"p99", func(s record.Summary) float64 { return s.Acquire(0.99).Median }, func(d *drawing, at xy, fill string) {
		d.rect(box{at.x - 2.5, at.y - 8, 5, 16}, "mark "+fill)
	}},
	{"p99.9", func(s record.Summary) float64 { return s.Acquire(0.999).Median }, func(d *drawing, at xy, fill string) {
		var t trace
		for _, p := range []xy{{0, -5}, {5, 0}, {0, 5}, {-5, 0}, {0, -5}} {
			t.to(xy{at.x + p.x, at.y + p.y})
		}
		d.trace(&t, "mark "+fill)
	}},
	// That of all rounds: the median of maxima would hide a stall.
	{"maximum", func(s record.Summary) float64 { return s.Acquire(1).Max }, func(d *drawing, at xy, fill string) {
		d.circle(at, 4, "hollow "+strings.Replace(fill, "f", "l", 1))
	}},
}

// key explains the marks above the rows, in the colour of no subject.
func (r rows) key() {
	const fill = "f6"
	x, y := margin, 16.0
	for _, m := range marks {
		m.draw(r.drawing, xy{x + 7, y}, fill)
		r.text(xy{x + 18, y + 5}, "muted small", m.name)
		x += 30 + textWidth(m.name)
	}
	if len(r.sums[0].Trials) > 1 {
		r.rect(box{x, y - 7, 14, 14}, "band "+fill)
		r.text(xy{x + 18, y + 5}, "muted small", "range of rounds")
	}
}
