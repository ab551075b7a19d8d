package trace

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// short returns a history of three nodes that the model allows. A holds, extends and stops. Then B
// holds and extends, after node 0 has forgotten B.
func short() []Event {
	return []Event{
		{At: 0, Kind: Asks, Claim: "A", Life: 100},
		{At: 1, Kind: Grants, Claim: "A", Node: 0},
		{At: 2, Kind: Grants, Claim: "A", Node: 1},
		{At: 3, Kind: Holds, Claim: "A", Until: 100, Token: 5},
		{At: 50, Kind: Renews, Claim: "A", Node: 0},
		{At: 51, Kind: Renews, Claim: "A", Node: 1},
		{At: 52, Kind: Extended, Claim: "A", Until: 149},
		{At: 60, Kind: Stops, Claim: "A"},
		{At: 61, Kind: Releases, Claim: "A", Node: 0},
		{At: 62, Kind: Releases, Claim: "A", Node: 1},
		{At: 70, Kind: Asks, Claim: "B", Life: 100},
		{At: 71, Kind: Grants, Claim: "B", Node: 0},
		{At: 72, Kind: Grants, Claim: "B", Node: 1},
		{At: 73, Kind: Holds, Claim: "B", Until: 170, Token: 6},
		{At: 80, Kind: Forgets, Node: 0, Until: 180},
		{At: 81, Kind: Grants, Claim: "B", Node: 0}, // a repair
		{At: 90, Kind: Renews, Claim: "B", Node: 1},
		{At: 91, Kind: Grants, Claim: "B", Node: 2}, // another repair
		{At: 92, Kind: Renews, Claim: "B", Node: 2},
		{At: 93, Kind: Extended, Claim: "B", Until: 189},
		{At: 94, Kind: Stops, Claim: "B"},
	}
}

func TestEachGuardOfTheModelRejectsByName(t *testing.T) {
	t.Parallel()
	require.NoError(t, Model{Nodes: 3}.Follow(short()))
	// Each change makes one event invalid. at is the time of the rejected event.
	for name, c := range map[string]struct {
		rule   Rule
		at     int64
		change func(h []Event) []Event
	}{
		"a second holder": {TwoHolders, 20, func(h []Event) []Event {
			return insert(h, Event{At: 4, Kind: Asks, Claim: "C", Life: 100}, Event{At: 20, Kind: Holds, Claim: "C", Until: 90})
		}},
		"a reader beside a writer": {TwoHolders, 20, func(h []Event) []Event {
			return insert(h, Event{At: 4, Kind: Asks, Claim: "C", Life: 100, Reads: true}, Event{At: 20, Kind: Holds, Claim: "C", Until: 90})
		}},
		"a key that another has": {KeyTaken, 20, func(h []Event) []Event {
			return insert(h, Event{At: 4, Kind: Asks, Claim: "C", Life: 100}, Event{At: 20, Kind: Grants, Claim: "C", Node: 1})
		}},
		"a token that falls":   {TokenFallen, 73, func(h []Event) []Event { return edit(h, 73, func(e *Event) { e.Token = 4 }) }},
		"a token twice":        {TokenTwice, 73, func(h []Event) []Event { return edit(h, 73, func(e *Event) { e.Token = 5 }) }},
		"released twice":       {NotHeld, 95, func(h []Event) []Event { return insert(h, Event{At: 95, Kind: Stops, Claim: "B"}) }},
		"released, never held": {NotHeld, 72, func(h []Event) []Event { return insert(h, Event{At: 72, Kind: Stops, Claim: "B"}) }},
		"released by a stranger": {NotHeld, 20, func(h []Event) []Event {
			return insert(h, Event{At: 20, Kind: Stops, Claim: "C"})
		}},
		"a vote too few": {NoQuorum, 73, func(h []Event) []Event { return remove(h, 72) }},
		"a vote of a node in quarantine": {NoQuorum, 73, func(h []Event) []Event {
			return insert(h, Event{At: 63, Kind: Forgets, Node: 1, Until: 150})
		}},
		"a vote of a node that started again": {NoQuorum, 73, func(h []Event) []Event {
			return insert(h, Event{At: 63, Kind: Restarts, Node: 1, Until: 150})
		}},
		"an extension by a node that forgot, and was repaired": {NoQuorum, 93, func(h []Event) []Event {
			return insert(h, Event{At: 75, Kind: Forgets, Node: 2, Until: 175})
		}},
		"an extension after the deadline": {TooLate, 170, func(h []Event) []Event {
			return edit(remove(h, 94), 93, func(e *Event) { e.At = 170 })
		}},
		"an extension by old votes":             {NoQuorum, 93, func(h []Event) []Event { return edit(h, 93, func(e *Event) { e.Until = 193 }) }},
		"a deadline that counts from the grant": {TooLong, 3, func(h []Event) []Event { return edit(h, 3, func(e *Event) { e.Until = 103 }) }},
		"a key that is gone":                    {KeyGone, 63, func(h []Event) []Event { return insert(h, Event{At: 63, Kind: Renews, Claim: "A", Node: 1}) }},
		"asked twice":                           {OutOfOrder, 71, func(h []Event) []Event { return insert(h, Event{At: 71, Kind: Asks, Claim: "B"}) }},
		"held twice":                            {OutOfOrder, 74, func(h []Event) []Event { return insert(h, Event{At: 74, Kind: Holds, Claim: "B", Until: 160}) }},
		"given up, though held":                 {OutOfOrder, 74, func(h []Event) []Event { return insert(h, Event{At: 74, Kind: GivesUp, Claim: "B"}) }},
		"never asked":                           {OutOfOrder, 20, func(h []Event) []Event { return insert(h, Event{At: 20, Kind: Grants, Claim: "C"}) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := Model{Nodes: 3, Hidden: c.rule == TwoHolders} // otherwise the missing votes are rejected first
			var r *Rejection
			require.ErrorAs(t, m.Follow(c.change(short())), &r)
			assert.Equal(t, c.rule, r.Rule, r)
			assert.Equal(t, c.at, r.Event.At, r)
		})
	}
}

// The model also allows readers together, and a node that kept its keys.
func TestModelAllowsReadersAndKeptKeys(t *testing.T) {
	t.Parallel()
	read := func(at int64, claim string, until int64) []Event {
		return []Event{
			{At: at, Kind: Asks, Claim: claim, Life: 100, Reads: true},
			{At: at, Kind: Grants, Claim: claim, Node: 0}, {At: at, Kind: Grants, Claim: claim, Node: 1},
			{At: at, Kind: Holds, Claim: claim, Until: until},
		}
	}
	writer := append(slices.Clone(short()[:4]), Event{At: 10, Kind: Reads, Claim: "A"})
	for name, h := range map[string][]Event{
		"readers together":                         append(read(0, "A", 100), read(10, "B", 110)...),
		"a reader beside one that was a writer":    append(writer, Event{At: 20, Kind: Asks, Claim: "B", Life: 100, Reads: true}, Event{At: 21, Kind: Holds, Claim: "B", Until: 120}),
		"an extension by a node that kept its key": insert(short()[:8], Event{At: 45, Kind: Restarts, Node: 1, Until: 145}),
		"an extension by a node that had its key lately, and was repaired": insert(short()[:8],
			Event{At: 45, Kind: Forgets, Node: 1, Until: 145}, Event{At: 46, Kind: Grants, Claim: "A", Node: 1}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.NoError(t, Model{Nodes: 3, Hidden: name == "a reader beside one that was a writer"}.Follow(h))
		})
	}
}

// insert inserts events after the events with the same time.
func insert(h []Event, events ...Event) []Event {
	for _, e := range events {
		i := slices.IndexFunc(h, func(o Event) bool { return o.At > e.At })
		if i < 0 {
			i = len(h)
		}
		h = slices.Insert(h, i, e)
	}
	return h
}

func remove(h []Event, at int64) []Event {
	return slices.DeleteFunc(h, func(e Event) bool { return e.At == at })
}

func edit(h []Event, at int64, change func(*Event)) []Event {
	change(&h[slices.IndexFunc(h, func(e Event) bool { return e.At == at })])
	return h
}
