// Package judge finds what is wrong in a history. Each rule looks for violations in what clients,
// register and nemesis have written down:
//
//	overlap    no writer holds a key beside any other client
//	permits    no more clients hold a name than there are permits
//	fencing    tokens are unique, and rise from each lock to those asked for after it
//	mutex      the history of a key is one of a readers-writer mutex with rising tokens (porcupine)
//	register   what a client wrote never comes after what a later holder wrote
//	leftover   no server keeps a lock that no client holds
//	evidence   locks were granted and faults happened; else nothing was shown
//
// A key is a name, or one slot of a name with permits. A lock of several names is that of a writer
// on each, so two that share a name overlap on it. A reader that was a writer counts as a reader
// from its Downgrade on.
//
// The rules overlap on purpose: overlap, permits and fencing, which internal/check finds, say what
// is wrong in terms of the promises. permits knows no slots. mutex finds what they cannot see, such
// as tokens that rise with time but not in the order in which the locks were held.
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
	permits  = "permits"
	fencing  = "fencing"
	mutex    = "mutex"
	register = "register"
	leftover = "leftover"
	Evidence = "evidence"
)

// Rules are all of them, as a Violation names them.
var Rules = []string{overlap, permits, fencing, mutex, register, leftover, Evidence}

// A Violation is one thing that must not happen, and did.
type Violation struct {
	Rule string
	Name string // of the lock, or its key
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
	locks := byKey(all)
	v := &Verdict{}
	v.count(events, all)
	v.add(v.overlaps(locks)...)
	v.add(v.tooMany(all)...)
	v.add(wrongTokens(locks)...)
	search := searchMutex(locks, searchLimit)
	v.Windows, v.Undecided = search.windows, search.undecided
	v.add(search.violations...)
	v.add(lateWrites(events, all)...)
	v.add(keysLeft(events)...)
	v.add(v.missing(events, all, wanted)...)
	return v, nil
}

// byKey groups what was granted by key. Each key keeps the order of all.
func byKey(all []*history.Acquisition) map[string][]*history.Acquisition {
	locks := map[string][]*history.Acquisition{}
	for _, a := range all {
		if a.Held() {
			for _, key := range a.Keys() {
				locks[key] = append(locks[key], a)
			}
		}
	}
	return locks
}

// A part of an acquisition is the time in which its client was a writer, or that in which it was a
// reader. It goes from when Acquire had returned to the holder's own deadline, the loss that it
// heard of, or its release. A client that is paused holds nothing after its deadline.
type part struct {
	*history.Acquisition
	relied check.Hold
}

func (p part) hold() check.Hold { return p.relied }

func partsOf(locks []*history.Acquisition) (all []part) {
	for _, a := range locks {
		whole := check.Hold{From: a.Granted, Until: a.End(), Shared: a.Lock == history.Shared}
		if a.Reading < a.End() {
			writer, reader := whole, whole
			writer.Until, reader.From, reader.Shared = a.Reading, a.Reading, true
			all = append(all, part{a, writer}, part{a, reader})
			continue
		}
		all = append(all, part{a, whole})
	}
	return all
}

// String names the client, what it has, and its token.
func (p part) String() string {
	what := string(p.Lock)
	if p.relied.Shared && p.Lock != history.Shared {
		what += ", downgraded"
	}
	if p.Token != 0 {
		what += fmt.Sprintf(", token %d", p.Token)
	}
	return fmt.Sprintf("%v (%s)", p.Acquisition, what)
}

// overlaps finds keys that a writer held beside another client.
func (v *Verdict) overlaps(locks map[string][]*history.Acquisition) (found []Violation) {
	for key, held := range locks {
		for _, o := range check.Overlaps(partsOf(held), part.hold) {
			v.Notice = max(v.Notice, time.Duration(o.By))
			found = append(found, Violation{overlap, key, o.Later.relied.From, fmt.Sprintf(
				"%v was granted the lock %s before %v had to stop, and held it %s with it",
				o.Later, ms(int64(o.By)), o.Last, ms(int64(o.Both)))})
		}
	}
	return found
}

// tooMany finds names that more clients held than there are permits, of which the highest number
// counts that any of them believed in. It counts the clients that made it as many as may be.
func (v *Verdict) tooMany(all []*history.Acquisition) (found []Violation) {
	most, held := map[string]int{}, map[string][]*history.Acquisition{}
	for _, a := range all {
		for _, name := range a.Names {
			most[name] = max(most[name], a.Most)
			if a.Held() {
				held[name] = append(held[name], a)
			}
		}
	}
	for name, k := range most {
		if k < 2 {
			continue
		}
		parts := partsOf(held[name])
		for _, o := range check.TooMany(parts, part.hold, k) {
			found = append(found, Violation{permits, name, o.Later.relied.From, fmt.Sprintf(
				"%v was granted the lock beside %d others, %v among them; %d are allowed", o.Later, o.Others, o.Last, k)})
		}
		for range check.TooMany(parts, part.hold, k-1) {
			v.Seen["with all permits taken"]++
		}
		for _, p := range parts {
			if p.Permit >= max(1, p.Most) {
				found = append(found, Violation{permits, name, p.relied.From, fmt.Sprintf("%v was granted permit %d of %d", p, p.Permit, p.Most)})
			}
		}
	}
	return found
}

// wrongTokens finds tokens that two locks of a key share, and tokens that are not above those of
// all locks that were granted before this one was asked for.
func wrongTokens(locks map[string][]*history.Acquisition) (found []Violation) {
	for key, granted := range locks {
		for _, f := range check.Tokens(fenced(granted), grant) {
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
			found = append(found, Violation{fencing, key, a.Granted, text})
		}
	}
	return found
}

func fenced(locks []*history.Acquisition) (some []*history.Acquisition) {
	for _, a := range locks {
		if a.Lock.HasToken() {
			some = append(some, a)
		}
	}
	return some
}

func grant(a *history.Acquisition) check.Grant {
	return check.Grant{Token: a.Token, Asked: a.Asked, Granted: a.Granted}
}

func ms(d int64) string { return time.Duration(d).Round(10 * time.Microsecond).String() }
