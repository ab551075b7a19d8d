// Package judge finds violations in a history. Each rule checks the events of clients, register and
// nemesis:
//
//	overlap    no writer holds a key beside any other client, and no key is a permit beyond the last
//	fencing    tokens are unique, and rise in the order in which the locks were held
//	register   what a client wrote never comes after what a later holder wrote
//	leftover   no server keeps a lock that no client holds
//	evidence   locks were granted and faults happened; else nothing was shown
//
// A key is a name, or one slot of a name with permits. A lock of several names counts as a writer on
// each of them, so two sets with a common name overlap on it. A writer counts as a reader after its
// Downgrade.
//
// No rule raises a false alarm: if a history leaves the events open, a rule assumes the best case.
package judge

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/redquorum/redquorum/chaos/internal/history"
	"github.com/redquorum/redquorum/internal/evidence/check"
)

// The rules.
const (
	overlap  = "overlap"
	fencing  = "fencing"
	register = "register"
	leftover = "leftover"
	Evidence = "evidence"
)

// Rules are the names of all rules, as in a Violation.
var Rules = []string{overlap, fencing, register, leftover, Evidence}

// A Violation is one broken rule.
type Violation struct {
	Rule string
	Name string // name of the lock, or its key
	At   int64  // when, by history.Now
	Text string
}

func (v Violation) String() string {
	if v.Name == "" {
		return fmt.Sprintf("%s: %s", v.Rule, v.Text)
	}
	return fmt.Sprintf("%s: %q: %s", v.Rule, v.Name, v.Text)
}

// History applies all rules. wanted has groups of kinds of faults: a run needs at least one fault of
// each group to prove anything.
func History(events []history.Event, wanted [][]string) (*Verdict, error) {
	all, err := history.Acquisitions(events)
	if err != nil {
		return nil, err
	}
	locks := byKey(all)
	v := &Verdict{}
	v.count(events, all)
	v.overlaps(locks)
	v.wrongTokens(locks)
	v.lateWrites(events, all)
	v.missing(events, all, wanted)
	slices.SortStableFunc(v.Violations, func(a, b Violation) int {
		return cmp.Or(slices.Index(Rules, a.Rule)-slices.Index(Rules, b.Rule), cmp.Compare(a.At, b.At))
	})
	return v, nil
}

// found adds a violation.
func (v *Verdict) found(rule, name string, at int64, format string, args ...any) {
	v.Violations = append(v.Violations, Violation{rule, name, at, fmt.Sprintf(format, args...)})
}

// byKey groups the granted acquisitions by key, in their order.
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

// A part of an acquisition is the time in which its client was a writer, or the time in which it was
// a reader. A hold lasts from the return of Acquire to the holder's deadline, its notice of a loss,
// or its release. A paused client holds nothing after its deadline.
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

// String returns a text with the client, its kind of hold, and its token.
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

// overlaps finds keys that a writer held together with another client. A writer that was paused
// until its lock had ended did not rely on the lock. But it got the lock, so no other client can
// have held the key from its request to the answer.
func (v *Verdict) overlaps(locks map[string][]*history.Acquisition) {
	for key, held := range locks {
		for _, a := range held {
			if a.Permit >= max(1, a.Most) {
				v.found(overlap, key, a.Granted, "%v was granted permit %d of %d", a, a.Permit, a.Most)
			}
			if a.Lock == history.Shared || a.Granted < a.End() {
				continue
			}
			for _, b := range held {
				if b.Granted <= a.Asked && a.Granted < b.End() {
					v.found(overlap, key, a.Granted, "%v was granted the lock, and has lost it, while %v held it", a, b)
				}
			}
		}
		for _, o := range check.Overlaps(partsOf(held), part.hold) {
			v.Notice = max(v.Notice, time.Duration(o.By))
			v.found(overlap, key, o.Later.relied.From, "%v was granted the lock %s before %v had to stop, and held it %s with it",
				o.Later, ms(int64(o.By)), o.Last, ms(int64(o.Both)))
		}
	}
}

// wrongTokens finds tokens that two locks of a key share, and tokens that are not above the tokens of
// all earlier locks. A client that was paused until its lock had ended does not know the time of the
// grant, so the time of its request counts.
func (v *Verdict) wrongTokens(locks map[string][]*history.Acquisition) {
	for key, granted := range locks {
		fenced := slices.DeleteFunc(slices.Clone(granted), func(a *history.Acquisition) bool { return !a.Lock.HasToken() })
		for _, f := range check.Tokens(fenced, func(a *history.Acquisition) check.Grant {
			asked := a.Asked
			if a.Granted < a.End() {
				asked = a.Granted
			}
			return check.Grant{Token: a.Token, Asked: asked, Granted: a.Granted}
		}) {
			a, b := f.Later, f.Earlier
			switch f.Fault {
			case check.OutOfRange:
				v.found(fencing, key, a.Granted, "%v has the token %d", a, a.Token)
			case check.Repeated:
				v.found(fencing, key, a.Granted, "%v and %v both have the token %d", b, a, a.Token)
			case check.Fallen:
				v.found(fencing, key, a.Granted, "%v is %s later than %v, and has the token %d, which is %d below",
					a, ms(int64(f.After)), b, a.Token, b.Token-a.Token)
			}
		}
	}
}

// lateWrites finds writes that the register must not accept: writes with a token below an earlier
// one, and writes with the token of another client. It also finds, regardless of tokens, writes of
// a client that held the lock before the client of an earlier write. Locks without tokens belong to
// programs without tokens. The events must be in the order of the register.
func (v *Verdict) lateWrites(events []history.Event, all []*history.Acquisition) {
	owners := map[history.Key]*history.Acquisition{}
	for _, a := range all {
		owners[history.Key{Who: a.Who, Op: a.Op}] = a
	}
	highest := map[string]int64{}               // token
	latest := map[string]*history.Acquisition{} // the latest request with a write
	for _, e := range events {
		if e.Kind != history.Accepted {
			continue
		}
		bad := func(format string, args ...any) { v.found(register, e.Name, e.At, format, args...) }
		if top := highest[e.Name]; e.Token < top {
			bad("client %d wrote with the token %d after a write with %d", e.Who, e.Token, top)
		}
		highest[e.Name] = max(highest[e.Name], e.Token)
		a := owners[history.Key{Who: e.Who, Op: e.Op}]
		if a == nil || !a.Held() || a.Keys()[0] != e.Name || a.Token != e.Token || !a.Lock.HasToken() && a.Lock != history.Plain {
			bad("client %d wrote with the token %d, which is not its own", e.Who, e.Token)
			continue
		}
		last := latest[e.Name]
		if last != nil && a.Granted < since(last) {
			bad("%v wrote after %v, which has the lock since later", a, last)
		}
		if last == nil || since(a) > since(last) {
			latest[e.Name] = a
		}
	}
}

// since returns the start of a's hold for the comparison with other clients: a client whose lock
// was granted before this time must not write after a. Tokens show the order of locks with
// overlapping requests. Without tokens, the time of the grant counts: if the first holder writes
// second, one of the two wrote without the lock.
func since(a *history.Acquisition) int64 {
	if a.Lock.HasToken() {
		return a.Asked
	}
	return a.Granted
}

func ms(d int64) string { return time.Duration(d).Round(10 * time.Microsecond).String() }
