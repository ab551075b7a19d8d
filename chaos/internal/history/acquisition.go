package history

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Never is a time after all others.
const Never int64 = math.MaxInt64

// An Acquisition has the events of one call of Acquire and its lock. Events that did not happen, or
// were not written, are at Never.
type Acquisition struct {
	Event   // the Asked event, with at least one name, and with the granted Permit and Token, and the latest deadline in Until
	Asked   int64
	Granted int64
	Failed  int64
	Lost    int64
	Reading int64 // time of a writer's Downgrade
	Leaving int64
	Why     string
}

// Held reports whether the client had the lock.
func (a *Acquisition) Held() bool { return a.Granted != Never }

// Keys returns the keys of the lock: its names, or one slot of a name with permits. Each key has one
// writer at a time.
func (a *Acquisition) Keys() []string {
	if len(a.Names) > 1 {
		return a.Names
	}
	return []string{Slot(a.Name, a.Permit)}
}

// End returns the time from which the client no longer relied on the lock: its deadline, its notice
// of a loss, or the start of its release, whichever was first. End may be before Granted if the
// client was paused before it could look.
func (a *Acquisition) End() int64 { return min(a.Until, a.Lost, a.Leaving) }

func (a *Acquisition) String() string {
	return fmt.Sprintf("client %d's acquisition %d", a.Who, a.Op)
}

// Key identifies an acquisition among the acquisitions of all clients.
type Key struct {
	Who int
	Op  int64
}

// ofLocks are the events that follow Asked.
var ofLocks = []Kind{Granted, Failed, Extended, Lost, Downgrading, Leaving}

// Acquisitions groups the events of clients by acquisition, in order of the requests. An event of a
// lock that no client requested is an error.
func Acquisitions(events []Event) ([]*Acquisition, error) {
	byKey := map[Key]*Acquisition{}
	var all []*Acquisition
	for i, e := range events {
		key := Key{e.Who, e.Op}
		a := byKey[key]
		if slices.Contains(ofLocks, e.Kind) && (a == nil || a.Name != e.Name || a.Lock != e.Lock) {
			return nil, fmt.Errorf("history: event %d, %+v: no client requested this lock", i+1, e)
		}
		switch e.Kind {
		case Asked:
			if a != nil {
				return nil, fmt.Errorf("history: event %d, %+v: the event is duplicated", i+1, e)
			}
			e.Until = Never
			if len(e.Names) == 0 {
				e.Names = []string{e.Name}
			}
			a = &Acquisition{Event: e, Asked: e.At, Granted: Never, Failed: Never, Lost: Never, Reading: Never, Leaving: Never}
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
		}
	}
	slices.SortStableFunc(all, func(a, b *Acquisition) int { return cmp.Compare(a.Asked, b.Asked) })
	return all, nil
}
