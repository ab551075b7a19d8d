package history

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Never is a time after all others.
const Never int64 = math.MaxInt64

// An Acquisition is all that a client wrote about one call of Acquire and the lock that came of it.
// Events that did not happen, or were not written, are at Never.
type Acquisition struct {
	Who   int
	Op    int64
	Name  string
	Names []string // one, or those of a set
	Lock  Lock
	Fair  bool
	Most  int // permits

	Asked    int64
	Granted  int64
	Failed   int64
	Permit   int
	Token    int64
	Until    int64 // the latest deadline
	Lost     int64
	Reading  int64 // a writer's, from its Downgrade on
	Leaving  int64
	Released int64
	Sure     bool // the release was confirmed by a quorum
	Why      string
}

// Held reports whether the client had the lock.
func (a *Acquisition) Held() bool { return a.Granted != Never }

// Keys are what the lock was of: its names, or one slot of a name with permits. Of each key there
// is one writer at a time.
func (a *Acquisition) Keys() []string {
	if len(a.Names) > 1 {
		return a.Names
	}
	return []string{Slot(a.Name, a.Permit)}
}

// End is when the client no longer relied on the lock: from its deadline on, when it heard of a
// loss, or when it began to release, whichever was first. It may lie before Granted, where the
// client was paused before it could look.
func (a *Acquisition) End() int64 { return min(a.Until, a.Lost, a.Leaving) }

func (a *Acquisition) String() string {
	return fmt.Sprintf("client %d's acquisition %d", a.Who, a.Op)
}

// Key tells the acquisitions of all clients apart.
type Key struct {
	Who int
	Op  int64
}

// Acquisitions puts the clients' events together, ordered by when they were asked. An order of
// events that no client can produce is an error.
func Acquisitions(events []Event) ([]*Acquisition, error) {
	byKey := map[Key]*Acquisition{}
	var all []*Acquisition
	for i, e := range events {
		key := Key{e.Who, e.Op}
		a := byKey[key]
		switch e.Kind {
		case Asked, Granted, Failed, Extended, Lost, Downgrading, Downgraded, Leaving, Released:
		default:
			continue
		}
		if bad := misplaced(a, e); bad != "" {
			return nil, fmt.Errorf("history: event %d, %+v: %s", i+1, e, bad)
		}
		switch e.Kind {
		case Asked:
			a = &Acquisition{Who: e.Who, Op: e.Op, Name: e.Name, Names: e.Names, Lock: e.Lock, Fair: e.Fair, Most: e.Most,
				Asked: e.At, Granted: Never, Failed: Never, Until: Never, Lost: Never, Reading: Never, Leaving: Never, Released: Never}
			if len(a.Names) == 0 {
				a.Names = []string{e.Name}
			}
			byKey[key] = a
			all = append(all, a)
		case Granted:
			a.Granted, a.Permit, a.Token, a.Until = e.At, e.Permit, e.Token, e.Until
		case Failed:
			a.Failed, a.Why = e.At, e.Text
		case Extended:
			a.Until = max(a.Until, e.Until)
		case Lost:
			a.Lost, a.Why = e.At, e.Text
		case Downgrading:
			a.Reading = e.At
		case Leaving:
			a.Leaving = e.At
		case Released:
			a.Released, a.Sure = e.At, e.Text == ""
		}
	}
	slices.SortStableFunc(all, func(a, b *Acquisition) int { return cmp.Compare(a.Asked, b.Asked) })
	return all, nil
}

// misplaced says why e cannot follow the events of its acquisition so far; empty: it can.
func misplaced(a *Acquisition, e Event) string {
	switch {
	case e.Kind == Asked && a != nil:
		return "asked twice"
	case e.Kind == Asked:
		return ""
	case a == nil:
		return "never asked"
	case a.Name != e.Name:
		return "asked for another name"
	case a.Lock != e.Lock:
		return "asked for another kind of lock"
	case (e.Kind == Granted || e.Kind == Failed) && (a.Held() || a.Failed != Never):
		return "answered twice"
	case e.Kind == Granted || e.Kind == Failed:
		return ""
	case !a.Held():
		return "never granted"
	case e.Kind == Downgrading && (a.Reading != Never || a.Lock != Plain && a.Lock != Fenced):
		return "downgraded twice, or no writer of one name"
	case e.Kind == Downgraded && a.Reading == Never:
		return "downgraded without being asked to"
	case e.Kind == Leaving && a.Leaving != Never:
		return "released twice"
	case e.Kind == Released && a.Leaving == Never:
		return "released without being asked to"
	}
	return ""
}
