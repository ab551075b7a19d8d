package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// subject draws the panels of one trial below top and returns where the next one's begin.
func (p *faultPicture) subject(t record.Trial, top float64) float64 {
	name := title(p.view.subjects[p.view.rank(t.Subject)])
	p.rect(box{margin, top + 9, 12, 12}, p.view.fill(t.Subject), "")
	p.label(xy{margin + 18, top + 20}, width-2*margin-18, "bold", name)
	p.text(margin+18, top+20+lineHeight, "muted small", headline(t))

	// Each panel has its name above it, where the eye begins, and room for it between the panels:
	// labels at the ends of two scales would meet.
	const heading = 38.0
	latency := top + 30 + lineHeight + heading
	rates := latency + latencyHeight + heading
	nodes := rates + rateHeight + heading - 6
	step := min(11, 90/float64(max(1, len(t.Probes))))
	bottom := rates + rateHeight
	if len(t.Probes) > 0 {
		bottom = nodes + step*float64(len(t.Probes))
	}
	p.grid(p.x, latency, bottom)
	p.shades(t, latency-8, bottom)
	p.text(margin, latency-16, "muted small", "time to acquire")
	p.text(margin, rates-16, "muted small", "cycles/s")
	if len(t.Probes) > 0 {
		p.text(margin, nodes-8, "muted small", plural(len(t.Probes), "node"))
	}
	p.latencies(t, latency, latency+latencyHeight)
	p.rates(t, rates, rates+rateHeight)
	p.nodes(t, nodes, step)
	return bottom + 18
}

// shades mark when the faults of the trial were.
func (p *faultPicture) shades(t record.Trial, top, bottom float64) {
	for _, f := range t.Faults {
		from, to := p.x.at(float64(f.From)), p.x.at(float64(f.To))
		p.rect(box{from, top, max(to-from, 1), bottom - top}, "fault",
			fmt.Sprintf("%s, from %s to %s", f.What, duration(f.From), duration(f.To)))
		p.line(xy{from, top}, xy{from, bottom}, "edge")
		p.line(xy{to, top}, xy{to, bottom}, "edge")
	}
}

// latencies draws p50 as a line, the shade up to p99, and the maxima as dots. A slice in which
// nothing was acquired is a gap.
func (p *faultPicture) latencies(t record.Trial, top, bottom float64) {
	y := logarithmic(extent{float64(p.lo), float64(p.hi)}, extent{bottom, top}, standing, spanShort)
	if p.hi > 0 {
		p.ladder(y, panelLeft, panelRight)
	}
	p.line(xy{panelLeft, bottom}, xy{panelRight, bottom}, "axis")
	var median, p99 trace
	var area, dots strings.Builder
	var run []record.Slice // without a gap
	flush := func() {
		// A step a slice, as there is one figure for all of it.
		for i, s := range run {
			from, to := p.x.at(float64(s.From)), p.x.at(float64(s.From+s.Length))
			command := "L"
			if i == 0 {
				command = "M"
			}
			fmt.Fprintf(&area, "%s%s %sL%s %s", command, px(from), px(y.at(float64(s.Acquire.P99))),
				px(to), px(y.at(float64(s.Acquire.P99))))
		}
		for _, s := range slices.Backward(run) {
			from, to := p.x.at(float64(s.From)), p.x.at(float64(s.From+s.Length))
			fmt.Fprintf(&area, "L%s %sL%s %s", px(to), px(y.at(float64(s.Acquire.P50))), px(from),
				px(y.at(float64(s.Acquire.P50))))
		}
		if len(run) > 0 {
			area.WriteString("Z")
		}
		run = nil
		median.lift()
		p99.lift()
	}
	var ends []end
	colour := fmt.Sprintf("l%d", p.view.colour(t.Subject))
	for _, s := range steady(t.Slices) {
		if s.Acquire.Count == 0 {
			flush()
			continue
		}
		run = append(run, s)
		from, to := p.x.at(float64(s.From)), p.x.at(float64(s.From+s.Length))
		median.to(from, y.at(float64(s.Acquire.P50)))
		median.to(to, y.at(float64(s.Acquire.P50)))
		p99.to(from, y.at(float64(s.Acquire.P99)))
		p99.to(to, y.at(float64(s.Acquire.P99)))
		// Round line ends make dots: one path for all.
		fmt.Fprintf(&dots, "M%s %sh0", px((from+to)/2), px(y.at(float64(s.Acquire.Max))))
		ends = []end{
			{x: to, y: y.at(float64(s.Acquire.Max)), name: "max"},
			{x: to, y: y.at(float64(s.Acquire.P99)), name: "p99"},
			{x: to, y: y.at(float64(s.Acquire.P50)), name: "p50"},
		}
	}
	flush()
	p.path(area.String(), "soft "+p.view.fill(t.Subject), "")
	p.path(p99.d.String(), "thin "+colour, "p99")
	p.path(dots.String(), "dot "+colour, "maximum")
	p.path(median.d.String(), "line "+colour, "p50")
	if len(ends) == 0 {
		p.text((panelLeft+panelRight)/2, (top+bottom)/2, "middle muted", "acquired nothing")
		return
	}
	p.ends(ends, panelRight+14, top+2, bottom-4)
}

// rates stacks the outcomes of the cycles of each slice, as rates.
func (p *faultPicture) rates(t record.Trial, top, bottom float64) {
	y := linear(p.most, extent{bottom, top}, 2, countShort)
	p.ladder(y, panelLeft, panelRight)
	slices := steady(t.Slices)
	paths := make([]strings.Builder, len(p.outcomes))
	var beyond strings.Builder
	most := 0.0
	for _, s := range slices {
		from, to := p.x.at(float64(s.From)), p.x.at(float64(s.From+s.Length))
		below := 0.0
		for i, outcome := range p.outcomes {
			if s.Outcomes[outcome] == 0 {
				continue
			}
			above := below + rate(s, s.Outcomes[outcome])
			fmt.Fprintf(&paths[i], "M%s %sH%sV%sH%sZ", px(from), px(y.at(below)), px(to),
				px(y.at(above)), px(from))
			below = above
		}
		if most = max(most, below); below > y.hi {
			fmt.Fprintf(&beyond, "M%s %sl3 5h-6Z", px((from+to)/2), px(top-5))
		}
	}
	for i, outcome := range p.outcomes {
		p.path(paths[i].String(), "flat "+classOf(outcome), outcome)
	}
	p.path(beyond.String(), "beyond", "more than the scale shows")
	p.line(xy{panelLeft, bottom}, xy{panelRight, bottom}, "axis")
	if most > y.hi {
		p.text(width-margin, top-16, "end muted small", "up to "+countShort(most)+"/s")
	}
}

// slowness is from when on a node's answer counts as slow: four times the median of these trials,
// rounded up, and at least 5 ms.
func slowness(trials []record.Trial) time.Duration {
	var took []float64
	for _, t := range trials {
		for _, probes := range t.Probes {
			for _, p := range probes {
				if p.Took >= 0 {
					took = append(took, float64(p.Took))
				}
			}
		}
	}
	usual := 4 * record.Median(took)
	if usual <= float64(5*time.Millisecond) {
		return 5 * time.Millisecond
	}
	return time.Duration(niceCeil(usual))
}

func (p *faultPicture) state(probe record.Probe) string {
	switch {
	case probe.Took < 0:
		return "n-none"
	case probe.Took >= p.slow:
		return "n-slow"
	default:
		return "n-fast"
	}
}

// A stretch is a time in which a node's answers were alike.
type stretch struct {
	from, to time.Duration
	class    string
}

// stretches joins probes: each stands for the time until the next.
func (p *faultPicture) stretches(probes []record.Probe) []stretch {
	var all []stretch
	for i, probe := range probes {
		to := probe.At
		switch {
		case i+1 < len(probes):
			to = probes[i+1].At
		case i > 0:
			to += probe.At - probes[i-1].At
		}
		class := p.state(probe)
		if n := len(all); n > 0 && all[n-1].class == class {
			all[n-1].to = to
		} else {
			all = append(all, stretch{probe.At, to, class})
		}
	}
	return all
}

// nodes draws a strip a node.
func (p *faultPicture) nodes(t record.Trial, top, step float64) {
	words := map[string]string{"n-fast": "answers", "n-slow": "answers slowly", "n-none": "does not answer"}
	for i, probes := range t.Probes {
		y := top + step*float64(i)
		for _, s := range p.stretches(probes) {
			from, to := p.x.at(float64(max(s.from, 0))), p.x.at(float64(s.to))
			p.rect(box{from, y, max(to-from, 1), max(step-1.5, 1)}, s.class,
				fmt.Sprintf("node %d %s from %s to %s", i+1, words[s.class],
					duration(max(s.from, 0)), duration(s.to)))
		}
	}
}
