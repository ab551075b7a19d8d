package redlock

import (
	"time"

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
}

func newGuard(s *settings, nodes []protocol.Node) *guard {
	g := &guard{settings: s, nodes: make([]memory, len(nodes))}
	for i, n := range nodes {
		m := &g.nodes[i]
		m.guard, m.index, m.node, m.readAt, m.failed = g, i, n, -1, -1
	}
	return g
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
