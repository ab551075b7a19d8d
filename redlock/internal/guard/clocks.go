package guard

import (
	"fmt"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// The clocks of the other servers show whether a server's clock is right. A vote that was given
// while the clock was behind ends too early once the clock is set, and a generation that was born
// then seems older than it is. A client that arrives later can see neither, because it has not read
// the clock before.
//
// Each record stores the lead of the server's clock over the others at the birth of the generation
// (record.Off). The common time, according to this server, is its clock minus that amount. A node
// has a vote only while a quorum of nodes, itself included, surely has the same common time to
// within a second (record.Apart). A node with another time gets a new generation, and so a
// quarantine, from each client that knows the common time of a quorum, or the clocks of all nodes.
//
// Two quorums share a node. So while fewer than a quorum of clocks are wrong in the same way, two
// clients cannot find different common times, and do not take turns in writing generations. A
// client that knows too few clocks writes no generation: it could give a node the time of a wrong
// clock.
//
// Servers whose clocks have always differed keep their votes. Clocks that drift apart cost a node
// one quarantine for each second. A distant client does not know clocks well enough to judge clocks
// that differ by nearly a second. So it writes an Off for each clock that it cannot be sure of, if
// the clock differs by at least half a second. For smaller differences, the client can be sure if a
// round trip takes less than half a second.

// A standard is the result of comparing a node's clock with the clocks of other nodes.
type standard uint8

const (
	unsure standard = iota // too few clocks are known well enough
	right                  // a quorum has the same common time
	wrong                  // a quorum has another time, or no quorum can have the same time
)

// common returns bounds for the common time at now, according to the node.
func (m *memory) common(now clock.Instant) (earliest, latest time.Duration) {
	return m.time.offset.Earliest(now) - m.time.off, m.time.offset.Latest(now) - m.time.off
}

// isRead reports whether the node's record has been read, and is not being read again.
func (m *memory) isRead() bool { return m.readAt >= 0 && !m.isAsked() }

// isAsked reports whether a question for the node's record is in progress. The answer shows the
// node's clock.
func (m *memory) isAsked() bool { return m.asked.tries > 0 && !m.asked.isHeld }

// compare compares the clock of a node that has a record with the clocks of the others.
func (g *Guard) compare(m *memory, now clock.Instant) standard {
	if now < m.time.rightUntil {
		return right
	}
	earliest, latest := m.common(now)
	var gaps [quorum.MaxNodes]time.Duration // largest possible gap to each node that surely agrees
	agree, mayAgree, isAwaited := gaps[:0], 0, false
	for i := range g.nodes {
		other := &g.nodes[i]
		isAwaited = isAwaited || other != m && other.isAsked()
		from, to := other.common(now)
		switch gap := max(latest-from, to-earliest); {
		case other == m:
			agree = append(agree, 0)
		case other.readAt >= 0 && gap <= record.Apart:
			agree = append(agree, gap)
		case !other.isRead(), earliest-to <= record.Apart && from-latest <= record.Apart:
			mayAgree++
		}
	}
	if len(agree) >= g.quorum() {
		slices.Sort(agree)
		// Until a clock is set, a gap grows by no more than the drift of both clocks.
		m.time.rightUntil = now.Add((record.Apart - agree[g.quorum()-1]) * quorum.DriftRate / 2)
		return right
	}
	at, isKnown := g.commonTime(m, now)
	if isKnown && (middle(earliest, latest)-at).Abs() > record.Apart/2 || !isKnown && !isAwaited && len(agree)+mayAgree < g.quorum() {
		return wrong
	}
	return unsure
}

// isFresh reports whether the node's clock was read recently and precisely enough for calculations.
func (m *memory) isFresh(now clock.Instant) bool {
	o := &m.time.offset
	return m.readAt >= 0 && o.Age(now) <= 10*time.Second && o.Latest(now)-o.Earliest(now) <= record.Apart
}

func middle(earliest, latest time.Duration) time.Duration { return earliest + (latest-earliest)/2 }

// commonTime returns the common time that one node is compared with. It is the median of the clocks
// that were read recently, if a quorum agrees with it. Otherwise the common time is known only if
// all clocks are known, and is then the latest clock. Nothing shows which clocks are right, and a
// clock that is behind at the birth of a generation, and is then set, must not make the generation
// seem older than it is.
func (g *Guard) commonTime(of *memory, now clock.Instant) (at time.Duration, isKnown bool) {
	var room [quorum.MaxNodes]time.Duration
	all := room[:0]
	for i := range g.nodes {
		if m := &g.nodes[i]; m.isFresh(now) && (m.isRead() || m == of) {
			all = append(all, middle(m.common(now)))
		}
	}
	if len(all) == 0 {
		return 0, false
	}
	slices.Sort(all)
	at = all[(len(all)-1)/2]
	n := 0
	for _, t := range all {
		if (t - at).Abs() <= record.Apart {
			n++
		}
	}
	if n >= g.quorum() {
		return at, true
	}
	return all[len(all)-1], len(all) == len(g.nodes)
}

// off returns the Off of a new record. It is unknown while the common time is unknown.
func (g *Guard) off(m *memory, now clock.Instant) (d time.Duration, isKnown bool) {
	at, isKnown := g.commonTime(m, now)
	reading := middle(m.time.offset.Earliest(now), m.time.offset.Latest(now))
	return record.Off(reading - at), isKnown && m.isFresh(now)
}

// mustRenew reports whether the node gets a new generation although it has a record. A generation
// that is younger than this client's wait stays, so that clients with different knowledge of the
// clocks cannot keep a node from voting.
func (g *Guard) mustRenew(m *memory, now clock.Instant) bool {
	if m.birth.isSpoiled {
		return true
	}
	age := m.time.offset.Latest(now) - m.record.Born
	return (age < 0 || age >= g.openWait()) && g.compare(m, now) == wrong
}

// clockError returns the reason the node's clock leaves it without a vote, or nil.
func (g *Guard) clockError(m *memory, now clock.Instant) error {
	if g.compare(m, now) != wrong {
		return nil
	}
	reason := "its clock differs from the clocks of other servers, and too few agree to show which is right: " +
		"set the clocks, or start the servers that are down"
	if at, isKnown := g.commonTime(m, now); isKnown {
		ahead, word := middle(m.common(now))-at, "ahead of"
		if ahead < 0 {
			word = "behind"
		}
		reason = fmt.Sprintf("its clock is %v %s the clocks of the other servers, now or when its epoch record was written",
			ahead.Abs().Round(time.Millisecond), word)
	}
	return &protocol.QuarantineError{Reason: reason}
}

// awaitsClocks reports whether a question to another node, which shows that node's clock, is in
// progress. If asks is true, it first asks all nodes whose clocks were not read recently.
func (g *Guard) awaitsClocks(node int, asks bool, now clock.Instant) bool {
	isAwaited := false
	for i := range g.nodes {
		m := &g.nodes[i]
		if i == node {
			continue
		}
		if asks && !m.isFresh(now) {
			g.ask(i, nil, now)
		}
		isAwaited = isAwaited || m.isAsked()
	}
	return isAwaited
}

// compares reports whether the vote waits for the clocks of other nodes. The other votes of its
// ballot, or answers to questions, show these clocks.
func (g *Guard) compares(v *vote, now clock.Instant) bool {
	t := v.trial
	if t.isOver || now >= v.heard.Add(4*g.terms.Timeout) {
		return false
	}
	if !t.Repairs && t.heard != quorum.All(len(g.nodes)) || g.awaitsClocks(v.node, false, now) {
		return true
	}
	asks := !v.hasCompared
	v.hasCompared = true
	return g.awaitsClocks(v.node, asks, now)
}

// clockRead continues the votes and changes that waited for other nodes' clocks, after a clock was
// read or could not be read.
func (g *Guard) clockRead(now clock.Instant) {
	for i := range g.nodes {
		m := &g.nodes[i]
		if !m.asked.isHeld {
			continue
		}
		if change := g.change(m, 0, 0, now); change != nil {
			m.asked.isHeld = false
			g.send(i, change, now)
		} else if !g.awaitsClocks(i, false, now) {
			for _, v := range m.unpark() {
				g.settle(&v, errUnread, now)
			}
		}
	}
	waiting := g.unsure
	g.unsure = nil
	for i := range waiting {
		switch v, why := &waiting[i], g.consider(&waiting[i], now); {
		case why == errUnread || why == errWrong:
			g.ask(v.node, v, now)
		default:
			g.settle(v, why, now)
		}
	}
}
