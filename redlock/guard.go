package redlock

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/protocol"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// The memory guard. A node that forgot its keys would grant a lock that
// another client still holds by the node's earlier vote. So each node carries a record of its
// memory, which goes when its keys go, and which names the process and the data set that
// had them (package internal/record). A node's votes count when each lock that was granted
// before the record's generation was born must have expired.
//
// While all is well this costs no packet. Behind acquisitions and extensions a node tells
// how long the record has left to live. That number says three things: whether
// the record is there; whether it is still the same, for its lifetime is partly
// random; and what the time is on the server.
//
// The guard is what a Locker knows of all its nodes' memories.
type guard struct {
	settings *settings
	nodes    []memory
	clocks   atomic.Pointer[clocks] // nil: not read so far
}

func newGuard(s *settings, nodes []protocol.Node) *guard {
	g := &guard{settings: s, nodes: make([]memory, len(nodes))}
	for i, n := range nodes {
		m := &g.nodes[i]
		m.guard, m.index, m.node, m.readAt, m.failed = g, i, n, -1, -1
	}
	return g
}

// The clocks of the nodes, as one client knew them at a moment.
type clocks struct {
	at               clock.Instant
	known            bool          // of a quorum
	latest, earliest time.Duration // what any of them can have shown
}

const (
	// clocksAge is for how long clocks are believed. They may drift apart by one per cent of it.
	clocksAge = 100 * time.Millisecond

	// silentAfter is when a node counts as down that has not been heard of. Of its clock ever less is
	// known, and when it is back its record is read before it votes.
	silentAfter = time.Minute
)

// isNear reports whether the nodes' clocks are known, of a quorum at least, and all that are known are
// within half of tokenSlack of the token. The other half is for the request's way to the node. A node
// that is to accept a number without a look at its clock must not be asked for one that is far ahead,
// because it would use up all numbers below. There may be no guard.
func (g *guard) isNear(token int64, now clock.Instant) bool {
	if g == nil {
		return false
	}
	seen := g.clocks.Load()
	if seen == nil || !seen.known || now.Sub(seen.at).Abs() > clocksAge {
		seen = g.readClocks(now)
		g.clocks.Store(seen)
	}
	t := time.Duration(token)*time.Microsecond - now.Sub(seen.at)
	return seen.known && t-seen.earliest <= tokenSlack/2 && seen.latest-t <= tokenSlack/2
}

func (g *guard) readClocks(now clock.Instant) *clocks {
	seen, n := &clocks{at: now, earliest: math.MaxInt64}, 0
	for i := range g.nodes {
		m := &g.nodes[i]
		m.mu.Lock()
		if m.record != nil && m.offset.Age(now) < silentAfter {
			n++
			seen.latest = max(seen.latest, m.offset.Latest(now))
			seen.earliest = min(seen.earliest, m.offset.Earliest(now))
		}
		m.mu.Unlock()
	}
	seen.known = n > len(g.nodes)/2
	return seen
}

// assumed is the longest TTL that locks of other clients may have, where no node that
// remembers can tell: a client knows its own settings only.
func (g *guard) assumed() time.Duration { return max(g.settings.ttl, g.settings.maxTTL) }

// openWait is how long the other nodes have at least, to answer a client that comes first.
const openWait = time.Second

// weigh concludes from what is known of the other nodes what node i has forgotten, when it
// was born. It returns the nodes that have not been read since then, whose
// records could tell more.
func (g *guard) weigh(i int, b birth) (loss record.Loss, unread quorum.Set) {
	now := g.settings.clock.Now()
	down := true
	accounts := make([]record.Account, 0, len(g.nodes))
	for j := range g.nodes {
		m := &g.nodes[j]
		m.mu.Lock()
		a := record.Account{Longest: m.claimed(b, now)}
		if j == i {
			m.mu.Unlock()
			if a.Longest > 0 { // of the node itself, before it forgot
				accounts = append(accounts, a)
			}
			continue
		}
		if m.readAt < b.latest {
			unread.Add(j)
			down = down && m.isDown(now)
		} else {
			a.Remembers = m.record != nil && m.birth.latest < b.earliest && m.standing(now, now) == nil
		}
		m.mu.Unlock()
		accounts = append(accounts, a)
	}
	longest, alone, proof := record.Forgotten(len(g.nodes), accounts)
	loss = record.Loss{Longest: longest, Alone: alone}
	switch {
	case proof && b.basis < record.Asked: // what claimed leaves out afterwards would be missing
		loss.Basis = record.Proof
	case unread == 0:
		loss.Basis = record.Asked
	case down && b.age >= record.AloneLimit*g.assumed():
		loss.Basis = record.Tried // by those before, none of whom need have stayed for so long
	}
	return loss, unread
}

// enter has the TTLs of votes entered into their nodes' records.
func (g *guard) enter(due []vote) {
	for _, v := range due {
		g.nodes[v.slot].park(v)
	}
}

// consult has nodes read that were not read since another node was found to have forgotten.
func (g *guard) consult(unread quorum.Set) {
	for j := range g.nodes {
		if unread.Has(j) {
			m := &g.nodes[j]
			m.mu.Lock()
			m.ask(0)
		}
	}
}

// heard is called when node j was read, in a question that was sent at sent and not before
// then. The nodes that have forgotten in between may be judged better by it.
func (g *guard) heard(j int, before nodeReading) {
	for i := range g.nodes {
		if i == j {
			continue
		}
		m := &g.nodes[i]
		m.mu.Lock()
		if m.record != nil && m.record.Basis < record.Asked && before.last < m.birth.latest && m.birth.latest <= before.sent {
			m.ask(0)
		} else {
			m.mu.Unlock()
		}
	}
}
