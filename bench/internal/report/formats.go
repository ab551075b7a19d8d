package report

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// format is the version of the JSON form. It changes when a field changes its meaning or goes away;
// new fields do not change it.
const format = 1

type document struct {
	Format int `json:"format"`
	record.Run
}

// JSON writes all of the run that a report can be made of again.
func JSON(w io.Writer, run record.Run) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(document{format, clean(run)})
}

// ReadJSON reads what JSON wrote.
func ReadJSON(r io.Reader) (record.Run, error) {
	var d document
	if err := json.NewDecoder(r).Decode(&d); err != nil {
		return record.Run{}, fmt.Errorf("this is no report of the benchmark in JSON: %w", err)
	}
	if d.Format != format {
		return record.Run{}, fmt.Errorf("the report's format is %d, and this program reads %d: use the program that wrote it", d.Format, format)
	}
	return d.Run, nil
}

// Benchstat writes each trial as a line of a Go benchmark, so that benchstat can compare runs, and
// subjects within a run (benchstat -col /subject). A trial without a cycle has no time per cycle
// and so is a comment.
// https://go.dev/design/14313-benchmark-format
func Benchstat(w io.Writer, run record.Run) error {
	b := bufio.NewWriter(w)
	m := run.Machine
	fmt.Fprintf(b, "goos: %s\ngoarch: %s\npkg: github.com/redquorum/redquorum/bench\n", m.OS, m.Arch)
	fmt.Fprintf(b, "nodes: %s\n", m.Nodes)
	if m.Servers != "" {
		fmt.Fprintf(b, "servers: %s\n", m.Servers)
	}
	fmt.Fprintln(b, "Unit cycles/s better=higher")
	for _, t := range run.Trials {
		name := benchmark(run, t)
		if t.Cycles == 0 {
			fmt.Fprintf(b, "# %s: not one cycle\n", name)
			continue
		}
		q := t.Acquire.Quantiles()
		fmt.Fprintf(b, "%s\t%d\t%.1f ns/op\t%d p50-ns\t%d p90-ns\t%d p99-ns\t%d p99.9-ns\t%d max-ns\t%d cpu-ns/op",
			name, t.Cycles, float64(t.Elapsed)/float64(t.Cycles), q.P50, q.P90, q.P99, q.P999, q.Max, t.CPUPerCycle())
		if t.Allocs > 0 { // else the client does not count
			fmt.Fprintf(b, "\t%.2f allocs/op", t.AllocsPerCycle())
		}
		fmt.Fprintf(b, "\t%.1f cycles/s\t%.4f failed-%%\n", t.PerSecond(), 100*t.FailedShare())
	}
	return b.Flush()
}

// benchmark is the trial's name: BenchmarkSteady/subject=redsync/callers=64-2.
func benchmark(run record.Run, t record.Trial) string {
	var b strings.Builder
	b.WriteString("Benchmark")
	upper := true
	for _, r := range run.Scenario {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			upper = true
			continue
		}
		if upper {
			r = unicode.ToUpper(r)
		}
		b.WriteRune(r)
		upper = false
	}
	fmt.Fprintf(&b, "/subject=%s", word(t.Subject))
	callers := fmt.Sprintf("callers=%d", t.Load.Callers)
	b.WriteString("/" + callers)
	if t.Load.Point != "" && t.Load.Point != callers {
		point := word(t.Load.Point)
		if !strings.Contains(point, "=") {
			point = "point=" + point
		}
		b.WriteString("/" + point)
	}
	// Go leaves -1 out, and benchstat takes any other number for the processors.
	if p := run.Machine.GOMAXPROCS; p > 1 {
		fmt.Fprintf(&b, "-%d", p)
	}
	return b.String()
}

// word keeps a value from being read as two, or as the end of the name.
func word(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || r == '/' || !unicode.IsPrint(r) {
			return '_'
		}
		return r
	}, s)
}
