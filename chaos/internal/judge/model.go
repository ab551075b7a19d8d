package judge

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/redquorum/redquorum/chaos/internal/history"
	"github.com/redquorum/redquorum/internal/trace"
)

// notSteps finds the first event of each key that is no step of the model that the simulation's
// histories are held to. What nodes did is not in a history of chaos.
func notSteps(locks map[string][]*history.Acquisition) (found []Violation) {
	for name, held := range locks {
		var r *trace.Rejection
		if err := (trace.Model{Hidden: true}).Follow(stepsOf(held)); errors.As(err, &r) {
			found = append(found, Violation{unmodelled, name, r.Event.At, fmt.Sprintf("%s %s: %s", r.Event.Claim, r.Event.Kind, r.Rule)})
		}
	}
	return found
}

// stepsOf are the steps of those who held a key. Of one moment, those come first with which most is
// allowed: the lock ends, then it is asked for, then held.
func stepsOf(held []*history.Acquisition) (steps []trace.Event) {
	order := map[trace.Kind]int{trace.Stops: 0, trace.Reads: 1, trace.Asks: 2, trace.Holds: 3}
	for _, a := range held {
		if a.End() <= a.Granted {
			continue // its client was paused, and never relied on it
		}
		claim := a.String()
		token := int64(0)
		if a.Lock.HasToken() {
			token = a.Token
		}
		steps = append(steps,
			trace.Event{At: a.Asked, Kind: trace.Asks, Claim: claim, Reads: a.Lock == history.Shared},
			trace.Event{At: a.Granted, Kind: trace.Holds, Claim: claim, Until: a.Until, Token: token})
		if a.Reading < a.End() {
			steps = append(steps, trace.Event{At: max(a.Reading, a.Granted+1), Kind: trace.Reads, Claim: claim})
		}
		steps = append(steps, trace.Event{At: a.End(), Kind: trace.Stops, Claim: claim})
	}
	slices.SortStableFunc(steps, func(a, b trace.Event) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(order[a.Kind], order[b.Kind]))
	})
	return steps
}
