package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// A view is a run as all reports show it.
type view struct {
	run  record.Run
	sums []record.Summary
}

func look(run record.Run) view { return view{run, run.Summaries()} }

// colour is the class of all that is the subject's. It follows from its place in the run, and does not
// depend on which subjects one picture shows. Beyond eight subjects colours come again.
func (v view) colour(name string) string {
	rank := slices.IndexFunc(v.run.Subjects, func(s record.Subject) bool { return s.Name == name })
	return fmt.Sprintf("c%d", rank%8)
}

// sweep says that there is more than one point to compare.
func (v view) sweep() bool { return len(v.run.Points()) > 1 }

// cycling are the summaries of subjects that ran cycles rather than held locks.
func (v view) cycling() []record.Summary {
	return slices.DeleteFunc(slices.Clone(v.sums), func(s record.Summary) bool { return s.Trials[0].Held != nil })
}

// rounds says what the figures are.
func rounds(sums []record.Summary) string {
	if n := len(sums[0].Trials); n > 1 {
		return "Medians of " + plural(n, "round") + "; grey: their range."
	}
	return "One round."
}

func violations(t record.Trial) int64 { return t.Violations }
func checked(t record.Trial) int64    { return t.Checked }
func cycles(t record.Trial) int64     { return t.Cycles }

// problems come before all figures: a lock that two had at once, a subject that did nothing at all.
func (v view) problems() []string {
	var all []string
	for _, s := range v.sums {
		say := func(format string, args ...any) {
			where := strings.TrimSuffix(s.Subject.Title+", "+s.Point, ", ")
			all = append(all, where+": "+fmt.Sprintf(format, args...))
		}
		if n := s.Sum(violations); n > 0 {
			first := slices.IndexFunc(s.Trials, func(t record.Trial) bool { return t.Violations > 0 })
			say("%s of holders among %s holdings checked; %s", plural(n, "overlap"), whole(s.Sum(checked)), s.Trials[first].Violation)
		}
		if s.Trials[0].Held == nil && s.Sum(cycles) == 0 {
			say("not one cycle succeeded")
		}
	}
	return all
}
