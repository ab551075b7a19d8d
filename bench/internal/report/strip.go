package report

import (
	"fmt"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// slowness is what counts as a slow answer of a node: well above what is usual in
// these trials, rounded up, and at least 5 ms.
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

func (p *trouble) state(probe record.Probe) string {
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
func (p *trouble) stretches(probes []record.Probe) []stretch {
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
func (p *trouble) nodes(t record.Trial, top, step float64) {
	words := map[string]string{"n-fast": "answers", "n-slow": "answers slowly", "n-none": "does not answer"}
	for i, probes := range t.Probes {
		y := top + step*float64(i)
		for _, s := range p.stretches(probes) {
			from, to := p.x.at(float64(max(s.from, 0))), p.x.at(float64(s.to))
			p.rect(from, y, max(to-from, 1), max(step-1.5, 1), s.class,
				fmt.Sprintf("node %d %s from %s to %s", i+1, words[s.class], duration(max(s.from, 0)), duration(s.to)))
		}
		if step >= 9 || i == 0 || i == len(t.Probes)-1 {
			p.text(troubleLeft-6, y+step/2+3, "end muted tiny", fmt.Sprint(i+1))
		}
	}
}
