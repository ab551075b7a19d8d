package main

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"text/tabwriter"
	"time"
)

// conclude shows all results, explains those that were not killed, and returns
// the exit code.
func conclude(stdout, stderr io.Writer, results []result, show func(io.Writer, []result)) int {
	show(stdout, results)
	left := 0
	for _, r := range results {
		if r.verdict == killed {
			continue
		}
		left++
		fmt.Fprintf(stderr, "\n%s %s: %s\n", r.mutant.name, r.verdict, shorten(r.why))
		fmt.Fprintf(stderr, "    the guard: %s\n    without it: %s\n", r.mutant.guard, r.mutant.without)
	}
	if left > 0 {
		fmt.Fprintf(stderr, "\n%d of %d mutants were not killed: a test is missing, or has become blind, or the guard is not needed\n", left, len(results))
		return exitFailed
	}
	return 0
}

// table prints all results for people.
func table(w io.Writer, results []result) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "MUTANT\tVERDICT\tTEST\tSEED\tTIME")
	for _, r := range results {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%v\n", r.mutant.name, r.verdict, killer(r.mutant), seedText(r), r.took.Round(100*time.Millisecond))
	}
	tw.Flush()
}

// markdown prints the killed mutants as the table of docs/SAFETY.md.
func markdown(w io.Writer, results []result) {
	fmt.Fprintln(w, tableHead)
	fmt.Fprintln(w, "|---|---|---|---|")
	for _, r := range results {
		if r.verdict == killed {
			fmt.Fprintf(w, "%s %s |\n", row(r.mutant), seedText(r))
		}
	}
}

const tableHead = "| Guard | What breaks without it | Killed by | Seed |"

// row is a mutant's row of the table, but for the seed.
func row(m *mutant) string {
	cell := strings.NewReplacer("|", `\|`)
	return fmt.Sprintf("| %s | %s | `%s` |", cell.Replace(m.guard), cell.Replace(m.without), killer(m))
}

// killer is the test, with its package where that is not the root.
func killer(m *mutant) string {
	if m.pkg == "." {
		return m.test
	}
	return m.pkg + "." + m.test
}

func seedText(r result) string {
	if r.seed == "" {
		return "-"
	}
	return r.seed
}

// progress matches what a test prints of itself and of subtests that pass.
var progress = regexp.MustCompile(`(?m)^ *(===|--- PASS|--- SKIP).*\n`)

// shorten keeps the beginning of a failed test's output.
func shorten(s string) string {
	const most = 20
	lines := strings.SplitN(strings.TrimRight(progress.ReplaceAllString(s, ""), "\n"), "\n", most+1)
	if len(lines) > most {
		lines[most] = "    ..."
	}
	return strings.Join(lines, "\n")
}
