package judge

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/redquorum/redquorum/chaos/internal/history"
)

// The model is a mutex that is free or held, and gives each holder a token above all before.
//
// Only granted acquisitions go into the model. A failed one changes nothing. One whose client was
// killed before it wrote down the outcome may have taken the lock or not. No client acted on it, so
// that a history that is possible with it is possible without: to leave it out is to model that it
// is unknown.
//
// For the same reason a history of which whole acquisitions are left out, from taking to giving up,
// is possible if the full one was. So a long history can be looked at through windows, each
// overlapping with the next: the search takes quadratic time.

// take is the input of an operation that takes the lock, give of one that ends its hold: a release,
// a loss or the deadline.
type (
	take struct{ a *history.Acquisition }
	give struct{ a *history.Acquisition }
)

// held is the model's state. A lock that is free has no holder.
type held struct {
	holder *history.Acquisition
	token  int64 // the highest so far
}

var model = porcupine.Model{
	Init: func() any { return held{} },
	Step: func(state, input, _ any) (bool, any) {
		s := state.(held)
		switch in := input.(type) {
		case take:
			return s.holder == nil && in.a.Token > s.token, held{in.a, in.a.Token}
		case give:
			return s.holder == in.a, held{nil, s.token}
		}
		return false, nil
	},
}

// window is how many locks are looked at together, and again how many of them once more in the next
// window.
const (
	window = 200
	again  = 20
)

// A search is what searchMutex has found.
type search struct {
	violations []Violation
	windows    int
	undecided  int // windows that were not decided in time
}

// searchMutex looks for a mutex that could have answered as the lock did. All searches together
// take about as long as limit at most.
func searchMutex(locks map[string][]*history.Acquisition, limit time.Duration) (s search) {
	end := time.Now().Add(limit)
	for name, granted := range locks {
		granted = slices.Clone(granted)
		slices.SortStableFunc(granted, func(a, b *history.Acquisition) int {
			return cmp.Compare(a.Granted, b.Granted)
		})
		for from := 0; from == 0 || from+again < len(granted); from += window - again {
			part := granted[from:min(from+window, len(granted))]
			s.windows++
			left := time.Until(end)
			if left <= 0 {
				s.undecided++
				continue
			}
			switch porcupine.CheckOperationsTimeout(model, operations(part), left) {
			case porcupine.Unknown:
				s.undecided++
			case porcupine.Illegal:
				s.violations = append(s.violations, Violation{mutex, name, part[0].Granted, fmt.Sprintf(
					"no mutex with rising tokens could have granted these %d locks, from %v (token %d) to %v (token %d)",
					len(part), part[0], part[0].Token, part[len(part)-1], part[len(part)-1].Token)})
			}
		}
	}
	return s
}

// operations makes two of each lock. It was taken at some moment while Acquire ran, and is given up
// at some moment after its hold ended. That the release was asked for later, or never, makes no
// difference: the lock is free to others from its deadline on.
func operations(locks []*history.Acquisition) (ops []porcupine.Operation) {
	for i, a := range locks {
		end := max(a.End(), a.Asked) // its client was paused before it could look
		ops = append(ops,
			porcupine.Operation{ClientId: i, Input: take{a}, Call: a.Asked, Return: a.Granted},
			porcupine.Operation{ClientId: i, Input: give{a}, Call: end, Return: history.Never})
	}
	return ops
}
