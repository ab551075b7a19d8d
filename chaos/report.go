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

// shown is how many violations are printed; the history has all of them.
const shown = 5

func report(out io.Writer, title string, took time.Duration, v *judge.Verdict) {
	result := "ok"
	if !v.OK() {
		result = fmt.Sprintf("%d VIOLATIONS", len(v.Violations))
	}
	fmt.Fprintf(out, "\n%s: %s", title, result)
	if took > 0 {
		fmt.Fprintf(out, " (%v)", took.Round(100*time.Millisecond))
	}
	fmt.Fprintf(out, "\n  faults    %s\n", counts(v.Faults))
	fmt.Fprintf(out, "  locks     %d granted, %d losses told", v.Granted, v.Lost)
	if v.Expired > 0 {
		fmt.Fprintf(out, " (%d at the deadline, %v after it at most)", v.Expired,
			v.Late.Round(time.Millisecond))
	}
	fmt.Fprintf(out, "; in vain: %s; unknown: %d\n", counts(v.Failed), v.Unknown)
	fmt.Fprintf(out, "  writes    %d accepted, %d refused as stale\n", v.Accepted, v.Refused)
	if v.IdleName != "" {
		fmt.Fprintf(out, "  service   none for %v at most, on %q after %v\n",
			v.Idle.Round(time.Millisecond), v.IdleName, v.IdleFrom.Round(time.Millisecond))
	}
	fmt.Fprintf(out, "  checks    %s; porcupine: %d windows, %d undecided\n", rules(v), v.Windows,
		v.Undecided)
	for i, f := range v.Violations {
		if i == shown {
			fmt.Fprintf(out, "  and %d more\n", len(v.Violations)-shown)
			break
		}
		fmt.Fprintf(out, "  VIOLATED  %v\n", f)
	}
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

func counts(of map[string]int) string {
	if len(of) == 0 {
		return "none"
	}
	var all []string
	for _, what := range slices.Sorted(maps.Keys(of)) {
		all = append(all, fmt.Sprintf("%d %s", of[what], what))
	}
	return strings.Join(all, ", ")
}
