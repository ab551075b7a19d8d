// Package check finds violations of mutual exclusion, and invalid fencing tokens, in a history. It
// checks the locks of one name at a time: the caller groups them.
//
// It uses no lock, no server and no clock, only the times and tokens of the history, so that it
// cannot share a mistake with the code under test. Times are nanoseconds of one clock, the same for
// all holders. If a history leaves a doubt, the holders get the benefit of the doubt, so every
// reported violation is real.
package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// A Hold is the time in which a holder relied on the lock: from From up to, but not including,
// Until. A holder that was paused until its lock had ended relied on nothing: its Until is not
// after From, and it overlaps with no other hold.
type Hold struct {
	From, Until int64
	Shared      bool // the holder is a reader; concurrent readers count as one holder
}

// An Overlap is a hold that began while other holders had the lock.
type Overlap[H any] struct {
	Later  H             // hold that began
	First  H             // other hold that began first
	Last   H             // other hold that ends last
	Others int           // number of other holds; for a reader, the number of writers
	By     time.Duration // time from the start of Later to the end of Last
	Both   time.Duration // time that Later and Last share
}

// Overlaps returns the holds that began while other holders had the lock, in the order in which
// they began. The elements of holds belong to one lock, in any order; of returns the Hold of an
// element.
func Overlaps[H any](holds []H, of func(H) Hold) []Overlap[H] { return TooMany(holds, of, 1) }

// TooMany is like Overlaps, for a lock with k permits: it returns the holds that were one too many
// when they began. k must be above zero.
func TooMany[H any](holds []H, of func(H) Hold, k int) (found []Overlap[H]) {
	var open []H // holds in progress, in the order in which they began
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

// holders returns the number of holders, where readers count as one.
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
	Asked   int64 // start of the attempt that acquired the lock
	Granted int64 // time at which the caller got the lock
}

// A Fault is a violation by a token.
type Fault int

// The faults of tokens.
const (
	OutOfRange Fault = iota + 1 // not above zero, or too large for a double
	Repeated                    // an earlier lock has the same token
	Fallen                      // a lock granted before the start of this attempt has a higher token
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

// A TokenFault is a lock with an invalid token.
type TokenFault[G any] struct {
	Fault   Fault
	Later   G
	Earlier G             // lock that proves the fault; the zero value if OutOfRange
	After   time.Duration // time from Earlier.Granted to Later.Asked; only if Fallen
}

// maxToken is the largest number that a double, and therefore a script on a server, can distinguish
// from its neighbors.
const maxToken = 1<<53 - 1

// Tokens returns the faults of tokens, in the order in which the attempts began. The elements of
// grants belong to one lock, in any order; of returns the Grant of an element.
//
// A token must be above the tokens of all locks that were granted before its own attempt began. The
// tokens of concurrent attempts may have any order. Asked is the start of the attempt that acquired
// the lock, not the start of its caller's wait: to the resource, a waiter comes after every holder
// that it waited for.
func Tokens[G any](grants []G, of func(G) Grant) (found []TokenFault[G]) {
	asked := sorted(grants, func(g G) int64 { return of(g).Asked })
	granted := sorted(grants, func(g G) int64 { return of(g).Granted })
	owners := map[int64]G{}
	var highest G // highest lock granted before the attempt for g began
	var top int64 // token of highest; zero at first
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

// sorted returns the list by time. Simultaneous elements keep their order.
func sorted[T any](list []T, at func(T) int64) []T {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b T) int { return cmp.Compare(at(a), at(b)) })
	return list
}
