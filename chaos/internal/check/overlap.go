package check

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/redquorum/redquorum/chaos/internal/history"
)

// Overlap finds locks that two held at once, from when Acquire had returned to
// the holder's own deadline, the loss that it was told of, or its release. A
// client that is paused holds nothing after its deadline.
func Overlap(locks map[string][]*history.Acquisition) (found []Violation) {
	for name, held := range locks {
		held = slices.Clone(held)
		slices.SortStableFunc(held, func(a, b *history.Acquisition) int { return cmp.Compare(a.Granted, b.Granted) })
		var last *history.Acquisition // of those so far, the one that was held longest
		for _, a := range held {
			if a.End() <= a.Granted {
				continue
			}
			if last != nil && a.Granted < last.End() {
				found = append(found, Violation{overlap, name, a.Granted, fmt.Sprintf(
					"%v (token %d) was granted the lock %s before %v (token %d) had to stop, and held it %s with it",
					a, a.Token, ms(last.End()-a.Granted), last, last.Token, ms(min(a.End(), last.End())-a.Granted))})
			}
			if last == nil || a.End() > last.End() {
				last = a
			}
		}
	}
	return found
}
