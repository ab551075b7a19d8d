package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// A metric is a figure that is shown over the points of a sweep.
type metric struct {
	head  string
	of    func(record.Summary) record.Spread
	show  func(float64) string // in full
	label func(float64) string // on the axis
}

var metrics = [...]metric{
	{"cycles/s", func(s record.Summary) record.Spread { return s.PerSecond }, count, countShort},
	{"time to acquire, p99", func(s record.Summary) record.Spread { return s.Acquire.P99 }, span, spanShort},
}

// A dimension is the points of one sweep: what was varied, and its values in rising order.
type dimension struct {
	name   string
	values []float64
	points map[float64]string
}

// dimensionNames are for people.
var dimensionNames = map[string]string{"length": "bytes of a name", "processes": "client processes"}

// dimensions are in the order of the run. A dimension needs two values; a point that is no number
// of anything is in the tables alone.
func (v view) dimensions() []dimension {
	var all []dimension
	for _, p := range v.points {
		name, text, _ := strings.Cut(p, "=")
		value, err := strconv.ParseFloat(text, 64)
		if err != nil || !(value > 0) || math.IsInf(value, 1) {
			continue
		}
		if people := dimensionNames[name]; people != "" {
			name = people
		}
		i := slices.IndexFunc(all, func(d dimension) bool { return d.name == name })
		if i < 0 {
			all, i = append(all, dimension{name: name, points: map[float64]string{}}), len(all)
		}
		all[i].values = append(all[i].values, value)
		all[i].points[value] = p
	}
	for _, d := range all {
		slices.Sort(d.values)
	}
	return slices.DeleteFunc(all, func(d dimension) bool { return len(d.values) < 2 })
}

// Measures of the panels of a sweep, in pixels.
const (
	cellLeft   = margin + 58 // of the first plot
	cellWidth  = 176.0
	cellHeight = 104.0
	cellRight  = 262.0 // from one plot to that at its right
	cellBelow  = 160.0 // and to that below it
)

// scaling shows all metrics over all dimensions: a row a dimension, a column a metric. A column has
// one scale, so that a step in one dimension can be compared with a step in another.
func (v view) scaling() *drawing {
	dimensions, sums := v.dimensions(), cycling(v.sums)
	if len(dimensions) == 0 || len(acquiring(sums)) == 0 {
		return nil
	}
	d := &drawing{name: "scale", title: "More " + dimensions[0].name}
	if len(dimensions) > 1 {
		d.title = "More of everything"
	}
	d.caption = fmt.Sprintf("Cycles a second, and p99 of the time to acquire: %s. Vertical axes are logarithmic.", rounds(sums))
	top := 6.0
	for _, s := range v.subjects {
		if slices.ContainsFunc(sums, func(o record.Summary) bool { return o.Subject.Name == s.Name }) {
			top = v.keyLine(d, s.Name, "", top)
		}
	}
	top += 40
	none := false
	for i, m := range metrics {
		left := cellLeft + cellRight*float64(i)
		d.text(left-58, top-20, "muted small", m.head)
		values := extentOf(sums, m)
		for j, dim := range dimensions {
			b := box{left, top + cellBelow*float64(j), cellWidth, cellHeight}
			c := graph{d, dim, m, sums, logarithmic(values, extent{b.y + b.h, b.y}, standing, m.label)}
			none = v.panel(c, b) || none
		}
	}
	if none {
		d.caption += " A cross: nothing was acquired."
	}
	d.height = top + cellBelow*float64(len(dimensions)) - 6
	return d
}

// extentOf is from the least to the most that a metric ever is; a round without any has no place on
// a logarithmic axis.
func extentOf(sums []record.Summary, m metric) (e extent) {
	for _, s := range sums {
		x := m.of(s)
		for _, value := range []float64{x.Min, x.Median} {
			if value > 0 && (e.from == 0 || value < e.from) {
				e.from = value
			}
		}
		e.to = max(e.to, x.Max)
	}
	return e
}

// A graph is one panel of a sweep.
type graph struct {
	*drawing
	dimension
	metric
	sums []record.Summary
	y    scale
}

// panel draws a graph into its box, and reports whether a subject acquired nothing at some point.
func (v view) panel(c graph, b box) (none bool) {
	lo, hi := c.values[0], c.values[len(c.values)-1]
	x := scale{lo: lo, hi: hi, from: b.x + 8, to: b.x + b.w - 8, log: hi > 10*lo}
	right, bottom := b.x+b.w, b.y+b.h
	c.ladder(c.y, b.x, right)
	c.line(xy{b.x, bottom}, xy{right, bottom}, "axis")
	c.names(x, bottom)
	name := c.dimension.name
	if x.log {
		name += " (log.)"
	}
	c.text((b.x+right)/2, bottom+36, "middle muted small", name)
	for _, subject := range slices.Backward(v.subjects) { // the first lies on top
		var t trace
		var over []func()
		for _, value := range c.values {
			i := slices.IndexFunc(c.sums, func(s record.Summary) bool {
				return s.Subject.Name == subject.Name && s.Point == c.points[value]
			})
			if i < 0 {
				t.lift()
				continue
			}
			figure, at := c.of(c.sums[i]), x.at(value)
			if figure.Median <= 0 {
				c.path(fmt.Sprintf("M%s %sl8 8m0 -8l-8 8", px(at-4), px(bottom-14)), "line "+v.stroke(subject.Name), "nothing was acquired")
				none = true
				t.lift()
				continue
			}
			y := c.y.at(figure.Median)
			t.to(at, y)
			over = append(over, func() {
				c.line(xy{at, c.y.at(max(figure.Min, c.y.lo))}, xy{at, c.y.at(figure.Max)}, "thin "+v.stroke(subject.Name))
				c.circle(xy{at, y}, 4, "mark "+v.fill(subject.Name), fmt.Sprintf("%s, %s: %s, rounds %s",
					title(subject), c.points[value], c.show(figure.Median), between(figure, c.show)))
			})
		}
		c.path(t.d.String(), "line "+v.stroke(subject.Name), "")
		for _, draw := range over {
			draw()
		}
	}
	return none
}

// names writes the values below a panel: the last, and of the others those that leave it room.
func (c graph) names(x scale, bottom float64) {
	half := func(value float64) float64 { return textWidth(short(value))/2 + 3 }
	write := func(value float64) {
		c.text(x.at(value), bottom+18, "middle muted small", short(value))
	}
	last := c.values[len(c.values)-1]
	write(last)
	free, end := 0.0, x.at(last)-half(last)
	for _, value := range c.values[:len(c.values)-1] {
		if at, h := x.at(value), half(value); at-h >= free && at+h <= end {
			write(value)
			free = at + h
		}
	}
}
