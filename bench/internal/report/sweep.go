package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// A metric is a figure that a curve shows over the points of a sweep.
type metric struct {
	name, title, caption string
	of                   func(record.Summary) record.Spread
	show, label          func(float64) string // in full, and on the axis
}

var curves = []metric{
	{"sweep-throughput", "Cycles a second", "Locks acquired and released a second. Higher is better.",
		func(s record.Summary) record.Spread { return s.PerSecond }, count, countShort},
	{"sweep-p99", "Time to acquire, p99",
		"The time within which 99 % of the acquisitions had the lock. Lower is better.",
		func(s record.Summary) record.Spread { return s.Acquire.P99 }, span, spanShort},
}

// An abscissa places the points of a sweep.
type abscissa struct {
	name  string             // of the numbers; "": points are categories
	at    map[string]float64 // pixels
	order []string           // from left to right
}

// place puts points that are all numbers of one thing ("callers=64") where these numbers are, and
// others in equal steps.
func place(points []string, from, to float64) abscissa {
	a := abscissa{at: map[string]float64{}, order: slices.Clone(points)}
	values := map[string]float64{}
	for i, p := range points {
		name, text, _ := strings.Cut(p, "=")
		value, ok := number(text)
		if !ok || i > 0 && name != a.name {
			values = nil
			break
		}
		a.name, values[p] = name, value
	}
	if values == nil {
		a.name = ""
		for i, p := range points {
			a.at[p] = from + (to-from)*(float64(i)+0.5)/float64(len(points))
		}
		return a
	}
	slices.SortFunc(a.order, func(p, q string) int {
		if values[p] < values[q] {
			return -1
		}
		return 1
	})
	lo, hi := values[a.order[0]], values[a.order[len(points)-1]]
	s := scale{lo: lo, hi: hi, from: from + 20, to: to - 20, log: lo > 0 && hi >= 8*lo}
	if lo == hi {
		s.lo, s.hi = lo-1, hi+1
	}
	for _, p := range points {
		a.at[p] = s.at(values[p])
	}
	if s.log {
		a.name += " (logarithmic)"
	}
	return a
}

// number reads 64, 0.5 or 200ms.
func number(s string) (float64, bool) {
	if x, err := strconv.ParseFloat(s, 64); err == nil && x-x == 0 { // neither NaN nor infinite
		return x, true
	}
	d, err := time.ParseDuration(s)
	return d.Seconds(), err == nil
}

// curve draws a metric over the points, a line a subject. Points that are no numbers are not
// joined.
func (v view) curve(m metric) *drawing {
	sums := cycling(v.sums)
	lo, hi := 0.0, 0.0
	for _, s := range sums {
		if x := m.of(s); x.Median > 0 {
			if lo == 0 || x.Min > 0 && x.Min < lo {
				lo = x.Median
				if x.Min > 0 {
					lo = x.Min
				}
			}
			hi = max(hi, x.Max)
		}
	}
	if hi == 0 {
		return nil
	}
	const left, right, top, bottom = 70.0, width - 280.0, 12.0, 300.0
	d := &drawing{name: m.name, title: m.title, caption: m.caption + " Figures: " + rounds(sums) + "."}
	var y scale
	kind := "linear, from zero"
	if hi > 8*lo {
		y, kind = logarithmic(extent{lo, hi}, extent{bottom, top}, m.label), "logarithmic"
	} else {
		y = linear(hi, extent{bottom, top}, 6, m.label)
	}
	d.caption += " The vertical axis is " + kind + "."
	x := place(v.points, left, right)
	d.ladder(y, left, right)
	d.line(xy{left, bottom}, xy{right, bottom}, "axis")
	x.labels(d, top, bottom, (right-left)/float64(len(v.points)))
	d.text((left+right)/2, bottom+38, "middle muted", x.name)
	d.height = bottom + 48

	var names []end
	none := false
	for i, subject := range v.subjects {
		shift := 0.0
		if x.name == "" { // beside each other, or they would hide each other
			shift = 9 * (float64(i) - float64(len(v.subjects)-1)/2)
		}
		var t trace
		var last end
		for _, point := range x.order {
			j := slices.IndexFunc(sums, func(s record.Summary) bool {
				return s.Subject.Name == subject.Name && s.Point == point
			})
			if j < 0 || m.of(sums[j]).Median <= 0 {
				if j >= 0 {
					d.text(x.at[point]+shift, bottom-4, "middle bold "+v.fill(subject.Name), "×")
					none = true
				}
				t.lift()
				continue
			}
			value := m.of(sums[j])
			px, py := x.at[point]+shift, y.at(value.Median)
			t.to(px, py)
			last = end{x: px, y: py, class: v.stroke(subject.Name), name: title(subject),
				note: m.show(value.Median)}
			if point != x.order[len(x.order)-1] { // or it would be read as one of the last point
				_, where, numeric := strings.Cut(point, "=")
				if !numeric {
					where = point
				}
				last.note += " at " + where
			}
			d.line(xy{px, y.at(max(value.Min, y.lo))}, xy{px, y.at(value.Max)},
				"thin "+v.stroke(subject.Name))
			d.circle(xy{px, py}, 4, "mark "+v.fill(subject.Name),
				fmt.Sprintf("%s, %s: %s, rounds %s", title(subject), point, m.show(value.Median),
					between(value, m.show)))
		}
		if x.name != "" {
			d.path(t.d.String(), "line "+v.stroke(subject.Name), "")
		}
		if last.name != "" {
			names = append(names, last)
		}
	}
	if none {
		d.caption += " A cross: there was nothing to measure."
	}
	d.ends(names, right+14, top+4, bottom-4)
	return d
}

// labels writes the points below the panel; numbers that come too close to the one before have only
// a grid line.
func (a abscissa) labels(d *drawing, top, bottom, each float64) {
	free := 0.0
	for _, p := range a.order {
		at, text := a.at[p], p
		d.line(xy{at, top}, xy{at, bottom}, "grid")
		if a.name == "" {
			d.label(xy{at, bottom + 20}, room{each - 8, 2}, "middle muted small", text)
			continue
		}
		_, text, _ = strings.Cut(p, "=")
		if half := textWidth(text) / 2; at-half >= free {
			d.text(at, bottom+17, "middle muted small", text)
			free = at + half + 6
		}
	}
}
