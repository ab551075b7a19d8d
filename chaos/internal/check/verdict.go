package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/chaos/internal/history"
)

// A Verdict is what was found, and what it rests on.
type Verdict struct {
	Violations []Violation

	Granted   int
	Lost      int            // losses that holders were told of
	Expired   int            // of them, those at the deadline and not before
	Late      time.Duration  // how long after it at most, which counts the client's own pauses
	Failed    map[string]int // acquisitions in vain, by reason
	Unknown   int            // acquisitions of which nobody knows
	Accepted  int            // writes
	Refused   int            // stale writes, that fencing kept out
	Faults    map[string]int // by kind
	Windows   int            // that porcupine looked at
	Undecided int            // and could not decide in time

	Idle     time.Duration // the longest time for which nobody had a lock that somebody asked for
	IdleName string
	IdleFrom time.Duration // since the beginning of the history
}

func (v *Verdict) add(found ...Violation) {
	slices.SortFunc(found, func(a, b Violation) int { return cmp.Compare(a.At, b.At) })
	v.Violations = append(v.Violations, found...)
}

// OK is true if nothing is wrong.
func (v *Verdict) OK() bool { return len(v.Violations) == 0 }

// Broken is how many violations of a rule there are.
func (v *Verdict) Broken(rule string) (n int) {
	for _, f := range v.Violations {
		if f.Rule == rule {
			n++
		}
	}
	return n
}

func (v *Verdict) count(events []history.Event, all []*history.Acquisition) {
	v.Failed, v.Faults = map[string]int{}, map[string]int{}
	for _, e := range events {
		switch e.Kind {
		case history.Accepted:
			v.Accepted++
		case history.Refused:
			v.Refused++
		case history.Fault:
			v.Faults[e.Name]++
		}
	}
	for _, a := range all {
		switch {
		case a.Failed != history.Never:
			reason, _, _ := strings.Cut(a.Why, ":")
			v.Failed[reason]++
		case !a.Held():
			v.Unknown++
		default:
			v.Granted++
		}
		if a.Lost != history.Never {
			v.Lost++
			if a.Lost >= a.Until {
				v.Expired++
				v.Late = max(v.Late, time.Duration(a.Lost-max(a.Until, a.Granted)))
			}
		}
	}
	v.idle(events, all)
}

// evidence finds out what the run has not shown: a run in which nothing happens
// violates nothing.
func (v *Verdict) evidence(events []history.Event, wanted [][]string) (found []Violation) {
	missing := func(format string, args ...any) {
		found = append(found, Violation{Rule: Evidence, Text: fmt.Sprintf(format, args...)})
	}
	if v.Granted == 0 {
		missing("no lock was granted")
	}
	if v.Accepted == 0 {
		missing("nothing was written under a lock")
	}
	for _, group := range wanted {
		if !slices.ContainsFunc(group, func(kind string) bool { return v.Faults[kind] > 0 }) {
			missing("there was no fault of kind %s", strings.Join(group, ", "))
		}
	}
	return append(found, progress(events)...)
}

// progress finds the names that nobody got in the calm at the end. It says
// nothing of a run that was broken off before.
func progress(events []history.Event) (found []Violation) {
	began := slices.IndexFunc(events, func(e history.Event) bool { return e.Kind == history.Calm })
	if began < 0 {
		return nil
	}
	calm := events[began].At
	served := map[string]bool{}
	for _, e := range events {
		switch e.Kind {
		case history.Asked, history.Granted:
			served[e.Name] = served[e.Name] || e.Kind == history.Granted && e.At >= calm
		}
	}
	for _, name := range slices.Sorted(maps.Keys(served)) {
		if !served[name] {
			found = append(found, Violation{Evidence, name, calm, "nobody got the lock after all faults were healed"})
		}
	}
	return found
}
