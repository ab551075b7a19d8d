package record

import (
	"slices"
	"time"
)

// An Account is one server's memory of the time before another forgot.
type Account struct {
	// Remembers: its memory reaches back behind that moment, and it is in no quarantine
	// itself. So it knows all locks that it voted for then and that are alive now.
	Remembers bool
	// Longest is the longest TTL of a lock that it voted for, or that it was known to have
	// voted for before it forgot itself. Zero if there was none.
	Longest time.Duration
}

// A Loss is how long the locks can be that a server has forgotten.
type Loss struct {
	Longest time.Duration // the longest TTL
	Alone   time.Duration // the same as one other server tells alone
	Basis   Basis         // of both
}

// And adds other knowledge of the same loss. A proof replaces all else.
func (l Loss) And(other Loss) Loss {
	switch {
	case l.Basis == Proof:
		return l
	case other.Basis == Proof:
		return other
	}
	return Loss{max(l.Longest, other.Longest), max(l.Alone, other.Alone), max(l.Basis, other.Basis)}
}

// AloneLimit is how many times the longest TTL that a client assumes a server is believed
// that tells of a longer one alone. A damaged record must not stop all locks, and clients
// may differ.
const AloneLimit = 10

// Wait returns the time that must have passed since the server forgot before its votes count, for a
// client that assumes no longer TTL of others than this, where nothing is proven.
func (l Loss) Wait(assumed time.Duration) time.Duration {
	if l.Basis == Proof {
		return l.Longest
	}
	return max(l.Longest, min(l.Alone, AloneLimit*assumed), assumed)
}

// Forgotten returns the longest TTL of a lock that one of n servers may have forgotten,
// by the accounts of the others.
//
// A lock that it voted for was also voted for by q-1 others, where q is the quorum. So a TTL
// is possible if q-1 others either tell of one as long or do not remember. If fewer than
// q-1 do not remember, that bounds the TTL, and proof is true.
//
// Without a bound the accounts are believed as they are, because the TTL cannot be known
// otherwise. But where there are four servers or more, a TTL that one of them tells alone is
// returned apart: its record may be damaged, and one server must not stop all locks.
func Forgotten(n int, others []Account) (longest, alone time.Duration, proof bool) {
	q := n/2 + 1
	var told, all []time.Duration
	for _, a := range others {
		all = append(all, a.Longest)
		if a.Remembers {
			told = append(told, a.Longest)
		}
	}
	if silent := n - 1 - len(told); silent < q-1 {
		slices.Sort(told)
		return told[len(told)-(q-1-silent)], 0, true
	}
	slices.Sort(all)
	slices.Reverse(all)
	all = append(all, 0, 0)
	if n < 4 {
		return all[0], 0, false
	}
	return all[1], all[0], false
}
