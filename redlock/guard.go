package redlock

import (
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// The memory guard. A node that forgot its keys would grant a lock that
// somebody still holds by the node's earlier vote. So each node carries an epoch
// record, which goes when its keys go, and which names the process that had
// them. Whoever finds no record, or that of another process, writes a new one
// and puts the node in quarantine, in one script (OpAdmit): its votes count
// only when the longest lock that it may have forgotten must have expired.
//
// While all is well this costs no message. Behind its acquisitions a node tells
// how long the record has left to live. That number says three things: whether
// the record is there; whether it is still the same, for its lifetime is partly
// random; and what the time is on the server.
type guard struct {
	settings  *settings
	witnesses []witness
	longest   atomic.Int64 // the longest TTL of any client, as far as it is known; nanoseconds
}

func newGuard(s *settings, nodes []Node) *guard {
	g := &guard{settings: s, witnesses: make([]witness, len(nodes))}
	g.known(max(s.ttl, s.maxTTL))
	for i, n := range nodes {
		g.witnesses[i].guard, g.witnesses[i].node = g, n
	}
	return g
}

// known makes the longest TTL that locks are known to have had at least ttl,
// and returns it: this Locker's, those of locks that it was granted, those that
// other clients have put on record. Every node gets to know it with the next
// reading of its record: the client that puts one in quarantine must know the
// longest lock of all the others.
func (g *guard) known(ttl time.Duration) time.Duration {
	for {
		known := g.longest.Load()
		if known >= int64(ttl) || g.longest.CompareAndSwap(known, int64(ttl)) {
			return time.Duration(max(known, int64(ttl)))
		}
	}
}

// needed is the TTL that a record must provide for, if a lock of ttl is to be
// taken. Nobody has forgotten such a lock before it was ever granted, so to
// wish for a long one puts no node in quarantine.
func (g *guard) needed(ttl time.Duration) time.Duration { return max(g.known(0), ttl) }

// recordLife draws the lifetime of an epoch record: 139 years and up to 35 more,
// in whole milliseconds. The part drawn by lot lets two records be told apart by
// what they have left.
func recordLife() time.Duration {
	return (1<<42 + rand.N[time.Duration](1<<40)) * time.Millisecond
}
