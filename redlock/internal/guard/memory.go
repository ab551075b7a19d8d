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

// A memory is what this client knows of one node's memory.
type memory struct {
	// The record, as it was last read.
	text   string
	by     Settings        // of the clients that wrote the last text that was read; zero if none was
	record *record.Record  // nil if there is none, or it is not valid; never changed
	run    string          // the server that it was read from
	since  []clock.Instant // from when each step was on record, at the latest
	history

	birth  birth
	forgot record.Loss // the locks that the node may have forgotten at its birth
	known  []knownTTL  // of this generation and of those before
	time   serverTime

	readAt clock.Instant // when the last question was sent that was answered
	asked  question      // the one under way
	parked []vote        // until it is answered

	// When the first and the last question since readAt were sent that failed; failing is zero if
	// none did.
	failing, failed clock.Instant
}

// A birth is the moment at which a generation began, by our clock.
type birth struct {
	gen              string // empty if the node has no valid record
	earliest, latest clock.Instant
	seen             clock.Instant // when this client learned of it
	age              time.Duration // then, by the server's clock
	isSpoiled        bool          // keys may have expired too early since, or be older ones, which no other client has seen
}

// A history is how a record has come to be what it is. One that goes back shows a server with older keys.
type history struct {
	ends []end    // of the record as it was last read, and before its last four changes
	past []string // the generations before the last
	link int      // the connection by which the record was read
}

// An end is when a record dies, by the server's clock. Another is drawn with each change that clients must notice.
type end struct {
	at    time.Duration
	until clock.Instant // when a later one was heard of: a request that was sent then, or later, found that; zero: none was
}

// A knownTTL is one that locks of a node had.
type knownTTL struct {
	ttl     time.Duration
	gen     string        // of the record that told it
	entered clock.Instant // at the earliest
	until   clock.Instant // when the last such lock must have expired
}

// consider says why a vote does not count by what is known of its node, or nil.
//
// If the node is known to have had the key lately, that is memory enough for an extension.
// Elsewhere the key proves nothing: a late request, a void vote or a repair may have set it after
// the node forgot that it voted for another client. The TTL must be on record in any case, because
// the lock goes on.
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
	unlisted := m.lists(t, v.clock)
	if v.hadKey && t.Start >= m.time.noVotesUntil { // else the key has expired too early
		return unlisted
	}
	if why := g.standing(m, t.Start, v.heard); why != nil {
		return why
	}
	if m.forgot.Basis == record.Open {
		return errUnread // so that the record tells other clients that the other nodes were waited for
	}
	v.floor = m.record.Born + 5*TokenSlack // also of an early vote, which may count after all
	if unlisted != nil && (unlisted != ErrEarly || !t.Repairs) {
		return unlisted
	}
	return v.tokens()
}

// lists says why the record does not cover a ballot's TTL at the time clock, or nil. The TTL must
// have been on record before the ballot began. Else the node could have voted, forgotten the vote
// and been read by others, all before any record told how long such locks are.
func (m *memory) lists(t *Trial, clock time.Duration) error {
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

// covers reports whether the node had the record that this client knows when it gave v: the same
// server, the same generation, and a clock that was not set.
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

// standing says why the node has no vote for a ballot that began at start, or nil. A vote from a
// quarantine does not count when that is over, either: the node may have forgotten it as well,
// which only the quarantine shows.
func (g *Guard) standing(m *memory, start, now clock.Instant) error {
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
		return &protocol.QuarantineError{Reason: "it may have forgotten locks, and other nodes that may know of them have not answered yet"}
	}
	return nil
}

// refuses says why the node belongs to clients with other settings, or nil. A node without a record
// belongs to those who had more of the nodes, if they still have one. Otherwise a client with other
// settings could get all nodes that forget, one after the other.
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

// unread returns the other nodes whose records this client has not read since the node's birth, or from
// a server that is another node's now. They may know more of what the node forgot.
func (g *Guard) unread(m *memory) (nodes quorum.Set) {
	for i := range g.nodes {
		if other := &g.nodes[i]; other != m && (other.readAt < m.birth.latest || g.isTwin(other)) {
			nodes.Add(i)
		}
	}
	return nodes
}

// isTwin reports whether another node was read from the same server at the same time or later. One server
// remembers for one node only. If two nodes are exchanging their servers, the other server was not read.
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

// haveFailed reports whether each of the nodes failed to answer a question sent at since or later, and
// all questions of the span before it. A single failure proves nothing: the node may be reachable
// again, and remember longer locks. A server that two nodes lead to has nothing more to tell.
func (g *Guard) haveFailed(nodes quorum.Set, since clock.Instant, span time.Duration) bool {
	for i := range g.nodes {
		m := &g.nodes[i]
		if nodes.Has(i) && !g.isTwin(m) && (m.failing == 0 || m.failed < since || m.failed.Sub(m.failing) < span) {
			return false
		}
	}
	return true
}

// aheadError says that the node's clock was set ahead. If the clocks of most nodes have gone ahead
// of ours, ours is likelier to be wrong. Still no vote counts, because the keys may have expired
// too early all the same.
func (g *Guard) aheadError(m *memory, now clock.Instant) error {
	n := 0
	for i := range g.nodes {
		if now < g.nodes[i].time.noVotesUntil {
			n++
		}
	}
	isOurs, reason := n > 1 && n > len(g.nodes)/2, "its clock was set ahead by up to %v"
	if isOurs {
		reason = "it and most servers have gone up to %v ahead of this machine's clock, which runs slow or stood still"
	}
	reason = fmt.Sprintf(reason, m.time.ahead.Round(time.Millisecond))
	return &protocol.QuarantineError{Left: max(0, m.time.noVotesUntil.Sub(now)), Behind: isOurs, Reason: reason}
}

// openWait is the least time that a client gives the other nodes to tell what they remember.
const openWait = time.Second

// openWait is the time that this client gives them.
func (g *Guard) openWait() time.Duration { return max(g.terms.MaxTTL, openWait) }

// votesFrom is when each lock that the node may have forgotten must have expired. While the other
// nodes cannot tell how long these locks were, this client assumes its own MaxTTL, and gives the
// others that time to answer. Votes from before the birth never count.
func (g *Guard) votesFrom(m *memory) clock.Instant {
	assumed := g.terms.MaxTTL
	left := m.forgot.Wait(assumed) - m.birth.age
	if m.forgot.Basis == record.Open {
		left = max(left, g.openWait())
	}
	if left > 0 { // by our clock, too: the server's may be set meanwhile
		left += quorum.Drift(left)
	}
	return max(m.birth.latest, m.birth.seen.Add(left))
}

// longestKnown returns the longest TTL of this node's locks that may be alive and are older than
// the birth of another node, or of this one. If all nodes were asked what that one forgot
// (isAsked), only memories that are gone can tell more, so TTLs of the node's present record are
// left out.
func (m *memory) longestKnown(of *memory, isAsked bool, now clock.Instant) (longest time.Duration) {
	for _, k := range m.known {
		isTold := isAsked && k.gen == m.birth.gen
		if !isTold && k.gen != of.birth.gen && k.entered <= of.birth.latest && k.until > now {
			longest = max(longest, k.ttl)
		}
	}
	return longest
}

// A serverTime is what this client knows of a server's clock. A clock that was set ahead expires
// keys that much too early, so the node has no vote for as long as a lock can live.
type serverTime struct {
	offset       quorum.Offset[clock.Instant]
	lastSeen     clock.Instant // the server had the record of the last reading or an earlier one then, or later
	readUntil    clock.Instant // when the last reading was heard
	off          time.Duration // of the last record that was valid
	rightUntil   clock.Instant // a quorum surely has the same time until then, unless a clock is set
	noVotesUntil clock.Instant // since the clock was set ahead, votes do not count before this
	ahead        time.Duration // by how much it was set, at most
	aheadTotal   time.Duration // the same of all jumps for which votes do not count yet

	// This client drops no step from the record before keepStepsUntil. It has not known the clock
	// for as long as the locks on record live. If the clock was set ahead meanwhile, steps only
	// seem to have faded, and the clients that noticed it need them.
	keepStepsUntil clock.Instant
}

// read takes a reading of the clock. isFirst means that this client has not read the record before.
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

// setAhead gives the node no vote for the longest TTL, because its clock was set ahead by jump, at
// most. By that clock, locks on record may seem to have expired that have not.
func (c *serverTime) setAhead(r *reading, jump, longest time.Duration) {
	if r.heard >= c.noVotesUntil {
		c.aheadTotal = 0
	}
	c.aheadTotal += jump
	for _, s := range r.told.Steps {
		if s.Until() >= r.clock-c.aheadTotal { // had not faded before
			longest = max(longest, s.TTL)
		}
	}
	if until := r.heard.Add(longest + quorum.Drift(longest)); until > c.noVotesUntil {
		c.noVotesUntil, c.ahead = until, jump
	}
}

// least returns what the clock shows, less what it was set ahead lately. Ages are reckoned by it,
// because they must not be taken for too long.
func (c *serverTime) least(r *reading) time.Duration {
	if r.heard < c.noVotesUntil {
		return r.clock - c.aheadTotal
	}
	return r.clock
}
