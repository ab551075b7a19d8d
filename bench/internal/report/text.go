// Package report shows a record.Run to people: as text for a terminal, as a table in Markdown, and
// as SVG pictures that need nothing else.
//
// table.go has the one table of a run, which Text and Markdown share. pictures.go has the pictures:
// which library is faster, how long its callers wait, how both change over a sweep, and how long
// there is no lock while servers are broken. All have a lane for each subject or point, above an
// axis that the lanes share. They stand on a thin layer of scales (scale.go) and escaped SVG
// (canvas.go). A chart library was rejected: with one, shaded faults on a time axis, and colours
// that follow the reader's choice of light or dark, took more code than these scales.
//
// The rules of the pictures: each says by itself what was measured, on what, and what is better; bars
// start at zero; an axis that is logarithmic says so; figures are medians over the rounds, with the
// range of the rounds; and a subject has the same colour everywhere. Problems that make figures
// worthless (overlapping holders, nodes that only pretend to be servers) stand at
// the top of the text.
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
	v := look(run)
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s: %s\n%s\n%s\n", run.Scenario, run.About, v.load(), v.machine())
	if run.Machine.Nodes == "embedded" {
		fmt.Fprintln(&b, "\nEMBEDDED NODES: THESE FIGURES SAY NOTHING OF SPEED")
	}
	for _, problem := range v.problems() {
		fmt.Fprintf(&b, "\n!! %s\n", problem)
	}
	for _, t := range []table{v.table(), v.outcomes()} {
		if len(t.rows) > 0 {
			fmt.Fprintln(&b)
			aligned := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
			t.write(aligned, "\t| ")
			aligned.Flush() // into memory, which cannot fail
		}
	}
	v.errors(&b)
	fmt.Fprintln(&b)
	for _, s := range run.Subjects {
		fmt.Fprintf(&b, "%s: %s\n", s.Title, s.Note)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// machine describes where the figures were measured, in a line.
func (v view) machine() string {
	m := v.run.Machine
	durable := ""
	if m.Durable {
		durable = ", written to disk before each answer"
	}
	return fmt.Sprintf("%s nodes, %s%s, %s/%s, %s, GOMAXPROCS %d, %s", m.Nodes, m.Servers, durable, m.OS, m.Arch,
		plural(m.CPUs, "CPU"), m.GOMAXPROCS, m.Go)
}

// load describes the work of the callers, in a line. What a sweep varies is not in it.
func (v view) load() string {
	if len(v.run.Trials) == 0 {
		return "nothing was measured"
	}
	l := v.run.Trials[0].Load
	parts := []string{plural(l.Nodes, "node"), plural(l.Callers, "caller"), fmt.Sprintf("client processes: %d", l.Processes)}
	if v.sweep() {
		parts = nil
	}
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
		plural(len(v.sums[0].Trials), "round"), spanShort(float64(l.Duration))))
	return strings.Join(parts, ", ")
}

// errors are each subject's most frequent ones.
func (v view) errors(w io.Writer) {
	for _, s := range v.run.Subjects {
		counts := map[string]int64{}
		for _, t := range v.run.Trials {
			if t.Subject == s.Name {
				for message, n := range t.Errors {
					counts[message] += n
				}
			}
		}
		messages := slices.Sorted(maps.Keys(counts))
		slices.SortStableFunc(messages, func(a, b string) int { return int(counts[b] - counts[a]) })
		for _, message := range messages[:min(5, len(messages))] {
			fmt.Fprintf(w, "\n%s: %s × %s\n", s.Title, whole(counts[message]), message)
		}
	}
}
