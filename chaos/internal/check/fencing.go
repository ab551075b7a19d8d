package check

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/redquorum/redquorum/chaos/internal/history"
)

// Fencing finds tokens that two locks of a name share, and tokens that are not
// above those of all locks that were granted before this one was asked for.
func Fencing(locks map[string][]*history.Acquisition) (found []Violation) {
	for name, asked := range locks {
		granted := slices.Clone(asked)
		slices.SortStableFunc(granted, func(a, b *history.Acquisition) int { return cmp.Compare(a.Granted, b.Granted) })
		owner := map[int64]*history.Acquisition{}
		var highest *history.Acquisition // of those granted before a was asked for
		for _, a := range asked {
			for len(granted) > 0 && granted[0].Granted < a.Asked {
				if highest == nil || granted[0].Token > highest.Token {
					highest = granted[0]
				}
				granted = granted[1:]
			}
			if a.Token <= 0 || a.Token >= 1<<53 {
				found = append(found, Violation{fencing, name, a.Granted, fmt.Sprintf("%v has the token %d", a, a.Token)})
			}
			if b := owner[a.Token]; b != nil {
				found = append(found, Violation{fencing, name, a.Granted, fmt.Sprintf("%v and %v both have the token %d", b, a, a.Token)})
			}
			owner[a.Token] = a
			if highest != nil && highest.Token > a.Token {
				found = append(found, Violation{fencing, name, a.Granted, fmt.Sprintf(
					"%v was asked for %s after %v had been granted, and has the token %d, which is %d below",
					a, ms(a.Asked-highest.Granted), highest, a.Token, highest.Token-a.Token)})
			}
		}
	}
	return found
}
