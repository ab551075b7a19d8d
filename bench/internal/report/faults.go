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
	panelLeft     = 70.0
	panelRight    = width - 92.0
	latencyHeight = 108.0
	rateHeight    = 62.0
)

// A faultPicture is the picture of a group: for each subject the time to acquire, the outcomes of
// the cycles, and the answers of the nodes, all on one axis of time and with the same scales, so
// that subjects can be compared by eye.
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

func (v view) throughFaults(g group) *drawing {
	d := &drawing{name: v.named("faults", g.point)}
	d.title = v.titled("Through the faults", g.point)
	if slices.ContainsFunc(v.run.Trials, func(t record.Trial) bool { return t.Round > 0 }) {
		d.name += fmt.Sprintf("-round-%d", g.round+1)
		d.title += fmt.Sprintf(", round %d", g.round+1)
	}
	p := faultPicture{drawing: d, view: v, group: g, slow: slowness(g.trials)}
	p.measure()
	slice := time.Duration(0)
	for _, t := range g.trials {
		if slice == 0 && len(t.Slices) > 0 {
			slice = t.Slices[0].Length
		}
	}
	d.caption = fmt.Sprintf("For each subject: time to acquire in each slice of %s (logarithmic: line p50, shade up to p99, dots maximum), "+
		"what became of the cycles, and whether each node answered a PING from outside the load. Shaded: while nodes were broken. All subjects have the same scales.", spanShort(float64(slice)))
	if p.beyond {
		d.caption += " A triangle marks slices that go beyond the scale, of quick failures or of what had piled up; beside them is how far."
	}

	top := p.legend(14)
	top = p.faultNames(top + 12)
	for _, t := range g.trials {
		top = p.subject(t, top)
	}
	for _, t := range p.x.ticks {
		d.text(p.x.at(t.value), top+8, "middle muted small", t.label)
	}
	d.text((panelLeft+panelRight)/2, top+26, "middle muted", "since the load began")
	d.height = top + 36
	return d
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
	x := panelLeft
	item := func(class, name string) {
		if x+16+0.92*textWidth(name) > width-8 {
			x, y = panelLeft, y+18
		}
		p.rect(box{x, y - 9, 11, 11}, class, "")
		p.text(x+16, y+1, "small", name)
		x += 26 + 0.92*textWidth(name)
	}
	word := func(s string) {
		p.text(x, y+1, "muted small", s)
		x += textWidth(s) + 4
	}
	if len(p.outcomes) > 0 {
		word("cycles:")
	}
	for _, outcome := range p.outcomes {
		item(classOf(outcome), outcome)
	}
	if slices.ContainsFunc(p.group.trials, func(t record.Trial) bool { return len(t.Probes) > 0 }) {
		x += 12
		word("nodes:")
		item("n-fast", "answers")
		item("n-slow", "answers after "+spanShort(float64(p.slow))+" or more")
		item("n-none", "no answer")
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
		lefts[i] = max(panelLeft, min(p.x.at(float64(f.From+f.To)/2)-w/2, width-8-w))
		place[i] = slices.IndexFunc(free, func(x float64) bool { return x <= lefts[i] })
		if place[i] < 0 {
			place[i] = len(free)
			free = append(free, 0)
		}
		free[place[i]] = lefts[i] + w + 8
	}
	for i, f := range faults {
		y := top + 14*float64(place[i])
		p.text(lefts[i], y+10, "tag small", f.What)
		var t trace
		t.to(p.x.at(float64(f.From+f.To)/2), y+14)
		t.to(p.x.at(float64(f.From+f.To)/2), top+14*float64(len(free))+6)
		p.path(t.d.String(), "edge", "")
	}
	return top + 14*float64(len(free)) + 6
}

// headline is the effect of the worst fault.
func headline(t record.Trial) string {
	var worst, slowest time.Duration
	never := false
	for _, s := range t.Services {
		worst, slowest = max(worst, s.Without), max(slowest, s.Recovery)
		never = never || s.Recovery < 0
	}
	if len(t.Services) == 0 {
		return ""
	}
	parts := []string{"longest without a lock " + duration(worst)}
	if never {
		parts = append(parts, "did not recover in time")
	} else {
		parts = append(parts, "recovered "+duration(slowest)+" after the fault")
	}
	return strings.Join(parts, ", ")
}
