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
	Event   // that it was asked for; Names are one at least; Permit and Token are those granted, and Until is the latest deadline
	Asked   int64
	Granted int64
	Failed  int64
	Lost    int64
	Reading int64 // a writer's, from its Downgrade on
	Leaving int64
	Why     string
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

// ofLocks are the events that follow Asked.
var ofLocks = []Kind{Granted, Failed, Extended, Lost, Downgrading, Leaving}

// Acquisitions puts the clients' events together, ordered by when they were asked. An event
// of a lock that was not asked for is an error.
func Acquisitions(events []Event) ([]*Acquisition, error) {
	byKey := map[Key]*Acquisition{}
	var all []*Acquisition
	for i, e := range events {
		key := Key{e.Who, e.Op}
		a := byKey[key]
		if slices.Contains(ofLocks, e.Kind) && (a == nil || a.Name != e.Name || a.Lock != e.Lock) {
			return nil, fmt.Errorf("history: event %d, %+v: nobody has asked for this", i+1, e)
		}
		switch e.Kind {
		case Asked:
			if a != nil {
				return nil, fmt.Errorf("history: event %d, %+v: it is the second such event", i+1, e)
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
