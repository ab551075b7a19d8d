// Package report shows a record.Run to people: as text for a terminal, as a table in Markdown, and
// as SVG pictures.
//
// A picture is readable without its page: it names the measurement and the machine, and whether more
// is better. Bars start at zero, and a logarithmic axis is marked. Figures are medians over the rounds
// with their range. A subject has one colour in all pictures of a run. Text begins with problems that
// make the figures worthless.
package report

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// Text writes the run for a terminal.
func Text(w io.Writer, run record.Run) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s: %s\n%s\n%s\n", run.Scenario, run.About, load(run), machine(run))
	if run.Machine.Nodes == "embedded" {
		fmt.Fprintln(&b, "\nEMBEDDED NODES: THESE FIGURES SAY NOTHING ABOUT SPEED")
	}
	sums := run.Summaries()
	for _, s := range sums {
		if n := s.Sum(violations); n > 0 {
			first := slices.IndexFunc(s.Trials, func(t record.Trial) bool { return t.Violations > 0 })
			fmt.Fprintf(&b, "\n!! %s: %s of %s; %s\n", s.Subject.Title, plural(n, "overlap"), plural(s.Sum(func(t record.Trial) int64 { return t.Checked }), "hold"), s.Trials[first].Violation)
		}
		if s.Trials[0].Held == nil && s.Sum(cycles) == 0 {
			fmt.Fprintf(&b, "\n!! %s: no cycle succeeded\n", s.Subject.Title)
		}
	}
	fmt.Fprintln(&b)
	aligned := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
	writeTable(aligned, "\t| ", sums, figures(run))
	aligned.Flush()
	for _, s := range sums {
		counts := map[string]int64{}
		for _, t := range s.Trials {
			for message, n := range t.Errors {
				counts[message] += n
			}
		}
		messages := slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return int(counts[b] - counts[a]) })
		for _, message := range messages[:min(5, len(messages))] {
			fmt.Fprintf(&b, "\n%s: %s × %s\n", s.Subject.Title, whole(counts[message]), message)
		}
	}
	fmt.Fprintln(&b)
	for _, s := range run.Subjects {
		fmt.Fprintf(&b, "%s: %s\n", s.Title, s.Note)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// machine describes the machine of the measurement in one line.
func machine(run record.Run) string {
	m := run.Machine
	durable := ""
	if m.Durable {
		durable = ", written to disk before each answer"
	}
	return fmt.Sprintf("%s nodes, %s%s, %s/%s, %s, GOMAXPROCS %d, %s", m.Nodes, m.Servers, durable, m.OS, m.Arch,
		plural(m.CPUs, "CPU"), m.GOMAXPROCS, m.Go)
}

// load describes the work of the callers in one line.
func load(run record.Run) string {
	if len(run.Trials) == 0 {
		return "nothing was measured"
	}
	l := run.Trials[0].Load
	parts := []string{plural(l.Nodes, "node"), plural(l.Callers, "caller"), fmt.Sprintf("client processes: %d", l.Processes)}
	if l.Held > 0 {
		parts = append(parts, plural(l.Held, "lock")+" held under renewal")
	} else {
		parts = append(parts, "names "+l.Names)
	}
	if l.Hold > 0 {
		parts = append(parts, "each lock held for "+spanShort(float64(l.Hold)))
	}
	if l.Rate > 0 {
		parts = append(parts, fmt.Sprintf("%s cycles/s begun by schedule", whole(int64(l.Rate))))
	}
	parts = append(parts, fmt.Sprintf("TTL %s, %s of %s", spanShort(float64(l.TTL)),
		plural(run.Trials[len(run.Trials)-1].Round+1, "round"), spanShort(float64(l.Duration))))
	return strings.Join(parts, ", ")
}
