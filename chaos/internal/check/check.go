package check

import (
	"fmt"
	"time"

	"github.com/redquorum/redquorum/chaos/internal/history"
)

// The rules.
const (
	overlap  = "overlap"
	fencing  = "fencing"
	mutex    = "mutex"
	register = "register"
	leftover = "leftover"
	Evidence = "evidence"
)

// Rules are all of them, as a Violation names them.
var Rules = []string{overlap, fencing, mutex, register, leftover, Evidence}

// A Violation is one thing that must not happen, and did.
type Violation struct {
	Rule string
	Name string // of the lock
	At   int64  // when, by history.Now
	Text string
}

func (v Violation) String() string {
	if v.Name == "" {
		return fmt.Sprintf("%s: %s", v.Rule, v.Text)
	}
	return fmt.Sprintf("%s: %q: %s", v.Rule, v.Name, v.Text)
}

// patience bounds the search of the rule mutex. What it has not decided by then
// is reported as undecided, not as violated.
const patience = 30 * time.Second

// Judge applies all rules. wanted are groups of kinds of faults; a run that has
// seen none of a group has shown nothing.
func Judge(events []history.Event, wanted [][]string) (*Verdict, error) {
	all, err := history.Acquisitions(events)
	if err != nil {
		return nil, err
	}
	locks := byName(all)
	v := &Verdict{}
	v.count(events, all)
	v.add(Overlap(locks)...)
	v.add(Fencing(locks)...)
	search := Mutex(locks, patience)
	v.Windows, v.Undecided = search.Windows, search.Undecided
	v.add(search.Violations...)
	v.add(Register(events, all)...)
	v.add(Leftover(events)...)
	v.add(v.evidence(events, wanted)...)
	return v, nil
}

// byName sorts what was granted by lock. Each lock keeps the order of all.
func byName(all []*history.Acquisition) map[string][]*history.Acquisition {
	locks := map[string][]*history.Acquisition{}
	for _, a := range all {
		if a.Held() {
			locks[a.Name] = append(locks[a.Name], a)
		}
	}
	return locks
}

func ms(d int64) string { return time.Duration(d).Round(10 * time.Microsecond).String() }
