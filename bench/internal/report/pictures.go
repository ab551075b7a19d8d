package report

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// A Picture is one drawing as a file of its own.
type Picture struct {
	Name    string // of the file
	Title   string
	Caption string // what is seen, in a sentence or two
	SVG     []byte
}

// css colours all pictures, for light and dark.
//
//go:embed picture.css
var css string

// SVGs draws the pictures of a run, but for those of which it has no figures.
func SVGs(run record.Run) []Picture {
	var pictures []Picture
	for _, d := range look(run).drawings() {
		pictures = append(pictures, Picture{
			Name: slug(run.Scenario+"-"+d.name) + ".svg", Title: d.title, Caption: d.caption,
			SVG: d.file(d.title, d.caption),
		})
	}
	return pictures
}

// A drawing is a picture that is not yet bound to a file or a page.
type drawing struct {
	name, title, caption string
	canvas
}

func (v view) drawings() []*drawing {
	var all []*drawing
	add := func(d *drawing) {
		if d != nil {
			all = append(all, d)
		}
	}
	for _, g := range v.withFaults() {
		add(v.throughFaults(g))
	}
	if v.sweep() {
		for _, c := range curves {
			add(v.curve(c))
		}
	} else {
		add(v.throughput(v.sums))
		add(v.latency(v.sums))
	}
	return all
}

// named and titled tell pictures of the points of a sweep apart.
func (v view) named(name, point string) string {
	if !v.sweep() {
		return name
	}
	return name + "-" + point
}

func (v view) titled(title, point string) string {
	if !v.sweep() || point == "" {
		return title
	}
	return title + ", " + point
}

// slug makes a name of a file.
func slug(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return '-'
	}, s)
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '-' }), "-")
}

// cycling are the summaries of subjects that ran cycles rather than held locks.
func cycling(sums []record.Summary) []record.Summary {
	return slices.DeleteFunc(slices.Clone(sums), func(s record.Summary) bool { return s.Held != nil })
}

// acquiring are those that acquired anything at all.
func acquiring(sums []record.Summary) []record.Summary {
	return slices.DeleteFunc(cycling(sums), func(s record.Summary) bool { return s.Acquired.Count() == 0 })
}

// rounds says of how many rounds figures are medians.
func rounds(sums []record.Summary) string {
	most := 0
	for _, s := range sums {
		most = max(most, s.Rounds)
	}
	if most < 2 {
		return "one round only"
	}
	return "medians of " + plural(most, "round") + ", with the range of the rounds"
}

const rowHeight = 36

// rows is the layout with one row a subject: titles at the left, a plot, and room for figures at
// the right.
type rows struct {
	*drawing
	view        view
	sums        []record.Summary
	top         float64
	left, right float64 // of the plot
}

// newRows makes room for rows below top and leaves margin pixels at the right.
func (v view) newRows(d *drawing, sums []record.Summary, top, margin float64) rows {
	r := rows{drawing: d, view: v, sums: sums, top: top, right: width - margin}
	for i, s := range sums {
		w := textWidth(title(s.Subject))
		r.left = max(r.left, min(w, 210)+24)
		r.label(xy{8, r.middle(i)}, room{212, 2}, "", title(s.Subject))
	}
	r.left = max(r.left, 110)
	return r
}

func (r rows) middle(i int) float64 { return r.top + rowHeight*(float64(i)+0.5) }

func (r rows) bottom() float64 { return r.top + rowHeight*float64(len(r.sums)) }

// axis draws the scale below the rows and its grid behind them; it is drawn before the data.
func (r rows) axis(s scale, name string) {
	r.grid(s, r.top, r.bottom())
	r.line(xy{r.left, r.bottom()}, xy{r.right, r.bottom()}, "axis")
	for _, t := range s.ticks {
		if t.label != "" {
			r.text(s.at(t.value), r.bottom()+16, "middle muted small", t.label)
		}
	}
	r.text((r.left+r.right)/2, r.bottom()+34, "middle muted", name)
	r.height = r.bottom() + 44
}

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
	x := linear(most, extent{r.left, r.right}, 8, show)
	r.axis(x, axisName)
	for i, s := range sums {
		y, rate := r.middle(i), s.PerSecond
		r.rect(box{r.left, y - 9, x.at(rate.Median/first) - r.left, 18},
			"bar "+v.fill(s.Subject.Name), fmt.Sprintf("%s: %s cycles/s, rounds %s",
				title(s.Subject), count(rate.Median), between(rate, count)))
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
		r.line(xy{x.at(1), r.top}, xy{x.at(1), r.bottom()}, "one")
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
	x := logarithmic(extent{lo, hi}, extent{r.left, r.right}, spanShort)
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
		return fmt.Sprintf("%s: %s %s, rounds %s", title(s.Subject), quantile, span(sp.Median),
			between(sp, span))
	}
	for _, sp := range []record.Spread{q.P50, q.P99} {
		d.rect(box{x.at(sp.Min), y - 9, x.at(sp.Max) - x.at(sp.Min), 18}, "band "+v.fill(name), "")
	}
	d.line(xy{at(q.P50), y}, xy{at(worst(q)), y}, "range "+v.stroke(name))
	d.line(xy{at(q.P50), y}, xy{at(q.P99), y}, "thick "+v.stroke(name))
	d.circle(xy{at(worst(q)), y}, 3.5, "hollow "+fmt.Sprintf("l%d", v.colour(name)),
		tip("maximum", worst(q)))
	d.circle(xy{at(q.P999), y}, 3, v.fill(name), tip("p99.9", q.P999))
	d.circle(xy{at(q.P90), y}, 3, v.fill(name), tip("p90", q.P90))
	d.rect(box{at(q.P99) - 2.5, y - 8, 5, 16}, "mark "+v.fill(name), tip("p99", q.P99))
	d.circle(xy{at(q.P50), y}, 6.5, "mark "+v.fill(name), tip("p50", q.P50))
}

// key explains the marks above the rows, in the order in which they stand in them.
func (r rows) key() {
	x, y := r.left, 16.0
	mark := func(gap float64, name string, draw func(x float64)) {
		draw(x + 8)
		r.text(x+20, y+4, "muted small", name)
		x += gap
	}
	mark(58, "p50", func(x float64) { r.circle(xy{x, y}, 6, "f6", "") })
	mark(58, "p90", func(x float64) { r.circle(xy{x, y}, 3, "f6", "") })
	mark(58, "p99", func(x float64) { r.rect(box{x - 2.5, y - 7, 5, 14}, "f6", "") })
	mark(66, "p99.9", func(x float64) { r.circle(xy{x, y}, 3, "f6", "") })
	mark(100, "maximum", func(x float64) { r.circle(xy{x, y}, 3.5, "hollow l6", "") })
	if r.sums[0].Rounds > 1 {
		mark(0, "range of the rounds", func(x float64) { r.rect(box{x - 7, y - 7, 14, 14}, "band f6", "") })
	}
}
