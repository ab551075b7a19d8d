package doctor

import (
	"context"
	"sync"
)

// A Report is all that Examine found.
type Report struct {
	Verdict  Severity     `json:"verdict"`  // the worst of all findings
	Answered int          `json:"answered"` // servers
	Quorum   int          `json:"quorum"`   // how many have to
	Nodes    []NodeReport `json:"nodes"`    // in the order of the servers
	Together []Finding    `json:"together"` // about all of them
}

// A NodeReport is what was found of one server.
type NodeReport struct {
	Node     string    `json:"node"`
	Answered bool      `json:"answered"`
	Findings []Finding `json:"findings"`
}

// Worst returns the severity of the worst finding.
func (n NodeReport) Worst() Severity { return worst(n.Findings) }

func worst(findings []Finding) (w Severity) {
	for _, f := range findings {
		w = max(w, f.Severity)
	}
	return w
}

// Examine asks all servers at once, for at most the Settings' Timeout. It does
// not fail: what went wrong is in the report.
func Examine(ctx context.Context, servers []Server, s Settings) *Report {
	visits := make([]*visit, len(servers))
	var wg sync.WaitGroup
	for i, server := range servers {
		visits[i] = &visit{server: server, settings: s, nodes: len(servers)}
		wg.Go(func() { visits[i].run(ctx) })
	}
	wg.Wait()

	r := &Report{Quorum: len(servers)/2 + 1, Together: compare(visits, s)}
	for _, v := range visits {
		n := NodeReport{Node: v.server.Name, Answered: v.answered, Findings: v.findings}
		r.Nodes = append(r.Nodes, n)
		r.Verdict = max(r.Verdict, n.Worst())
		if v.answered {
			r.Answered++
		}
	}
	r.Verdict = max(r.Verdict, worst(r.Together))
	return r
}
