package trust

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/lockorder"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A nodeEpoch is what the guard knows of one node's memory (see the package). It judges the node's
// votes.
type nodeEpoch struct {
	guard *Guard
	index int
	node  protocol.Node

	mu             lockorder.Mutex[lockorder.Memory]
	text           string          // of the record, as last read
	record         *record.Record  // the same; nil: the node has none that is valid
	nodes          int             // by which the clients lock that wrote the text; zero: there is none
	run            string          // of the server that it was read from
	ends           []time.Duration // when the record dies, by the server's clock; those before are of the same generation
	generation     generationStart
	forgot         record.Loss // when the generation began, as far as is known
	steps          []ttlStep   // the steps of the record
	knownTTLs      []knownTTL  // of this generation and of those before
	offset         quorum.Offset[clock.Instant]
	noVotesUntil   clock.Instant // since the server's clock was set ahead, votes do not count before this
	aheadUntil     atomic.Int64  // the same, for Guard.isBehind, which does not lock
	ahead          time.Duration // by how much it was, at most
	skewTotal      time.Duration // by how much it was, together, while votes do not count for it
	keepStepsUntil clock.Instant // until then this client drops no step from the record (see drops)
	lastGood       lastSeen      // what was last looked at and found in order
	clock          time.Duration // the server's, as fine shows it

	readAt  clock.Instant // when the last question that was answered was sent
	failed  clock.Instant // the same of the last that came to nothing
	asking  *reading      // under way
	parked  []vote
	entries time.Duration // the longest TTL that a parked vote needs on record
}

// A generationStart is when a generation began, by our clock.
type generationStart struct {
	gen              string
	earliest, latest clock.Instant // what is known of it
	seen             clock.Instant // when this client learned of it
	age              time.Duration // then, by the server's clock
	basis            record.Basis  // of what was forgotten, as the record has it
}

// A knownTTL is one that locks of a node had.
type knownTTL struct {
	ttl     time.Duration
	gen     string        // of the record that told it
	entered clock.Instant // at the earliest
	until   clock.Instant // when the last such lock must have expired, at the latest
}

// A ttlStep says since when a step is on record, for all that this client knows.
type ttlStep struct {
	ttl, entered time.Duration
	since        clock.Instant // at the latest
}

// A lastSeen is what a reply shows of a node's memory.
type lastSeen struct {
	run  string
	life time.Duration
}

// verdicts of a vote.
type judgement uint8

const (
	counts   judgement = iota
	unread             // the record must be read first
	unlisted           // the TTL must be entered into the record first
	void               // it does not count
	fresh              // it does not count, but would if the node were asked again
)

// judge says what becomes of v, and why if it does not count. An extension is judged as any vote
// first. Only if it does not count so, the ballot is asked whether the node had the key, because
// that takes more locks.
func (m *nodeEpoch) judge(v *vote) (judgement, error) {
	j, err := m.judgeAlone(v)
	if j == counts || !v.req.Op.Extends() {
		return j, err
	}
	if v.hadKey = v.trial.ballot.HadKey(v.node); !v.hadKey {
		return j, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.consider(v)
}

// judgeAlone is judge without that question. Votes of one moment are alike, and the clock is not read
// for all but the first.
func (m *nodeEpoch) judgeAlone(v *vote) (judgement, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ttl := v.req.TTL
	seen := lastSeen{v.reply.Run, v.reply.Life}
	if seen.life > 0 && seen == m.lastGood && v.start >= m.generation.latest {
		v.clock, v.floor = m.clock, m.tokenFloor()
		if m.lists(ttl, v.clock, v.start) == counts {
			return v.tokens()
		}
	}
	v.heard = m.guard.config.Clock.Now()
	return m.consider(v)
}

// consider is judgeAlone without that short cut, and with hadKey if it is set. Where a node is
// known to have had a value lately, that is memory enough for an extension. Elsewhere the value
// proves nothing: a late request, a void vote or a repair may have put it there since the node
// forgot that it voted for another client. The TTL must be on record in any case, because the lock
// goes on. The nodeEpoch must be locked.
func (m *nodeEpoch) consider(v *vote) (judgement, error) {
	if !m.covers(v) {
		return unread, nil
	}
	if v.hadKey && v.start >= m.noVotesUntil { // else the key has expired too early
		return m.lists(v.req.TTL, v.clock, v.start), nil
	}
	if err := m.standing(v.start, v.heard); err != nil {
		return void, err
	}
	if m.forgot.Basis == record.Open && m.readAt < m.votesFrom() {
		return unread, nil // so that the record tells others that the others were waited for
	}
	if v.start < m.generation.latest {
		return void, errYounger
	}
	v.floor = m.tokenFloor()
	if j := m.lists(v.req.TTL, v.clock, v.start); j == unlisted || j == fresh && !v.trial.isRepair {
		return j, nil
	}
	m.lastGood, m.clock = lastSeen{v.reply.Run, v.reply.Life}, v.clock
	return v.tokens()
}

// lists says whether a TTL was on record at the time clock, and if so whether it was
// before a round began. A vote of the round that was given before another node had the TTL
// on record can have been forgotten by then, while no record told how long such locks are.
// The nodeEpoch must be locked.
func (m *nodeEpoch) lists(ttl, clock time.Duration, start clock.Instant) judgement {
	j := unlisted
	for i, s := range m.record.Steps {
		if s.Covers(ttl, clock) {
			if m.steps[i].since <= start {
				return counts
			}
			j = fresh
		}
	}
	return j
}

// covers reports whether what is known of the record still held when v was
// given: the same server, the same generation, and a clock that was not set. The memory
// must be locked.
func (m *nodeEpoch) covers(v *vote) bool {
	if m.record == nil || v.reply.Run != m.run || v.reply.Life <= 0 {
		return false
	}
	for i, end := range m.ends {
		v.clock = end - v.reply.Life
		next, jump := m.offset.Read(v.clock, v.start, v.heard)
		if jump == 0 {
			if i == 0 {
				m.offset = next
			}
			return true
		}
	}
	return false
}

// standing says why the node has no vote for a round that began at start, or nil. A vote that was
// given in quarantine does not count afterwards either: the node may forget it without a sign that
// the quarantine is for. The nodeEpoch must be locked.
func (m *nodeEpoch) standing(start, now clock.Instant) error {
	g := m.guard
	switch from := m.votesFrom(); {
	case m.nodes != 0 && m.nodes != len(g.nodes):
		return fmt.Errorf("%w: they lock by %d nodes, this one by %d, and two such quorums need not meet; "+
			"give all clients the same nodes, or stop them all and run redlock reset (key %q)",
			ErrSettings, m.nodes, len(g.nodes), g.config.Key)
	case m.record == nil:
		return &protocol.QuarantineError{Reason: "it has no record of its memory yet"}
	case start < m.noVotesUntil:
		err := &protocol.QuarantineError{Left: max(0, m.noVotesUntil.Sub(now)), Behind: g.isBehind(now)}
		if err.Reason = fmt.Sprintf("its clock was set ahead by up to %v", m.ahead.Round(time.Millisecond)); err.Behind {
			err.Reason = fmt.Sprintf("it and most servers have gone up to %v ahead of this machine's clock, which runs slow or stood still", m.ahead.Round(time.Millisecond))
		}
		return err
	case start < from:
		return &protocol.QuarantineError{Left: max(0, from.Sub(now)), Reason: "it was restarted or flushed, or is new, and may have forgotten locks"}
	}
	return nil
}

// votesFrom is when each lock that the node may have forgotten must have expired. Where
// other nodes cannot tell how long locks were, it is when this client's own would have,
// and a client that comes first gives the others as long to answer. The nodeEpoch must be
// locked.
func (m *nodeEpoch) votesFrom() clock.Instant {
	assumed := m.guard.config.MaxTTL
	left := m.forgot.Wait(assumed) - m.generation.age
	if m.forgot.Basis == record.Open {
		left = max(left, assumed, openWait)
	}
	if left > 0 { // by our clock, too: the server's may be set meanwhile
		left += quorum.Drift(left)
	}
	return m.generation.seen.Add(left)
}

// drops returns the server's time by which a step must have faded for this client to drop
// it from the record. A client that has not known the server's clock for as long as the
// locks on record live cannot know which have faded, because that clock may have been set
// ahead; and those who noticed it need the steps. The nodeEpoch must be locked.
func (m *nodeEpoch) drops(now clock.Instant, earliest time.Duration) time.Duration {
	if now < m.keepStepsUntil {
		return 0
	}
	return earliest
}

// tokenFloor is the highest fencing token that the node may have accepted before it
// forgot, as a reading of its clock. The nodeEpoch must be locked.
func (m *nodeEpoch) tokenFloor() time.Duration { return m.record.Born + 5*TokenSlack }

// longestKnown returns the longest TTL that locks of the node had before a generation was born,
// of this node or another, and can still have. Of a generation about which all nodes have
// been asked, their present records tell nothing new; only what this client knows of
// memories that are gone does. The nodeEpoch must be locked.
func (m *nodeEpoch) longestKnown(b generationStart, now clock.Instant) (longest time.Duration) {
	for _, c := range m.knownTTLs {
		if b.basis >= record.Asked && m.record != nil && c.gen == m.record.Generation {
			continue
		}
		if c.gen != b.gen && c.entered <= b.latest && c.until > now {
			longest = max(longest, c.ttl)
		}
	}
	return longest
}

// fail notes that what was asked of the node at sent came to nothing.
func (m *nodeEpoch) fail(sent clock.Instant) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failed = max(m.failed, sent)
}

// isDown reports whether the node has just failed. The nodeEpoch must be locked.
func (m *nodeEpoch) isDown(now clock.Instant) bool {
	return m.failed > m.readAt && now.Sub(m.failed) < openWait
}
