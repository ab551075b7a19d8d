package trust

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A Config is what a Guard is made of.
type Config struct {
	Nodes   []protocol.Node
	Clock   clock.Clock
	Key     string        // of the nodes' records
	Timeout time.Duration // of a question for a record
	MaxTTL  time.Duration // the longest that locks of other clients have, where no node can tell
}

// A Guard is what one client knows of all its nodes' memories. It is safe for concurrent use.
type Guard struct {
	config Config
	nodes  []nodeEpoch
	clocks atomic.Pointer[clocks] // nil: not read so far
}

// New returns a Guard that has read no record yet.
func New(c Config) *Guard {
	g := &Guard{config: c, nodes: make([]nodeEpoch, len(c.Nodes))}
	for i, n := range c.Nodes {
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

// IsNear reports whether the nodes' clocks are known, of a quorum at least, and all that are known are
// within half of TokenSlack of the token. The other half is for the request's way to the node. A node
// that is to accept a number without a look at its clock must not be asked for one that is far ahead,
// because it would use up all numbers below. There may be no guard.
func (g *Guard) IsNear(token int64, now clock.Instant) bool {
	if g == nil {
		return false
	}
	seen := g.clocks.Load()
	if seen == nil || !seen.known || now.Sub(seen.at).Abs() > clocksAge {
		seen = g.readClocks(now)
		g.clocks.Store(seen)
	}
	t := time.Duration(token)*time.Microsecond - now.Sub(seen.at)
	return seen.known && t-seen.earliest <= TokenSlack/2 && seen.latest-t <= TokenSlack/2
}

// isBehind reports whether the clocks of most nodes have gone ahead of this client's lately. Either
// all of them were set, or, which is likelier, this one runs slow or stood still. It changes what is
// told and not what counts: the keys may have expired too early all the same.
func (g *Guard) isBehind(now clock.Instant) bool {
	n := 0
	for i := range g.nodes {
		if now < clock.Instant(g.nodes[i].aheadUntil.Load()) {
			n++
		}
	}
	return n > 1 && n > len(g.nodes)/2
}

func (g *Guard) readClocks(now clock.Instant) *clocks {
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

// openWait is how long the other nodes have at least, to answer a client that comes first.
const openWait = time.Second

// weigh concludes from what is known of the other nodes what node i has forgotten, when it
// was born. It returns the nodes that have not been read since then, whose
// records could tell more.
func (g *Guard) weigh(i int, b generationStart) (loss record.Loss, unread quorum.Set) {
	now := g.config.Clock.Now()
	down := true
	accounts := make([]record.Account, 0, len(g.nodes))
	for j := range g.nodes {
		m := &g.nodes[j]
		m.mu.Lock()
		a := record.Account{Longest: m.longestKnown(b, now)}
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
			a.Remembers = m.record != nil && m.generation.latest < b.earliest && m.standing(now, now) == nil
		}
		m.mu.Unlock()
		accounts = append(accounts, a)
	}
	longest, alone, proof := record.Forgotten(len(g.nodes), accounts)
	loss = record.Loss{Longest: longest, Alone: alone}
	switch {
	case proof && b.basis < record.Asked: // what longestKnown leaves out afterwards would be missing
		loss.Basis = record.Proof
	case unread == 0:
		loss.Basis = record.Asked
	case down && b.age >= record.AloneLimit*g.config.MaxTTL:
		loss.Basis = record.Tried // by those before, none of whom need have stayed for so long
	}
	return loss, unread
}

// consult has nodes read that were not read since another node was found to have forgotten.
func (g *Guard) consult(unread quorum.Set) {
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
func (g *Guard) heard(j int, before nodeReading) {
	for i := range g.nodes {
		if i == j {
			continue
		}
		m := &g.nodes[i]
		m.mu.Lock()
		if m.record != nil && m.record.Basis < record.Asked && before.last < m.generation.latest && m.generation.latest <= before.sent {
			m.ask(0)
		} else {
			m.mu.Unlock()
		}
	}
}

// Waiting returns how many votes wait for a node's record.
func (g *Guard) Waiting() (n int) {
	for i := range g.nodes {
		m := &g.nodes[i]
		m.mu.Lock()
		n += len(m.parked)
		m.mu.Unlock()
	}
	return n
}
