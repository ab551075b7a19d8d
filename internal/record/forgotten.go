package record

import (
	"slices"
	"time"
)

// An Account is one server's memory of the time before another server forgot.
type Account struct {
	// Remembers means that the server's memory reaches back beyond that moment, and that the server
	// is not in quarantine itself. It then knows all locks for which it voted at that time and
	// which are still alive.
	Remembers bool
	// Longest is the longest TTL of a lock for which the server voted, or is known to have voted
	// before it forgot. Zero means no such lock.
	Longest time.Duration
}

// A Loss limits the locks that a server can have forgotten.
type Loss struct {
	Longest time.Duration // longest TTL
	Alone   time.Duration // longest TTL according to a single other server
	Basis   Basis         // of both
}

// And adds other knowledge of the same loss. A proof replaces all other knowledge.
func (l Loss) And(other Loss) Loss {
	switch {
	case l.Basis == Proof:
		return l
	case other.Basis == Proof:
		return other
	}
	return Loss{max(l.Longest, other.Longest), max(l.Alone, other.Alone), max(l.Basis, other.Basis)}
}

// AloneLimit limits a longest TTL that a single server reports, as a multiple of the longest TTL
// that the client assumes. A damaged record must not stop all locks, and the assumptions of clients
// may differ.
const AloneLimit = 10

// Wait returns the minimum time from the loss until the server's votes count. Without a proof it
// depends on assumed, the longest TTL that the client assumes of others.
func (l Loss) Wait(assumed time.Duration) time.Duration {
	if l.Basis == Proof {
		return l.Longest
	}
	return max(l.Longest, min(l.Alone, AloneLimit*assumed), assumed)
}

// Forgotten returns the longest TTL of a lock that one of n servers may have forgotten, according to
// the accounts of the others.
//
// If the server voted for a lock, q-1 others voted for it, too, where q is the quorum. A TTL is
// therefore possible if each of q-1 others either reports one as long or does not remember. If
// fewer than q-1 do not remember, the TTL is bounded, and proof is true.
//
// Without a bound the accounts are trusted, because the TTL cannot be determined in another way.
// However, among four or more servers, a TTL that only one server reports is returned separately:
// its record may be damaged, and a single server must not stop all locks.
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
