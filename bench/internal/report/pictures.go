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
		add(v.faultsInDetail(g))
	}
	if v.sweep() {
		add(v.scaling())
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
		r.label(xy{margin, r.base(i)}, width-2*margin-figures, "", title(s.Subject))
	}
	return r
}

// base is the base line of a row's text, middle that of its plot.
func (r rows) base(i int) float64   { return r.top + rowHeight*float64(i) + 18 }
func (r rows) middle(i int) float64 { return r.base(i) + 17 }

func (r rows) bottom() float64 { return r.top + rowHeight*float64(len(r.sums)) + 4 }

// axis draws the scale below the rows and its grid behind their plots; it is drawn before the data.
func (r rows) axis(s scale, name string) {
	for i := range r.sums {
		r.grid(s, r.middle(i)-10, r.middle(i)+12)
	}
	r.line(xy{r.left, r.bottom()}, xy{r.right, r.bottom()}, "axis")
	for _, t := range s.ticks {
		if t.label != "" {
			r.text(s.at(t.value), r.bottom()+18, "middle muted small", t.label)
		}
	}
	r.text((r.left+r.right)/2, r.bottom()+40, "middle muted", name)
	r.height = r.bottom() + 50
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
	compared := first > 0
	if !compared {
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
	r := newRows(d, sums, 0, 150)
	x := linear(most, extent{r.left, r.right}, 5, show)
	r.axis(x, axisName)
	for i, s := range sums {
		y, rate := r.middle(i), s.PerSecond
		r.rect(box{r.left, y - 9, x.at(rate.Median/first) - r.left, 18},
			"bar "+v.fill(s.Subject.Name), fmt.Sprintf("%s: %s cycles/s, rounds %s",
				title(s.Subject), count(rate.Median), between(rate, count)))
		r.whisker(x.at(rate.Min/first), x.at(rate.Max/first), y)
		if compared {
			r.line(xy{x.at(1), y - 12}, xy{x.at(1), y + 12}, "one")
			r.text(width-margin-88, r.base(i), "end bold", ratio(s.Ratio))
		}
		r.text(width-margin, r.base(i), "end", count(rate.Median)+"/s")
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
	const p50, p99 = width - margin - 88, width - margin // where their columns end
	r := newRows(d, sums, 46, 176)
	x := logarithmic(extent{lo, hi}, extent{r.left, r.right}, lying, spanShort)
	r.axis(x, "time to acquire (logarithmic)")
	r.key()
	r.text(p50, 46, "end muted small", "p50")
	r.text(p99, 46, "end muted small", "p99")
	for i, s := range sums {
		y := r.middle(i)
		if s.Acquired.Count() == 0 {
			r.text(r.left, y+5, "muted", "acquired nothing")
			continue
		}
		v.quantiles(d, s, x, y)
		r.text(p50, r.base(i), "end bold", span(s.Acquire.P50.Median))
		r.text(p99, r.base(i), "end", span(s.Acquire.P99.Median))
	}
	return d
}

// waiting says that callers stood in each other's way.
func waiting(sums []record.Summary) bool {
	return len(sums) > 0 && sums[0].Load.Names != "own" && sums[0].Load.Names != ""
}

// quantiles draws one subject's: each has a mark of its own, smaller ones further out.
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
	for _, m := range slices.Backward(marks[:]) { // p50 lies on top
		m.draw(d, xy{at(m.of(q)), y}, v.colour(name), tip(m.name, m.of(q)))
	}
}

// A mark is the sign of a quantile, in the pictures and in their key.
type mark struct {
	name string
	of   func(record.Latency) record.Spread
	draw func(d *drawing, at xy, colour int, tooltip string)
}

// marks are in the order in which they stand in a row.
var marks = [...]mark{
	{"p50", func(l record.Latency) record.Spread { return l.P50 }, func(d *drawing, at xy, colour int, tooltip string) {
		d.circle(at, 6.5, fmt.Sprintf("mark f%d", colour), tooltip)
	}},
	{"p99", func(l record.Latency) record.Spread { return l.P99 }, func(d *drawing, at xy, colour int, tooltip string) {
		d.rect(box{at.x - 2.5, at.y - 8, 5, 16}, fmt.Sprintf("mark f%d", colour), tooltip)
	}},
	{"p99.9", func(l record.Latency) record.Spread { return l.P999 }, func(d *drawing, at xy, colour int, tooltip string) {
		d.path(fmt.Sprintf("M%s %sl5 5l-5 5l-5 -5Z", px(at.x), px(at.y-5)), fmt.Sprintf("mark f%d", colour), tooltip)
	}},
	{"maximum", worst, func(d *drawing, at xy, colour int, tooltip string) {
		d.circle(at, 4, fmt.Sprintf("hollow l%d", colour), tooltip)
	}},
}

// keyColour is that of marks that are of no subject.
const keyColour = 6

// key explains the marks above the rows.
func (r rows) key() {
	x, y := margin, 16.0
	for _, m := range marks {
		m.draw(r.drawing, xy{x + 7, y}, keyColour, "")
		r.text(x+18, y+5, "muted small", m.name)
		x += 30 + textWidth(m.name)
	}
	if r.sums[0].Rounds > 1 {
		r.rect(box{x, y - 7, 14, 14}, fmt.Sprintf("band f%d", keyColour), "")
		r.text(x+18, y+5, "muted small", "range of rounds")
	}
}
