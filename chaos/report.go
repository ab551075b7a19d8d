package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/chaos/internal/judge"
)

// shown is the number of violations in the report; the history has all of them.
const shown = 5

// tell prints the report or the row of a verdict, and returns the exit code.
func (o options) tell(out io.Writer, title string, took time.Duration, v *judge.Verdict) (code int) {
	if o.table {
		row(out, title, v)
	} else {
		report(out, title, took, v)
	}
	if !v.OK() {
		return violated
	}
	return 0
}

func report(out io.Writer, title string, took time.Duration, v *judge.Verdict) {
	result := "ok"
	if !v.OK() {
		result = fmt.Sprintf("%d VIOLATIONS", len(v.Violations))
	}
	fmt.Fprintf(out, "\n%s: %s", title, result)
	if took > 0 {
		fmt.Fprintf(out, " (%v)", took.Round(100*time.Millisecond))
	}
	for _, about := range slices.Sorted(maps.Keys(v.Clients)) {
		fmt.Fprintf(out, "\n  client    %s", about)
	}
	fmt.Fprintf(out, "\n  faults    %s\n", counts(v.Faults))
	fmt.Fprintf(out, "  locks     %d granted: %s; of these %s\n", v.Granted, counts(v.Of), counts(v.Seen))
	fmt.Fprintf(out, "  no lock   %s\n", counts(v.Failed))
	fmt.Fprintf(out, "  writes    %d accepted, %d refused as stale\n", v.Accepted, v.Refused)
	fmt.Fprintf(out, "  checks    %s\n", rules(v))
	for i, f := range v.Violations {
		if i == shown {
			fmt.Fprintf(out, "  and %d more\n", len(v.Violations)-shown)
			break
		}
		fmt.Fprintf(out, "  VIOLATED  %v\n", f)
	}
}

// row prints a row of the table of chaos/clients/all.sh: the client, the scenario, granted locks,
// overlaps, the longest time that a first holder worked in an overlap, stale writes that the
// register accepted, stale writes that it refused, and keys left.
func row(out io.Writer, scenario string, v *judge.Verdict) {
	notice := "-"
	if v.Broken("overlap") > 0 {
		notice = max(time.Millisecond, v.Notice.Round(time.Millisecond)).String()
	}
	fmt.Fprintf(out, "| %s | %s | %d | %d | %s | %d | %d | %d |\n",
		strings.Join(slices.Sorted(maps.Keys(v.Clients)), "; "), scenario, v.Granted, v.Broken("overlap"), notice,
		v.Broken("register"), v.Refused, v.Broken("leftover"))
}

func rules(v *judge.Verdict) string {
	var all []string
	for _, rule := range judge.Rules {
		result := "ok"
		if n := v.Broken(rule); n > 0 {
			result = fmt.Sprint(n)
		}
		all = append(all, rule+" "+result)
	}
	return strings.Join(all, ", ")
}

func counts[K ~string](of map[K]int) string {
	if len(of) == 0 {
		return "none"
	}
	var all []string
	for _, what := range slices.Sorted(maps.Keys(of)) {
		all = append(all, fmt.Sprintf("%d %s", of[what], what))
	}
	return strings.Join(all, ", ")
}
