package report

import (
	"fmt"
	"strings"

	"github.com/redquorum/redquorum/bench/internal/record"
)

const embeddedWarning = "embedded nodes: these figures say nothing of speed"

// problems are what a reader must know before any figure: a lock that two had at
// once, locks left behind, a subject that did nothing at all.
func (v view) problems() []string {
	var all []string
	for _, s := range v.sums {
		say := func(format string, args ...any) {
			where := title(s.Subject)
			if v.sweep() && s.Point != "" {
				where += ", " + s.Point
			}
			all = append(all, where+": "+fmt.Sprintf(format, args...))
		}
		if s.Violations > 0 {
			say("%s", strings.TrimSuffix(fmt.Sprintf("%s of holders among %s holdings checked; %s",
				plural(s.Violations, "overlap"), whole(s.Checked), v.violation(s)), "; "))
		}
		if s.KeysLeft > 0 {
			say("%s left on the nodes after all clients had ended", plural(s.KeysLeft, "lock key"))
		}
		if s.Held == nil && s.PerSecond.Max == 0 {
			say("not one cycle succeeded")
		}
	}
	return all
}

// violation is the first overlap that was described.
func (v view) violation(s record.Summary) string {
	for _, t := range v.run.Trials {
		if t.Subject == s.Subject.Name && t.Load.Point == s.Point && t.Violation != "" {
			return t.Violation
		}
	}
	return ""
}
