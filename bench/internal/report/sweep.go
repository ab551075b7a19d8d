package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// A metric is a figure that is shown over the points of a sweep.
type metric struct {
	head  string
	of    func(record.Summary) record.Spread
	label func(float64) string
}

var metrics = [...]metric{
	{"cycles/s", record.Summary.PerSecond, countShort},
	{"time to acquire, p99", func(s record.Summary) record.Spread { return s.Acquire(0.99) }, spanShort},
}

// A dimension is the points of one sweep: what was varied, and its values in rising order.
type dimension struct {
	key    string
	values []float64
}

// dimensionNames are for people, of keys that are not.
var dimensionNames = map[string]string{"length": "bytes of a name", "processes": "client processes"}

func (d dimension) name() string {
	if name := dimensionNames[d.key]; name != "" {
		return name
	}
	return d.key
}

func (d dimension) point(value float64) string { return fmt.Sprintf("%s=%.0f", d.key, value) }

// dimensions are in the order of the run.
func (v view) dimensions() []dimension {
	var all []dimension
	for _, p := range v.run.Points() {
		key, text, _ := strings.Cut(p, "=")
		value, _ := strconv.ParseFloat(text, 64) // the benchmark has written it
		i := slices.IndexFunc(all, func(d dimension) bool { return d.key == key })
		if i < 0 {
			all, i = append(all, dimension{key: key}), len(all)
		}
		all[i].values = append(all[i].values, value)
		slices.Sort(all[i].values)
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
	d := &drawing{name: "scale", title: "More of everything"}
	d.caption = fmt.Sprintf("Cycles a second, and p99 of the time to acquire: %s. Vertical axes are logarithmic; a gap: nothing was acquired.", rounds(v.sums))
	top := 6.0
	for _, s := range v.run.Subjects {
		top = v.keyLine(d, s, "", top)
	}
	top += 40
	for i, m := range metrics {
		var values extent
		for _, s := range v.sums {
			values.include(m.of(s).Min)
			values.include(m.of(s).Max)
		}
		if values.to == 0 {
			return nil
		}
		left := cellLeft + cellRight*float64(i)
		d.text(xy{left - 58, top - 20}, "muted small", m.head)
		for j, dim := range v.dimensions() {
			above := top + cellBelow*float64(j)
			v.panel(d, dim, m, graph{
				dim.axis(extent{left + 8, left + cellWidth - 8}),
				logarithmic(values, extent{above + cellHeight, above}, standing, m.label),
			})
		}
	}
	d.height = top + cellBelow*float64(len(v.dimensions())) - 6
	return d
}

// A graph is the axes of one panel of a sweep.
type graph struct{ x, y scale }

func (d dimension) axis(on extent) scale {
	lo, hi := d.values[0], d.values[len(d.values)-1]
	return scale{lo: lo, hi: hi, from: on.from, to: on.to, log: hi > 10*lo}
}

// panel draws the metric over the dimension.
func (v view) panel(d *drawing, dim dimension, m metric, g graph) {
	left, right, bottom := g.x.from-8, g.x.to+8, g.y.from
	d.ladder(g.y, extent{left, right})
	d.line(xy{left, bottom}, xy{right, bottom}, "axis")
	name := dim.name()
	if g.x.log {
		name += " (log.)"
	}
	d.text(xy{(left + right) / 2, bottom + 36}, "middle muted small", name)
	free, last := 0.0, dim.values[len(dim.values)-1]
	half := func(value float64) float64 { return textWidth(short(value))/2 + 3 }
	for _, value := range dim.values { // the last has its name below it, and others that leave room for it
		at := g.x.at(value)
		if value == last || at-half(value) >= free && at+half(value) <= g.x.at(last)-half(last) {
			d.text(xy{at, bottom + 18}, "middle muted small", short(value))
			free = at + half(value)
		}
	}
	for _, subject := range slices.Backward(v.run.Subjects) { // the first lies on top
		var line trace
		for _, value := range dim.values {
			i := slices.IndexFunc(v.sums, func(s record.Summary) bool {
				return s.Subject.Name == subject.Name && s.Point == dim.point(value)
			})
			if i < 0 || m.of(v.sums[i]).Median == 0 {
				line.lift()
				continue
			}
			figure, at := m.of(v.sums[i]), g.x.at(value)
			line.to(xy{at, g.y.at(figure.Median)})
			d.line(xy{at, g.y.at(figure.Min)}, xy{at, g.y.at(figure.Max)}, "thin "+v.stroke(subject.Name))
			d.circle(xy{at, g.y.at(figure.Median)}, 4, "mark "+v.fill(subject.Name))
		}
		d.trace(&line, "line "+v.stroke(subject.Name))
	}
}
