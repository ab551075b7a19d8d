package guard

import (
	"fmt"
	"strings"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A memory holds this client's knowledge of one node's memory.
type memory struct {
	// The record as last read.
	text   string
	by     Settings        // settings of the clients that wrote the last text; zero if none was read
	record *record.Record  // nil if the node has no valid record; never changed
	run    string          // server of the record
	since  []clock.Instant // latest time at which each step entered the record
	history

	birth  birth
	forgot record.Loss // locks that the node may have forgotten at its birth
	known  []knownTTL  // TTLs of this generation and of earlier ones
	time   serverTime

	readAt clock.Instant // when the last answered question was sent
	asked  question      // the question in progress
	parked []vote        // votes waiting for the answer

	// When the first and the last failed question since readAt were sent; failing is zero if no
	// question failed.
	failing, failed clock.Instant
}

// A birth is the moment at which a generation began, by our clock.
type birth struct {
	gen              string // empty if the node has no valid record
	earliest, latest clock.Instant
	seen             clock.Instant // when this client noticed it
	age              time.Duration // age at that time, by the server's clock
	isSpoiled        bool          // since the birth, keys may have expired early or become older, unnoticed by other clients
}

// A history holds earlier states of a record. A record that returns to an earlier state shows a
// server with older keys.
type history struct {
	ends []end    // ends of the record as last read, and before its last four changes
	past []string // earlier generations
	link int      // connection on which the record was read
}

// An end is the time at which a record expires, by the server's clock. It is drawn again with each
// change that clients must notice.
type end struct {
	at    time.Duration
	until clock.Instant // when a later end was first seen: requests sent from then on find the later end; zero: none was seen
}

// A knownTTL is a TTL of a node's locks.
type knownTTL struct {
	ttl     time.Duration
	gen     string        // generation of the record that listed it
	entered clock.Instant // earliest time of entry
	until   clock.Instant // when the last such lock must have expired
}

// consider returns the reason a vote does not count, by this client's knowledge of its node, or
// nil.
//
// For an extension, it is enough if the node is known to have had the key recently. Elsewhere the
// key proves nothing: a late request, a void vote or a repair may have set it after the node forgot
// that it voted for another client. The TTL must always be on record, because the lock continues.
func (g *Guard) consider(v *vote, now clock.Instant) error {
	m, t := &g.nodes[v.node], v.trial
	if !m.covers(v) {
		return errUnread
	}
	if m.birth.isSpoiled {
		return errUnread
	}
	switch g.compare(m, now) {
	case unsure:
		return errUnsure
	case wrong:
		return errWrong
	}
	unlisted := m.coversTTL(t, v.clock)
	if v.hadKey && t.Start >= m.time.noVotesUntil { // otherwise the key has expired too early
		return unlisted
	}
	if why := g.quarantineError(m, t.Start, v.heard); why != nil {
		return why
	}
	if m.forgot.Basis == record.Open {
		return errUnread // so that the record shows other clients that this client waited for the other nodes
	}
	v.floor = m.record.Born + 5*TokenSlack // set for an early vote, too, which may still count
	if unlisted != nil && (unlisted != ErrEarly || !t.Repairs) {
		return unlisted
	}
	return v.tokens()
}

// coversTTL returns the reason the record does not cover a ballot's TTL at the time clock, or nil.
// The TTL must have been on record before the ballot began. Otherwise the node could have voted and
// forgotten the vote, and other clients could have read the node, all before any record showed how
// long such locks are.
func (m *memory) coversTTL(t *Trial, clock time.Duration) error {
	why := errUnlisted
	for i, s := range m.record.Steps {
		if s.Covers(t.Request.TTL, clock) {
			if m.since[i] <= t.Start {
				return nil
			}
			why = ErrEarly
		}
	}
	return why
}

// covers reports whether the node voted with the record that this client knows: on the same server,
// in the same generation, and with a clock that was not set.
func (m *memory) covers(v *vote) bool {
	if m.record == nil || v.reply.Run != m.run || v.reply.Life <= 0 {
		return false
	}
	if v.reply.Link > m.link { // the server may have been restored from a snapshot, with an older record
		return false
	}
	for i, end := range m.ends {
		if end.until > 0 && v.trial.Start >= end.until {
			continue
		}
		v.clock = end.at - v.reply.Life
		if next, jump := m.time.offset.Read(v.clock, v.trial.Start, v.heard); jump == 0 {
			if i == 0 {
				m.time.offset, m.time.lastSeen = next, max(m.time.lastSeen, v.trial.Start)
			}
			return true
		}
	}
	return false
}

// quarantineError returns the reason the node has no vote for a ballot that began at start, or nil.
// A vote that was given during a quarantine does not count after it, either, because the node may
// have forgotten that vote, too, and only the quarantine shows this.
func (g *Guard) quarantineError(m *memory, start, now clock.Instant) error {
	if why := g.refuses(m); why != nil {
		return why
	}
	switch from := g.votesFrom(m); {
	case m.record == nil:
		return ErrNew
	case start < m.time.noVotesUntil:
		return g.aheadError(m, now)
	case g.compare(m, now) == wrong:
		return g.clockError(m, now)
	case m.birth.isSpoiled:
		return errSpoiled
	case start < from:
		return &protocol.QuarantineError{Left: max(0, from.Sub(now)), Reason: "it was restarted or flushed, or is new, and may have forgotten locks"}
	case m.forgot.Basis == record.Open && !g.haveFailed(g.unread(m), from, g.openWait()):
		return &protocol.QuarantineError{Reason: "it may have forgotten locks, and other nodes that may know about them have not answered yet"}
	}
	return nil
}

// refuses returns an error if the node belongs to clients with other settings, or nil. A node
// without a record belongs to the clients whose settings were on more of the nodes, if any node
// still has them. Otherwise a client with other settings could take over all nodes that forget, one
// at a time.
func (g *Guard) refuses(m *memory) (why error) {
	if m.text != "" {
		return g.terms.Refuses(m.by)
	}
	own, others := 0, 0
	for i := range g.nodes {
		other := &g.nodes[i]
		switch refused := g.terms.Refuses(other.by); {
		case other.by == Settings{}:
		case refused == nil:
			own++
		default:
			if others++; other.text != "" {
				why = refused
			}
		}
	}
	if own > others {
		return nil
	}
	return why
}

// unread returns the other nodes whose records this client has not read since the node's birth, or
// has read from a server that now belongs to another node. These nodes may know more about the
// locks that the node forgot.
func (g *Guard) unread(m *memory) (nodes quorum.Set) {
	for i := range g.nodes {
		if other := &g.nodes[i]; other != m && (other.readAt < m.birth.latest || g.isTwin(other)) {
			nodes.Add(i)
		}
	}
	return nodes
}

// isTwin reports whether another node was read from the same server at the same time or later. One
// server remembers for only one node. If two nodes are exchanging their servers, the other server
// was not read.
func (g *Guard) isTwin(m *memory) bool {
	process, _, _ := strings.Cut(m.run, "/")
	for i := range g.nodes {
		other := &g.nodes[i]
		if of, _, _ := strings.Cut(other.run, "/"); other != m && process != "" && of == process && other.readAt >= m.readAt {
			return true
		}
	}
	return false
}

// haveFailed reports whether each of the nodes failed to answer a question that was sent at since
// or later, after failing to answer for at least span. A single failure proves nothing: the node
// may be reachable again, and remember longer locks. If two nodes lead to one server, only one of
// them counts.
func (g *Guard) haveFailed(nodes quorum.Set, since clock.Instant, span time.Duration) bool {
	for i := range g.nodes {
		m := &g.nodes[i]
		if nodes.Has(i) && !g.isTwin(m) && (m.failing == 0 || m.failed < since || m.failed.Sub(m.failing) < span) {
			return false
		}
	}
	return true
}

// aheadError returns an error about the node's clock, which was set ahead. If the clocks of most
// nodes are ahead of ours, ours is more likely to be wrong. Even then no vote counts, because the
// keys may have expired too early.
func (g *Guard) aheadError(m *memory, now clock.Instant) error {
	n := 0
	for i := range g.nodes {
		if now < g.nodes[i].time.noVotesUntil {
			n++
		}
	}
	isOurs, reason := n > 1 && n > len(g.nodes)/2, "its clock was set ahead by up to %v"
	if isOurs {
		reason = "the clocks of this server and of most others are up to %v ahead of this machine's clock, which runs slow or stood still"
	}
	reason = fmt.Sprintf(reason, m.time.ahead.Round(time.Millisecond))
	return &protocol.QuarantineError{Left: max(0, m.time.noVotesUntil.Sub(now)), Behind: isOurs, Reason: reason}
}

// openWait is the minimum time that a client gives the other nodes to report which locks they
// remember.
const openWait = time.Second

// openWait returns this client's time for the other nodes.
func (g *Guard) openWait() time.Duration { return max(g.terms.MaxTTL, openWait) }

// votesFrom returns the time from which the node's votes count, because every lock that it may have
// forgotten must have expired. While the other nodes cannot report how long these locks were, this
// client assumes its own MaxTTL, and gives the others that time to answer. Votes from before the
// birth never count.
func (g *Guard) votesFrom(m *memory) clock.Instant {
	assumed := g.terms.MaxTTL
	left := m.forgot.Wait(assumed) - m.birth.age
	if m.forgot.Basis == record.Open {
		left = max(left, g.openWait())
	}
	if left > 0 { // must pass on our clock, too, because the server's clock may be set in the meantime
		left += quorum.Drift(left)
	}
	return max(m.birth.latest, m.birth.seen.Add(left))
}

// longestKnown returns the longest TTL among the locks of this node that may be alive and are older
// than the birth of another node, or of this one. If all nodes were asked about the other node's
// loss (isAsked), only memories that no longer exist can add to the answers, so TTLs of the present
// record are omitted.
func (m *memory) longestKnown(of *memory, isAsked bool, now clock.Instant) (longest time.Duration) {
	for _, k := range m.known {
		isTold := isAsked && k.gen == m.birth.gen
		if !isTold && k.gen != of.birth.gen && k.entered <= of.birth.latest && k.until > now {
			longest = max(longest, k.ttl)
		}
	}
	return longest
}

// A serverTime holds this client's knowledge of a server's clock. If the clock was set ahead, it
// expires keys too early by the same amount, so the node has no vote for the longest lifetime of a
// lock.
type serverTime struct {
	offset       quorum.Offset[clock.Instant]
	lastSeen     clock.Instant // at this time or later, the server had the record of the last reading or an earlier one
	readUntil    clock.Instant // arrival of the last reading
	off          time.Duration // Off of the last valid record
	rightUntil   clock.Instant // until this time a quorum surely has the same time, unless a clock is set
	noVotesUntil clock.Instant // votes do not count before this time, because the clock was set ahead
	ahead        time.Duration // upper limit of the jump
	aheadTotal   time.Duration // sum of all jumps for which votes do not count yet

	// This client drops no step from the record before keepStepsUntil, because until then it has
	// not known the clock for as long as the locks on record live. If the clock was set ahead
	// during that time, steps only seem to have faded, and the clients that noticed the jump need
	// them.
	keepStepsUntil clock.Instant
}

// read records a reading of the clock. isFirst means that this client has not read the record
// before.
func (c *serverTime) read(r *reading, isFirst bool, longest time.Duration) {
	var jump time.Duration
	c.offset, jump = c.offset.Read(r.clock, r.sent, r.heard)
	if jump > 0 {
		c.setAhead(r, jump, longest)
	}
	for _, s := range r.told.Steps {
		if jump > 0 || isFirst {
			c.keepStepsUntil = max(c.keepStepsUntil, r.heard.Add(s.TTL+quorum.Drift(s.TTL)))
		}
	}
}

// setAhead gives the node no vote for the longest TTL, because its clock was set ahead by at most
// jump. By that clock, locks on record may seem to have expired although they have not.
func (c *serverTime) setAhead(r *reading, jump, longest time.Duration) {
	if r.heard >= c.noVotesUntil {
		c.aheadTotal = 0
	}
	c.aheadTotal += jump
	for _, s := range r.told.Steps {
		if s.Until() >= r.clock-c.aheadTotal { // the step had not faded before
			longest = max(longest, s.TTL)
		}
	}
	if until := r.heard.Add(longest + quorum.Drift(longest)); until > c.noVotesUntil {
		c.noVotesUntil, c.ahead = until, jump
	}
}

// least returns the reading of the clock without the recent jumps ahead. Ages are computed from it,
// because they must not be too long.
func (c *serverTime) least(r *reading) time.Duration {
	if r.heard < c.noVotesUntil {
		return r.clock - c.aheadTotal
	}
	return r.clock
}
