package report

import (
	"cmp"
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
	drawings := []*drawing{v.throughFault(), v.throughput(), v.latency()}
	if v.sweep() {
		drawings = []*drawing{v.scaling()}
	}
	var pictures []Picture
	for _, d := range drawings {
		if d != nil {
			d.caption = strings.TrimSpace(run.About + " " + d.caption)
			d.source = fmt.Sprintf("%s; %s; %s", v.load(), v.machine(), run.Date.UTC().Format("2 January 2006"))
			pictures = append(pictures, Picture{run.Scenario + "-" + d.name + ".svg", d.svg()})
		}
	}
	return pictures
}

// lanes is the layout of all pictures: a lane for each subject, or for each point of a sweep, and an
// axis below them that they share.
type lanes struct {
	*drawing
	top   float64 // of the first
	count int
	head  float64 // of each: the line with its title and figures
	plot  float64 // of each, below the head
}

// in is where the plot of a lane is.
func (l lanes) in(i int) extent {
	top := l.top + (l.head+l.plot)*float64(i) + l.head
	return extent{top, top + l.plot}
}

func (l lanes) middle(i int) float64 { return l.in(i).from + l.plot/2 }

// base is the base line of a lane's title.
func (l lanes) base(i int) float64 { return l.in(i).from - 8 }

func (l lanes) bottom() float64 { return l.in(l.count-1).to + 6 }

// Where the two figures at the end of a lane's title end.
const (
	firstFigure  = width - margin - 92
	secondFigure = width - margin
)

// titles writes the subject's above each lane.
func (l lanes) titles(sums []record.Summary) {
	for i, s := range sums {
		l.text(xy{margin, l.base(i)}, "", s.Subject.Title)
	}
}

// axis draws the scale below the lanes and its grid behind them; it is drawn before the rest.
func (l lanes) axis(s scale, name string) {
	bottom := l.bottom()
	for _, t := range s.ticks {
		l.line(xy{s.at(t.value), l.in(0).from}, xy{s.at(t.value), bottom}, t.class())
		l.text(xy{s.at(t.value), bottom + 18}, "middle muted small", t.label)
	}
	l.line(xy{s.from, bottom}, xy{s.to, bottom}, "axis")
	l.text(xy{(s.from + s.to) / 2, bottom + 40}, "middle muted", name)
	l.height = bottom + 50
}

// across is the pixels of an axis that is as wide as the picture, with room for the halves of labels.
var across = extent{margin + 22, width - margin - 22}

// throughput compares the cycles a second with those of the first subject.
func (v view) throughput() *drawing {
	sums := v.cycling()
	if len(sums) < 2 || sums[0].Ratio == 0 {
		return nil
	}
	first, name := sums[0].PerSecond().Median, sums[0].Subject.Title
	d := &drawing{name: "throughput", title: "Locks acquired and released a second: more is better"}
	d.caption = rounds(sums)
	if rate := sums[0].Trials[0].Load.Rate; rate > 0 {
		d.caption += fmt.Sprintf(" %s/s were begun by schedule, which no subject can exceed.", whole(int64(rate)))
	}
	most := 0.0
	for _, s := range sums {
		most = max(most, s.PerSecond().Max/first)
	}
	l := lanes{drawing: d, count: len(sums), head: 30, plot: 20}
	x := linear(most, across, short)
	l.axis(x, "locks a second, "+name+" = 1")
	l.titles(sums)
	for i, s := range sums {
		rate, in := s.PerSecond(), l.in(i)
		l.rect(box{x.from, in.from + 2, x.at(rate.Median/first) - x.from, l.plot - 4}, "bar "+v.colour(s.Subject.Name))
		l.spread(x, record.Spread{Min: rate.Min / first, Max: rate.Max / first}, l.middle(i))
		l.line(xy{x.at(1), in.from - 1}, xy{x.at(1), in.to + 1}, "one")
		l.text(xy{firstFigure, l.base(i)}, "end bold", ratio(s.Ratio))
		l.text(xy{secondFigure, l.base(i)}, "end", count(rate.Median)+"/s")
	}
	return d
}

// spread draws the range of the rounds, of which a mark may lie on top.
func (d *drawing) spread(x scale, s record.Spread, y float64) {
	d.rect(box{x.at(s.Min), y - 4, x.at(s.Max) - x.at(s.Min), 8}, "spread")
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
	d := &drawing{name: "latency", title: "Time to get a lock: less is better"}
	d.caption = rounds(sums)
	l := lanes{drawing: d, top: 26, count: len(sums), head: 30, plot: 20}
	x := logarithmic(values, across, lying, spanShort)
	l.axis(x, "time to get a lock (logarithmic)")
	l.titles(sums)
	left := margin
	for _, m := range marks {
		m.draw(d, xy{left + 7, 16}, "c6")
		left = l.key(left, m.name)
	}
	l.text(xy{firstFigure, 21}, "end muted small", "p50")
	l.text(xy{secondFigure, 21}, "end muted small", "p99")
	for i, s := range sums {
		y, colour := l.middle(i), v.colour(s.Subject.Name)
		if s.Acquire(1).Max == 0 {
			l.text(xy{x.from, y + 5}, "muted", "acquired nothing")
			continue
		}
		at := func(m mark) xy { return xy{x.at(m.of(s)), y} }
		l.line(at(marks[0]), at(marks[2]), "range "+colour)
		l.line(at(marks[0]), at(marks[1]), "thick "+colour)
		l.spread(x, s.Acquire(0.5), y)
		l.spread(x, s.Acquire(0.99), y)
		for _, m := range slices.Backward(marks[:]) { // p50 lies on top
			m.draw(d, at(m), colour)
		}
		l.text(xy{firstFigure, l.base(i)}, "end bold", span(s.Acquire(0.5).Median))
		l.text(xy{secondFigure, l.base(i)}, "end", span(s.Acquire(0.99).Median))
	}
	return d
}

// A mark is the sign of a quantile, in the lanes and in their key.
type mark struct {
	name string
	of   func(record.Summary) float64
	draw func(d *drawing, at xy, colour string)
}

// marks are in the order in which they stand in a lane.
var marks = [...]mark{
	{"p50", func(s record.Summary) float64 { return s.Acquire(0.5).Median }, func(d *drawing, at xy, colour string) {
		d.circle(at, 6.5, "mark "+colour)
	}},
	{"p99", func(s record.Summary) float64 { return s.Acquire(0.99).Median }, func(d *drawing, at xy, colour string) {
		d.rect(box{at.x - 2.5, at.y - 8, 5, 16}, "mark "+colour)
	}},
	// The median of maxima would hide a stall.
	{"maximum of all rounds", func(s record.Summary) float64 { return s.Acquire(1).Max }, func(d *drawing, at xy, colour string) {
		d.circle(at, 4, "hollow "+colour)
	}},
}

// key names a mark above the lanes, and returns where the next one begins.
func (d *drawing) key(left float64, name string) float64 {
	d.text(xy{left + 18, 21}, "muted small", name)
	return left + 34 + textWidth(name)
}

// throughFault shows the time to acquire of each subject in the first round. It is what a service
// sees of the fault: a line that stays where it was, that rises, or that has a gap because no lock
// could be had.
func (v view) throughFault() *drawing {
	sums := v.cycling()
	var fault *record.Fault
	var values extent
	for _, s := range sums {
		fault = cmp.Or(fault, s.Trials[0].Fault)
		for _, h := range s.Trials[0].Slices {
			values.include(float64(h.At(0.99)))
		}
	}
	if fault == nil || values.to == 0 {
		return nil
	}
	d := &drawing{name: "faults", title: "Time to get a lock while servers fail: less is better"}
	d.caption = fmt.Sprintf("p99 of each %s, on a logarithmic axis. A gap: no lock was acquired. Shaded: servers are broken.", spanShort(float64(record.SliceLength)))
	l := lanes{drawing: d, top: 18, count: len(sums), head: 36, plot: 54}
	x := linear(float64(sums[0].Trials[0].Load.Duration), extent{margin + 62, across.to}, func(ns float64) string { return short(ns/1e9) + " s" })
	from, to := x.at(float64(fault.From)), x.at(float64(fault.To))
	l.rect(box{from, l.top, max(to-from, 1), l.bottom() - l.top}, "fault")
	l.text(xy{(from + to) / 2, l.top - 6}, "middle tag small", fault.What)
	l.axis(x, "time since the load began")
	l.titles(sums)
	for i, s := range sums {
		y := logarithmic(values, extent{l.in(i).to, l.in(i).from}, standing, spanShort)
		for _, t := range y.ticks {
			if t.label != "" {
				d.line(xy{x.from, y.at(t.value)}, xy{x.to, y.at(t.value)}, t.class())
				d.text(xy{x.from - 6, y.at(t.value) + 5}, "end muted small", t.label)
			}
		}
		var line trace
		for i, h := range s.Trials[0].Slices {
			if h.Count() == 0 {
				line.lift()
				continue
			}
			from, at := float64(i)*float64(record.SliceLength), y.at(float64(h.At(0.99)))
			line.to(xy{x.at(from), at})
			line.to(xy{x.at(from + float64(record.SliceLength)), at})
		}
		d.trace(&line, "line "+v.colour(s.Subject.Name))
		if f := s.Trials[0].Fault; f != nil && f.Without > 0 {
			d.text(xy{secondFigure, l.base(i)}, "end", "no lock for "+span(float64(f.Without)))
		}
	}
	return d
}

// dimensions are what sweeps vary, for people, where the flag is not.
var dimensions = strings.NewReplacer("length=", "bytes of a name: ", "processes=", "client processes: ", "=", ": ")

// scaling shows the figures over the points of all sweeps. They have one scale, so that a step in one
// sweep can be compared with a step in another.
func (v view) scaling() *drawing {
	d := &drawing{name: "scale", title: "Locks a second, and time to get one, under other loads"}
	d.caption = rounds(v.sums) + " Axes are logarithmic; a gap: nothing was acquired."
	var points []string // "" is between two sweeps
	for _, p := range v.run.Points() {
		if n := len(points); n > 0 && key(points[n-1]) != key(p) {
			points = append(points, "")
		}
		points = append(points, p)
	}
	l := lanes{drawing: d, top: 34, count: len(points), plot: 24}
	left := margin
	for _, s := range v.run.Subjects {
		d.circle(xy{left + 7, 16}, 5, "mark "+v.colour(s.Name))
		left = l.key(left, s.Title)
	}
	for i, p := range points {
		l.text(xy{180, l.middle(i) + 5}, "end", dimensions.Replace(p))
	}
	for _, m := range []metric{
		{"locks a second: more is better", record.Summary.PerSecond, countShort, extent{208, 424}},
		{"p99 of getting one: less is better", func(s record.Summary) record.Spread { return s.Acquire(0.99) }, spanShort, extent{468, 684}},
	} {
		v.dots(l, points, m)
	}
	return d
}

func key(point string) string { return strings.Split(point, "=")[0] }

// A metric is a figure that is shown over the points of a sweep.
type metric struct {
	name  string
	of    func(record.Summary) record.Spread
	label func(float64) string
	on    extent // of the picture
}

// dots draws a metric: its axis, and a line through the points of each sweep for each subject.
func (v view) dots(l lanes, points []string, m metric) {
	var values extent
	for _, s := range v.sums {
		values.include(m.of(s).Min)
		values.include(m.of(s).Max)
	}
	if values.to == 0 {
		return
	}
	x := logarithmic(values, m.on, lying, m.label)
	l.axis(x, m.name)
	for _, subject := range slices.Backward(v.run.Subjects) { // the first lies on top
		var line trace
		var marks drawing
		for i, p := range points {
			at := slices.IndexFunc(v.sums, func(s record.Summary) bool { return s.Subject.Name == subject.Name && s.Point == p })
			if at < 0 || m.of(v.sums[at]).Median == 0 {
				line.lift()
				continue
			}
			figure := m.of(v.sums[at])
			line.to(xy{x.at(figure.Median), l.middle(i)})
			marks.spread(x, figure, l.middle(i))
			marks.circle(xy{x.at(figure.Median), l.middle(i)}, 5, "mark "+v.colour(subject.Name))
		}
		l.trace(&line, "line "+v.colour(subject.Name))
		l.body.Write(marks.body.Bytes())
	}
}
