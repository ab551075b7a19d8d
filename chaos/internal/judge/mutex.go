package judge

import (
	"cmp"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/redquorum/redquorum/chaos/internal/history"
)

// The model is a readers-writer mutex that is free, or held by one writer or by readers, and gives
// each writer that asks for one a token above all before.
//
// Only granted acquisitions go into the model. A history that is possible with an acquisition is
// possible without: so one of a killed client, whose outcome is not known, is left out, and a long
// history is looked at through windows that overlap, because the search takes quadratic time.

// held is the model's state. A lock that is free has no writer and no readers.
type held struct {
	writer  *history.Acquisition
	readers int
	token   int64 // the highest so far
}

// A change is what happens to the lock: a writer takes it, becomes a reader, or gives it up by a
// release, a loss or the deadline; a reader enters or leaves. can is false if it cannot happen.
type change func(held) (can bool, after held)

var model = porcupine.Model{
	Init: func() any { return held{} },
	Step: func(state, input, _ any) (bool, any) { return input.(change)(state.(held)) },
}

// Readers need no names, because none leaves before it has come.
func enter(s held) (bool, held) { return s.writer == nil, held{nil, s.readers + 1, s.token} }
func leave(s held) (bool, held) { return s.readers > 0, held{nil, s.readers - 1, s.token} }

// window is how many locks are looked at together, and again how many of them once more in the next
// window.
const (
	window = 200
	again  = 20
)

// searchMutex looks for a mutex that could have answered as the lock did. What it has not decided
// after half a minute is reported as undecided, not as violated.
func (v *Verdict) searchMutex(locks map[string][]*history.Acquisition) {
	end := time.Now().Add(30 * time.Second)
	for key, granted := range locks {
		granted = slices.Clone(granted)
		slices.SortStableFunc(granted, func(a, b *history.Acquisition) int {
			return cmp.Compare(a.Granted, b.Granted)
		})
		for from := 0; from == 0 || from+again < len(granted); from += window - again {
			part := granted[from:min(from+window, len(granted))]
			v.Windows++
			result := porcupine.Unknown
			if left := time.Until(end); left > 0 { // zero would be no limit
				result = porcupine.CheckOperationsTimeout(model, operations(part), left)
			}
			switch result {
			case porcupine.Unknown:
				v.Undecided++
			case porcupine.Illegal:
				first, last := part[0], part[len(part)-1]
				v.found(mutex, key, first.Granted, "no mutex with rising tokens could have granted these %d locks, from %v (token %d) to %v (token %d)",
					len(part), first, first.Token, last, last.Token)
			}
		}
	}
}

// operations makes two of each writer. It took the lock at some moment while Acquire ran, and gives
// it up at some moment after its hold ended.
//
// A reader comes at the last moment possible, when Acquire returns, and leaves at the first, when
// its hold ends: so the search need not try in which order readers come. One whose hold had ended
// before its client could look was never there.
func operations(locks []*history.Acquisition) (ops []porcupine.Operation) {
	for i, a := range locks {
		add := func(do change, from, to int64) {
			ops = append(ops, porcupine.Operation{ClientId: i, Input: do, Call: from, Return: to})
		}
		take := func(s held) (bool, held) {
			rises := !a.Lock.HasToken() || a.Token > s.token
			return rises && s.writer == nil && s.readers == 0, held{a, 0, max(s.token, a.Token)}
		}
		downgrade := func(s held) (bool, held) { return s.writer == a, held{nil, 1, s.token} }
		give := func(s held) (bool, held) { return s.writer == a, held{nil, 0, s.token} }
		end := max(a.End(), a.Asked) // its client was paused before it could look
		switch {
		case a.Lock == history.Shared && a.Granted < end:
			add(enter, a.Granted, a.Granted)
			add(leave, end, end)
		case a.Lock == history.Shared:
		case a.Reading < end:
			add(take, a.Asked, a.Granted)
			add(downgrade, a.Reading, a.Reading)
			add(leave, end, end)
		default:
			add(take, a.Asked, a.Granted)
			add(give, end, history.Never)
		}
	}
	return ops
}
