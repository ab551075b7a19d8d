// Package judge finds what is wrong in a history. Each rule looks for violations in what clients,
// register and nemesis have written down:
//
//	overlap    no two clients hold a name at the same time
//	fencing    tokens are unique, and rise from each lock to those asked for after it
//	mutex      the history is one of a mutex that hands out rising tokens (porcupine)
//	register   what a client wrote never comes after what a later holder wrote
//	leftover   no server keeps a lock that no client holds
//	evidence   locks were granted and faults happened; else nothing was shown
//
// The rules overlap on purpose: overlap and fencing, which internal/check finds, say what is wrong
// in terms of the promises, and mutex finds what they cannot see, such as tokens that rise with
// time but not in the order in which the locks were held.
//
// No rule raises a false alarm: where a history leaves open what happened, a rule assumes the best.
package judge

import (
	"fmt"
	"time"

	"github.com/redquorum/redquorum/chaos/internal/history"
	"github.com/redquorum/redquorum/internal/check"
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

// searchLimit bounds the search of the rule mutex. What it has not decided by then is reported as
// undecided, not as violated.
const searchLimit = 30 * time.Second

// History applies all rules. wanted are groups of kinds of faults; a run that has seen none of a
// group has shown nothing.
func History(events []history.Event, wanted [][]string) (*Verdict, error) {
	all, err := history.Acquisitions(events)
	if err != nil {
		return nil, err
	}
	locks := byName(all)
	v := &Verdict{}
	v.count(events, all)
	v.add(overlaps(locks)...)
	v.add(wrongTokens(locks)...)
	search := searchMutex(locks, searchLimit)
	v.Windows, v.Undecided = search.windows, search.undecided
	v.add(search.violations...)
	v.add(lateWrites(events, all)...)
	v.add(keysLeft(events)...)
	v.add(v.missing(events, wanted)...)
	return v, nil
}

// byName groups what was granted by lock. Each lock keeps the order of all.
func byName(all []*history.Acquisition) map[string][]*history.Acquisition {
	locks := map[string][]*history.Acquisition{}
	for _, a := range all {
		if a.Held() {
			locks[a.Name] = append(locks[a.Name], a)
		}
	}
	return locks
}

// overlaps finds locks that two clients held at once, from when Acquire had returned to the
// holder's own deadline, the loss that it heard of, or its release. A client that is paused holds
// nothing after its deadline.
func overlaps(locks map[string][]*history.Acquisition) (found []Violation) {
	for name, held := range locks {
		for _, o := range check.Overlaps(held, hold) {
			a, last := o.Later, o.Last
			found = append(found, Violation{overlap, name, a.Granted, fmt.Sprintf(
				"%v (token %d) was granted the lock %s before %v (token %d) had to stop, and held it %s with it",
				a, a.Token, ms(int64(o.By)), last, last.Token, ms(int64(o.Both)))})
		}
	}
	return found
}

func hold(a *history.Acquisition) check.Hold { return check.Hold{From: a.Granted, Until: a.End()} }

// wrongTokens finds tokens that two locks of a name share, and tokens that are not above those of
// all locks that were granted before this one was asked for.
func wrongTokens(locks map[string][]*history.Acquisition) (found []Violation) {
	for name, granted := range locks {
		for _, f := range check.Tokens(granted, grant) {
			a, b, text := f.Later, f.Earlier, ""
			switch f.Fault {
			case check.OutOfRange:
				text = fmt.Sprintf("%v has the token %d", a, a.Token)
			case check.Repeated:
				text = fmt.Sprintf("%v and %v both have the token %d", b, a, a.Token)
			case check.Fallen:
				text = fmt.Sprintf("%v was asked for %s after %v had been granted, and has the token %d, which is %d below",
					a, ms(int64(f.After)), b, a.Token, b.Token-a.Token)
			}
			found = append(found, Violation{fencing, name, a.Granted, text})
		}
	}
	return found
}

func grant(a *history.Acquisition) check.Grant {
	return check.Grant{Token: a.Token, Asked: a.Asked, Granted: a.Granted}
}

func ms(d int64) string { return time.Duration(d).Round(10 * time.Microsecond).String() }
