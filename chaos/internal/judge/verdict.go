package judge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/chaos/internal/history"
	"github.com/redquorum/redquorum/internal/check"
)

// A Verdict is the violations of a history, and the counts that they rest on.
type Verdict struct {
	Violations []Violation

	Granted   int
	Of        map[history.Lock]int // granted, by kind of lock
	Seen      map[string]int       // what became of them, in words for the report
	Failed    map[string]int       // acquisitions in vain, by reason; unknown: the client was killed
	Accepted  int                  // writes
	Refused   int                  // stale writes, that fencing kept out
	Faults    map[string]int       // by kind
	Windows   int                  // that porcupine looked at
	Undecided int                  // and could not decide in time

	Clients map[string]bool // what programs say they are
	Notice  time.Duration   // the longest that a holder worked on after another was granted its lock
	Outage  Outage          // the longest
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
			v.see("in order", a.Fair)
			v.see("downgraded", a.Reading != history.Never)
			v.see("told of their loss", a.Lost != history.Never)
			v.see("over HTTP", over[a.Who])
		}
	}
	v.countTogether(all)
	v.Outage = longestOutage(events, all)
}

func (v *Verdict) see(what string, is bool) {
	if is {
		v.Seen[what]++
	}
}

// countTogether counts the readers that came while another had the lock.
func (v *Verdict) countTogether(all []*history.Acquisition) {
	for _, held := range byKey(all) {
		readers := slices.DeleteFunc(partsOf(held), func(p part) bool { return !p.relied.Shared })
		for range check.Overlaps(readers, func(p part) check.Hold {
			return check.Hold{From: p.relied.From, Until: p.relied.Until}
		}) {
			v.Seen["readers beside others"]++
		}
	}
}

// missing finds what the run has not shown: a run in which nothing happens violates nothing.
func (v *Verdict) missing(events []history.Event, all []*history.Acquisition, wanted [][]string) (found []Violation) {
	add := func(format string, args ...any) {
		found = append(found, Violation{Rule: Evidence, Text: fmt.Sprintf(format, args...)})
	}
	if v.Granted == 0 {
		add("no lock was granted")
	}
	if v.Accepted == 0 && slices.ContainsFunc(all, func(a *history.Acquisition) bool { return a.Lock.HasToken() }) {
		add("nothing was written under a lock")
	}
	for _, group := range wanted {
		if !slices.ContainsFunc(group, func(kind string) bool { return v.Faults[kind] > 0 }) {
			add("there was no fault of kind %s", strings.Join(group, ", "))
		}
	}
	return append(found, neverGranted(events, all)...)
}

// neverGranted finds the names and the kinds of locks that were asked for, and not granted in the
// calm at the end. It finds none in a run that was broken off before.
func neverGranted(events []history.Event, all []*history.Acquisition) (found []Violation) {
	began := slices.IndexFunc(events, func(e history.Event) bool { return e.Kind == history.Calm })
	if began < 0 {
		return nil
	}
	calm := events[began].At
	names, kinds := map[string]bool{}, map[string]bool{} // whether they were granted
	for _, a := range all {
		granted := a.Held() && a.Granted >= calm
		kinds[string(a.Lock)] = kinds[string(a.Lock)] || granted
		for _, name := range a.Names {
			names[name] = names[name] || granted
		}
	}
	add := func(granted map[string]bool, text string) {
		for _, about := range slices.Sorted(maps.Keys(granted)) {
			if !granted[about] {
				found = append(found, Violation{Evidence, about, calm, text})
			}
		}
	}
	add(names, "nobody got the lock after all faults were healed")
	add(kinds, "nobody got such a lock after all faults were healed")
	return found
}
