package check

import (
	"cmp"
	"slices"
	"time"

	"github.com/redquorum/redquorum/chaos/internal/history"
)

// idle looks for the longest time between two locks of a name, counted from
// when somebody first asked.
func (v *Verdict) idle(events []history.Event, all []*history.Acquisition) {
	asks := map[string][]*history.Acquisition{}
	for _, a := range all {
		if answered(a) != history.Never { // else it was killed, nobody knows when
			asks[a.Name] = append(asks[a.Name], a)
		}
	}
	for name, asked := range asks {
		slices.SortStableFunc(asked, func(a, b *history.Acquisition) int { return cmp.Compare(answered(a), answered(b)) })
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
				waiting, _ := slices.BinarySearchFunc(asked[:i], end+1, func(a *history.Acquisition, at int64) int { return cmp.Compare(answered(a), at) })
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
