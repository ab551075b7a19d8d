package quorum

import (
	"math/bits"
	"time"

	"github.com/redquorum/redquorum/internal/protocol"
)

// A Tally counts the outcomes of one request to n nodes.
//
// Both thresholds follow from q = n/2+1. Any two sets of q nodes share one, so two holders cannot
// both have q grants. Once n-q+1 nodes did not grant, the rest are fewer than q. For odd n the two
// numbers are equal. For even n they are not: with four nodes, three grants win but two refusals
// lose.
type Tally struct {
	Nodes   int
	Granted int
	Refused int
	Faults  int // failed and unknown: neither counts as a grant
	servers Set // servers that have replied
}

// IsFirst reports whether a server replies for the first time, and records the reply. Nodes that
// share a server have a single vote.
func (t *Tally) IsFirst(server int) bool { return t.servers.AddNew(server) }

// Add counts one reply.
func (t *Tally) Add(o protocol.Outcome) {
	switch o {
	case protocol.Granted:
		t.Granted++
	case protocol.Refused:
		t.Refused++
	default:
		t.Faults++
	}
}

// Quorum returns the number of grants that win.
func (t Tally) Quorum() int { return t.Nodes/2 + 1 }

// Blocking returns the number of nodes that can prevent a quorum.
func (t Tally) Blocking() int { return t.Nodes - t.Quorum() + 1 }

// Pending returns the number of nodes that have not replied.
func (t Tally) Pending() int { return t.Nodes - t.Granted - t.Refused - t.Faults }

// A Verdict is the outcome decided by the replies so far.
type Verdict uint8

const (
	Pending Verdict = iota // more replies can change the outcome
	Won                    // a quorum granted
	Lost                   // a quorum can no longer grant
)

// Verdict returns the outcome decided by the replies so far.
func (t Tally) Verdict() Verdict {
	switch {
	case t.Granted >= t.Quorum():
		return Won
	case t.Refused+t.Faults >= t.Blocking():
		return Lost
	default:
		return Pending
	}
}

// Outage reports whether faults alone prevent a quorum. If it returns false and the Verdict is
// Lost, another client holds the key on some node.
func (t Tally) Outage() bool { return t.Faults >= t.Blocking() }

// Gone reports whether refusals alone prevent a quorum. For an extension or a release this means
// that a majority no longer has our value.
func (t Tally) Gone() bool { return t.Refused >= t.Blocking() }

// MaxNodes is the capacity of a Set. Seven nodes are many for a quorum lock.
const MaxNodes = 64

// A Set is a set of nodes by their index.
type Set uint64

// All returns the set of n nodes.
func All(n int) Set { return 1<<n - 1 }

// Of returns the set that contains only node i.
func Of(i int) Set { return 1 << i }

// AddNew adds i, and reports whether it was not in the set.
func (s *Set) AddNew(i int) bool {
	had := s.Has(i)
	s.Add(i)
	return !had
}

func (s *Set) Add(i int)     { *s |= 1 << i }
func (s *Set) Remove(i int)  { *s &^= 1 << i }
func (s Set) Has(i int) bool { return s&(1<<i) != 0 }
func (s Set) Size() int      { return bits.OnesCount64(uint64(s)) }

// Drift returns the part of a TTL that is never used, because the clocks of client and servers run
// at different rates and Redis expires keys with a resolution of milliseconds. It is one per cent
// and 2 ms, as in the reference implementations of the Redis documentation
// (https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/).
func Drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// Deadline returns the time after which a lock must be considered lost, if a quorum of nodes
// started to count ttl no earlier than start. start is read before the first byte of the request is
// queued, so the duration of the attempt is part of the TTL.
func Deadline[I ~int64](start I, ttl time.Duration) I { return start + I(ttl-Drift(ttl)) }
