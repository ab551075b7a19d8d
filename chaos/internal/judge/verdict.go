package judge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/chaos/internal/history"
)

// A Verdict is the violations of a history, and the counts that they rest on.
type Verdict struct {
	Violations []Violation

	Granted   int
	Lost      int            // losses that holders heard of
	Expired   int            // of them, those at the deadline and not before
	Late      time.Duration  // how long after it at most, which counts the client's own pauses
	Failed    map[string]int // acquisitions in vain, by reason
	Unknown   int            // acquisitions whose outcome is not known: the client was killed
	Accepted  int            // writes
	Refused   int            // stale writes, that fencing kept out
	Faults    map[string]int // by kind
	Windows   int            // that porcupine looked at
	Undecided int            // and could not decide in time

	Idle     time.Duration // the longest time for which a lock that was asked for had no holder
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

// missing finds what the run has not shown: a run in which nothing happens violates nothing.
func (v *Verdict) missing(events []history.Event, wanted [][]string) (found []Violation) {
	add := func(format string, args ...any) {
		found = append(found, Violation{Rule: Evidence, Text: fmt.Sprintf(format, args...)})
	}
	if v.Granted == 0 {
		add("no lock was granted")
	}
	if v.Accepted == 0 {
		add("nothing was written under a lock")
	}
	for _, group := range wanted {
		if !slices.ContainsFunc(group, func(kind string) bool { return v.Faults[kind] > 0 }) {
			add("there was no fault of kind %s", strings.Join(group, ", "))
		}
	}
	return append(found, neverGranted(events)...)
}

// neverGranted finds the names that were asked for and not granted in the calm at the end. It finds
// none in a run that was broken off before.
func neverGranted(events []history.Event) (found []Violation) {
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
			found = append(found, Violation{Evidence, name, calm,
				"nobody got the lock after all faults were healed"})
		}
	}
	return found
}

// idle looks for the longest time between two locks of a name, counted from when a client first
// asked.
func (v *Verdict) idle(events []history.Event, all []*history.Acquisition) {
	asks := map[string][]*history.Acquisition{}
	for _, a := range all {
		if answered(a) != history.Never { // else its client was killed, at an unknown time
			asks[a.Name] = append(asks[a.Name], a)
		}
	}
	for name, asked := range asks {
		slices.SortStableFunc(asked, func(a, b *history.Acquisition) int {
			return cmp.Compare(answered(a), answered(b))
		})
		// first[i] is when the first of those was asked that were answered as asked[i] or later.
		first := make([]int64, len(asked))
		earliest := history.Never
		for i := len(asked) - 1; i >= 0; i-- {
			earliest = min(earliest, asked[i].Asked)
			first[i] = earliest
		}
		end := history.Never // of the locks so far; none yet
		for i, a := range asked {
			if !a.Held() {
				continue
			}
			if end < a.Granted {
				waiting, _ := slices.BinarySearchFunc(asked[:i], end+1,
					func(a *history.Acquisition, at int64) int {
						return cmp.Compare(answered(a), at)
					})
				from := max(end, first[waiting])
				if gap := time.Duration(a.Granted - from); gap > v.Idle {
					v.Idle, v.IdleName, v.IdleFrom = gap, name, time.Duration(from-events[0].At)
				}
			}
			if end == history.Never || a.End() > end {
				end = a.End()
			}
		}
	}
}

func answered(a *history.Acquisition) int64 { return min(a.Granted, a.Failed) }
