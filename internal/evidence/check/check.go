// Package check finds holders of one lock that must not be there together, and fencing tokens that
// break their promise, in a list of what happened. It looks at the locks of one name at a time: the caller groups them.
//
// It knows no lock, no server and no clock, only the times and tokens that it is given, so that it
// cannot share a mistake with the code whose history it checks. Times are nanoseconds of one clock,
// the same for all holders. What a list leaves open counts for the holders: what is reported is
// wrong.
package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// A Hold is the time in which a holder relied on the lock: from From up to, but not including,
// Until. A holder that was paused until its lock had ended relied on nothing: its Until is not
// after From, and it overlaps with no other.
type Hold struct {
	From, Until int64
	Shared      bool // it is a reader's: readers that are there together count as one holder
}

// An Overlap is a holder that began while others held the lock.
type Overlap[H any] struct {
	Later  H             // the one that began
	First  H             // of the others, the one that had it first
	Last   H             // of the others, the one that keeps it longest
	Others int           // how many there were; readers are no others to a reader
	By     time.Duration // from Later's beginning to Last's end
	Both   time.Duration // how long Later and Last had it together
}

// Overlaps returns the holders that began while others held the lock, in the order in which they
// began. holds are those of one lock, in any order; of says when each had it.
func Overlaps[H any](holds []H, of func(H) Hold) []Overlap[H] { return TooMany(holds, of, 1) }

// TooMany is Overlaps for a lock that k may hold at the same time: it returns the holders with
// which there were more than k. k must be above zero.
func TooMany[H any](holds []H, of func(H) Hold, k int) (found []Overlap[H]) {
	var open []H // that have begun and not ended, in the order in which they began
	for _, h := range sorted(holds, func(h H) int64 { return of(h).From }) {
		now := of(h)
		if now.Until <= now.From {
			continue
		}
		open = slices.DeleteFunc(open, func(o H) bool { return of(o).Until <= now.From })
		others := open
		if now.Shared {
			others = slices.DeleteFunc(slices.Clone(open), func(o H) bool { return of(o).Shared })
		}
		open = append(open, h)
		if holders(open, of) > k && len(others) > 0 {
			last := slices.MaxFunc(others, func(a, b H) int { return cmp.Compare(of(a).Until, of(b).Until) })
			found = append(found, Overlap[H]{
				Later: h, First: others[0], Last: last, Others: len(others),
				By:   time.Duration(of(last).Until - now.From),
				Both: time.Duration(min(of(last).Until, now.Until) - now.From),
			})
		}
	}
	return found
}

// holders is how many hold the lock, where readers count as one.
func holders[H any](open []H, of func(H) Hold) (n int) {
	readers := 0
	for _, h := range open {
		if of(h).Shared {
			readers = 1
			continue
		}
		n++
	}
	return n + readers
}

// A Grant is a lock with a fencing token.
type Grant struct {
	Token   int64
	Asked   int64 // when the attempt began that got it
	Granted int64 // when the caller had it
}

// A Fault says what is wrong with a token.
type Fault int

// The faults of tokens.
const (
	OutOfRange Fault = iota + 1 // it is not above zero, or a double cannot hold it
	Repeated                    // an earlier lock has the same
	Fallen                      // a lock that was granted before this one was asked for has a higher one
)

func (f Fault) String() string {
	switch f {
	case OutOfRange:
		return "out of range"
	case Repeated:
		return "repeated"
	case Fallen:
		return "fallen"
	}
	return fmt.Sprintf("Fault(%d)", int(f))
}

// A TokenFault is a lock with a wrong token.
type TokenFault[G any] struct {
	Fault   Fault
	Later   G
	Earlier G             // the lock that shows it; the zero value if OutOfRange
	After   time.Duration // from Earlier's grant until Later was asked for; of Fallen only
}

// maxToken is the largest number that a double, and so a script on a server, tells from its
// neighbours.
const maxToken = 1<<53 - 1

// Tokens returns what is wrong with tokens, in the order in which their locks were asked for.
// grants are those of one lock, in any order; of says what each was given.
//
// A token must be above those of all locks that were granted before its own was asked for. Locks
// that were asked for at the same time may have theirs in any order. Asked is when the attempt
// began that got the lock, not when its caller began to wait: to the resource, a waiter is later
// than all whom it waited for.
func Tokens[G any](grants []G, of func(G) Grant) (found []TokenFault[G]) {
	asked := sorted(grants, func(g G) int64 { return of(g).Asked })
	granted := sorted(grants, func(g G) int64 { return of(g).Granted })
	owners := map[int64]G{}
	var highest G // of those granted before g was asked for
	var top int64 // its token; zero if there is none
	for _, g := range asked {
		now := of(g)
		if now.Token <= 0 || now.Token > maxToken {
			found = append(found, TokenFault[G]{Fault: OutOfRange, Later: g})
		}
		if owner, taken := owners[now.Token]; taken {
			found = append(found, TokenFault[G]{Fault: Repeated, Later: g, Earlier: owner})
		}
		owners[now.Token] = g
		for len(granted) > 0 && of(granted[0]).Granted < now.Asked {
			if t := of(granted[0]).Token; t > top {
				highest, top = granted[0], t
			}
			granted = granted[1:]
		}
		if top > 0 && now.Token < top {
			found = append(found, TokenFault[G]{Fault: Fallen, Later: g, Earlier: highest,
				After: time.Duration(now.Asked - of(highest).Granted)})
		}
	}
	return found
}

// sorted returns the list by time. What happened at the same time keeps its order.
func sorted[T any](list []T, at func(T) int64) []T {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b T) int { return cmp.Compare(at(a), at(b)) })
	return list
}
