package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// A group is the trials of all subjects at one point in one round, which one picture shows below
// each other.
type group struct {
	point  string
	round  int
	trials []record.Trial
}

// withFaults are the groups in which nodes were broken.
func (v view) withFaults() []group {
	var all []group
	for _, t := range v.run.Trials {
		i := slices.IndexFunc(all, func(g group) bool {
			return g.point == t.Load.Point && g.round == t.Round
		})
		if i < 0 {
			all, i = append(all, group{point: t.Load.Point, round: t.Round}), len(all)
		}
		all[i].trials = append(all[i].trials, t)
	}
	all = slices.DeleteFunc(all, func(g group) bool {
		return !slices.ContainsFunc(g.trials, func(t record.Trial) bool { return len(t.Faults) > 0 })
	})
	for _, g := range all {
		slices.SortStableFunc(g.trials, func(a, b record.Trial) int {
			return v.rank(a.Subject) - v.rank(b.Subject)
		})
	}
	return all
}

// Measures of a faultPicture, in pixels.
const (
	panelLeft     = 66.0
	panelRight    = width - 54.0
	wholeHeight   = 200.0
	latencyHeight = 96.0
	rateHeight    = 56.0
)

// A faultPicture is a picture of a group: all subjects on one axis of time and with the same
// scales, so that they can be compared by eye.
type faultPicture struct {
	*drawing
	view     view
	group    group
	x        scale
	slow     time.Duration // probes above it count as slow
	lo, hi   time.Duration // of the latencies
	most     float64       // cycles a second at the top of the panels
	beyond   bool          // some slices have more
	outcomes []string      // that occur
}

func (v view) faultPicture(name, title string, g group) faultPicture {
	d := &drawing{name: v.named(name, g.point), title: v.titled(title, g.point)}
	if slices.ContainsFunc(v.run.Trials, func(t record.Trial) bool { return t.Round > 0 }) {
		d.name += fmt.Sprintf("-round-%d", g.round+1)
		d.title += fmt.Sprintf(", round %d", g.round+1)
	}
	p := faultPicture{drawing: d, view: v, group: g, slow: slowness(g.trials)}
	p.measure()
	return p
}

// slice is the resolution of the trials.
func (p *faultPicture) slice() string {
	for _, t := range p.group.trials {
		if len(t.Slices) > 0 {
			return spanShort(float64(t.Slices[0].Length))
		}
	}
	return "0"
}

// clock draws the axis of time below the panels.
func (p *faultPicture) clock(top float64) {
	for _, t := range p.x.ticks {
		p.text(p.x.at(t.value), top+18, "middle muted small", t.label)
	}
	p.text((p.x.from+p.x.to)/2, top+40, "middle muted", "since the load began")
	p.height = top + 50
}

// throughFaults shows the time to acquire of all subjects, one line each. It is what a service
// sees of the faults: a line that stays where it was, that rises, or that has a gap because no lock
// could be had.
func (v view) throughFaults(g group) *drawing {
	p := v.faultPicture("faults", "Through the faults", g)
	if p.hi == 0 {
		return nil
	}
	p.x.to = width - margin - 16
	p.caption = fmt.Sprintf("Time to acquire, p99 of each %s. Lower is better, on a logarithmic axis; a gap: no lock was acquired. Shaded: nodes are broken.", p.slice())
	top := 10.0
	for _, t := range g.trials {
		note := ""
		if worst := longestWithout(t); worst > 0 {
			note = "no lock for " + duration(worst)
		}
		top = v.keyLine(p.drawing, t.Subject, note, top)
	}
	top = p.faultNames(top+2) + 8
	p.text(margin, top+10, "muted small", "time to acquire")
	top += 26
	bottom := top + wholeHeight
	p.grid(p.x, top, bottom)
	p.shades(g.trials[0], top-6, bottom)
	y := logarithmic(extent{float64(p.lo), float64(p.hi)}, extent{bottom, top}, standing, spanShort)
	p.ladder(y, panelLeft, p.x.to)
	p.line(xy{panelLeft, bottom}, xy{p.x.to, bottom}, "axis")
	for _, t := range slices.Backward(g.trials) { // the first, which the run is about, lies on top
		var line trace
		for _, s := range steady(t.Slices) {
			if s.Acquire.Count == 0 {
				line.lift()
				continue
			}
			at := y.at(float64(s.Acquire.P99))
			line.to(p.x.at(float64(s.From)), at)
			line.to(p.x.at(float64(s.From+s.Length)), at)
		}
		p.path(line.d.String(), "line "+v.stroke(t.Subject), title(v.subjects[v.rank(t.Subject)]))
	}
	p.clock(bottom)
	return p.drawing
}

// keyLine writes a line of the key of a drawing whose subjects are lines, and returns where the next
// one begins.
func (v view) keyLine(d *drawing, subject, note string, top float64) float64 {
	d.line(xy{margin, top + 7}, xy{margin + 20, top + 7}, "key "+v.stroke(subject))
	d.label(xy{margin + 28, top + 12}, width-2*margin-36-textWidth(note), "", title(v.subjects[v.rank(subject)]))
	if note != "" {
		d.text(width-margin, top+12, "end muted", note)
	}
	return top + lineHeight + 1
}

// faultsInDetail shows for each subject the time to acquire, the outcomes of the cycles, and the
// answers of the nodes.
func (v view) faultsInDetail(g group) *drawing {
	p := v.faultPicture("faults-in-detail", "Through the faults, in detail", g)
	p.caption = fmt.Sprintf("Each %s: time to acquire (logarithmic: line p50, shade up to p99, dots maximum), what became of the cycles, and whether each node answered a PING. Shaded: nodes are broken.", p.slice())
	if p.beyond {
		p.caption += " A triangle: beyond the scale, by quick failures or by what had piled up."
	}
	top := p.legend(14)
	top = p.faultNames(top + 12)
	for _, t := range g.trials {
		top = p.subject(t, top)
	}
	p.clock(top - 10)
	return p.drawing
}

// measure finds the scales that all subjects fit in.
func (p *faultPicture) measure() {
	end := time.Duration(0)
	usual := 0.0
	for _, t := range p.group.trials {
		end = max(end, t.Elapsed)
		for _, f := range t.Faults {
			end = max(end, f.To)
		}
		var rates []float64
		for _, s := range steady(t.Slices) {
			rates = append(rates, rate(s, s.Outcomes[record.OK]))
			end = max(end, s.From+s.Length)
			if s.Acquire.Count > 0 {
				if p.lo == 0 || s.Acquire.P50 < p.lo {
					p.lo = max(s.Acquire.P50, 1)
				}
				p.hi = max(p.hi, s.Acquire.Max)
			}
			p.most = max(p.most, rate(s, total(s)))
			for outcome, n := range s.Outcomes {
				if n > 0 && outcome != record.UnderWay && !slices.Contains(p.outcomes, outcome) {
					p.outcomes = append(p.outcomes, outcome)
				}
			}
		}
		usual = max(usual, record.Median(rates))
	}
	// Cycles that piled up during a fault may come all at once after it, and a library that fails
	// quickly may fail a hundred times as often as it can succeed; on a scale for either nothing
	// else could be seen.
	if usual > 0 && p.most > 4*usual {
		p.most, p.beyond = 3*usual, true
	}
	slices.SortFunc(p.outcomes, func(a, b string) int { return severity(a) - severity(b) })
	p.x = timeline(float64(end), panelLeft, panelRight)
}

// severity orders outcomes; unknown ones come last.
func severity(outcome string) int {
	if i := slices.Index(outcomeOrder, outcome); i >= 0 {
		return i
	}
	return len(outcomeOrder)
}

// steady leaves out a last slice that is too short for a rate.
func steady(all []record.Slice) []record.Slice {
	if n := len(all); n > 1 && all[n-1].Length < all[0].Length/2 {
		return all[:n-1]
	}
	return all
}

func total(s record.Slice) int64 {
	var n int64
	for outcome, k := range s.Outcomes {
		if outcome != record.UnderWay {
			n += k
		}
	}
	return n
}

func rate(s record.Slice, n int64) float64 {
	if s.Length <= 0 {
		return 0
	}
	return float64(n) / s.Length.Seconds()
}

var outcomeClass = map[string]string{
	record.OK: "o-ok", record.Held: "o-held", record.NoQuorum: "o-quorum", record.Failed: "o-failed",
	record.Gave: "o-gave", record.Lost: "o-lost", record.NotBegun: "o-begun",
}

func classOf(outcome string) string {
	if class := outcomeClass[outcome]; class != "" {
		return class
	}
	return "o-failed"
}

// legend explains the colours of outcomes and nodes, as far as they occur.
func (p *faultPicture) legend(y float64) float64 {
	x := margin
	item := func(class, name string) {
		if x+17+textWidth(name) > width-margin {
			x, y = margin, y+lineHeight
		}
		p.rect(box{x, y - 9, 11, 11}, class, "")
		p.text(x+17, y+2, "small", name)
		x += 29 + textWidth(name)
	}
	word := func(s string) {
		p.text(x, y+2, "muted small", s)
		x += textWidth(s) + 6
	}
	if len(p.outcomes) > 0 {
		word("cycles:")
	}
	for _, outcome := range p.outcomes {
		item(classOf(outcome), outcome)
	}
	if slices.ContainsFunc(p.group.trials, func(t record.Trial) bool { return len(t.Probes) > 0 }) {
		x, y = margin, y+lineHeight
		word("nodes:")
		item("n-fast", "answer")
		item("n-slow", "after "+spanShort(float64(p.slow))+" or more")
		item("n-none", "do not")
	}
	return y + 8
}

// faultNames names the faults above the shades, once for all subjects. Texts that would meet go to
// lines of their own.
func (p *faultPicture) faultNames(top float64) float64 {
	var faults []record.Fault
	for _, t := range p.group.trials {
		if len(t.Faults) > len(faults) {
			faults = t.Faults
		}
	}
	var free []float64 // by line
	place := make([]int, len(faults))
	lefts := make([]float64, len(faults))
	for i, f := range faults {
		w := textWidth(f.What)
		lefts[i] = max(panelLeft, min(p.x.at(float64(f.From+f.To)/2)-w/2, width-margin-w))
		place[i] = slices.IndexFunc(free, func(x float64) bool { return x <= lefts[i] })
		if place[i] < 0 {
			place[i] = len(free)
			free = append(free, 0)
		}
		free[place[i]] = lefts[i] + w + 8
	}
	for i, f := range faults {
		y := top + lineHeight*float64(place[i])
		p.text(lefts[i], y+12, "tag small", f.What)
		if place[i]+1 < len(free) { // a name between it and the shade
			var t trace
			t.to(p.x.at(float64(f.From+f.To)/2), y+17)
			t.to(p.x.at(float64(f.From+f.To)/2), top+lineHeight*float64(len(free))+6)
			p.path(t.d.String(), "edge", "")
		}
	}
	return top + lineHeight*float64(len(free)) + 6
}

// longestWithout is the longest time for which a fault kept the subject from acquiring anything.
func longestWithout(t record.Trial) (worst time.Duration) {
	for _, s := range t.Services {
		worst = max(worst, s.Without)
	}
	return worst
}

// headline is the effect of the worst fault.
func headline(t record.Trial) string {
	if len(t.Services) == 0 {
		return ""
	}
	var slowest time.Duration
	never := false
	for _, s := range t.Services {
		slowest = max(slowest, s.Recovery)
		never = never || s.Recovery < 0
	}
	parts := []string{"no lock for " + duration(longestWithout(t))}
	if never {
		parts = append(parts, "did not recover in time")
	} else {
		parts = append(parts, "recovered after "+duration(slowest))
	}
	return strings.Join(parts, ", ")
}
