package judge

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/chaos/internal/history"
)

// A Verdict has the violations of a history, and its counts.
type Verdict struct {
	Violations []Violation

	Granted  int
	Of       map[history.Lock]int // number of granted locks, by kind
	Seen     map[string]int       // number of each outcome, in words for the report
	Failed   map[string]int       // failed acquisitions, by reason; unknown: the client was killed
	Accepted int                  // writes
	Refused  int                  // stale writes that fencing refused
	Faults   map[string]int       // by kind

	Clients map[string]bool // names that programs report
	Notice  time.Duration   // the longest time a holder worked after another client got its lock
}

// OK reports whether the history has no violation.
func (v *Verdict) OK() bool { return len(v.Violations) == 0 }

// Broken returns the number of violations of a rule.
func (v *Verdict) Broken(rule string) (n int) {
	for _, f := range v.Violations {
		if f.Rule == rule {
			n++
		}
	}
	return n
}

func (v *Verdict) count(events []history.Event, all []*history.Acquisition) {
	v.Failed, v.Faults, v.Seen = map[string]int{}, map[string]int{}, map[string]int{}
	v.Of, v.Clients = map[history.Lock]int{}, map[string]bool{}
	over := map[int]bool{} // clients of a daemon
	for _, e := range events {
		switch e.Kind {
		case history.Ready:
			v.Clients[e.Text] = true
			over[e.Who] = e.Text == history.OverHTTP
		case history.Accepted:
			v.Accepted++
		case history.Refused:
			v.Refused++
		case history.Fault:
			v.Faults[e.Name]++
		case history.Left:
			v.found(leftover, e.Name, e.At, "node %d still has the key: %s", e.Who, e.Text)
		}
	}
	for _, a := range all {
		switch {
		case a.Failed != history.Never:
			reason, _, _ := strings.Cut(a.Why, ":")
			v.Failed[reason]++
		case !a.Held():
			v.Failed["unknown"]++
		default:
			v.Granted++
			v.Of[a.Lock]++
			for what, is := range map[string]bool{"in order": a.Fair, "downgraded": a.Reading != history.Never,
				"told of their loss": a.Lost != history.Never, "over HTTP": over[a.Who]} {
				if is {
					v.Seen[what]++
				}
			}
		}
	}
}

// missing finds missing evidence, because a run without events violates nothing. In the calm at the
// end, clients must get each requested name and kind of lock, unless the run was interrupted before.
func (v *Verdict) missing(events []history.Event, all []*history.Acquisition, wanted [][]string) {
	if v.Granted == 0 {
		v.found(Evidence, "", 0, "no lock was granted")
	}
	if v.Accepted == 0 && slices.ContainsFunc(all, func(a *history.Acquisition) bool { return a.Lock.HasToken() }) {
		v.found(Evidence, "", 0, "nothing was written under a lock")
	}
	for _, group := range wanted {
		if !slices.ContainsFunc(group, func(kind string) bool { return v.Faults[kind] > 0 }) {
			v.found(Evidence, "", 0, "there was no fault of kind %s", strings.Join(group, ", "))
		}
	}
	began := slices.IndexFunc(events, func(e history.Event) bool { return e.Kind == history.Calm })
	if began < 0 {
		return
	}
	calm := events[began].At
	granted := map[string]bool{} // by name, and by kind of lock
	for _, a := range all {
		for _, about := range append([]string{string(a.Lock)}, a.Names...) {
			granted[about] = granted[about] || a.Held() && a.Granted >= calm
		}
	}
	for _, about := range slices.Sorted(maps.Keys(granted)) {
		if !granted[about] {
			v.found(Evidence, about, calm, "no client got the lock after all faults were undone")
		}
	}
}
