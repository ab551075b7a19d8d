package trust

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// notice looks at a vote against us. It counts in any case, but a node that remembers
// tells of locks that others may have forgotten.
func (m *nodeEpoch) notice(v vote) {
	m.mu.Lock()
	v.heard = m.guard.config.Clock.Now()
	if v.reply.Life <= 0 || m.covers(&v) {
		m.mu.Unlock()
		return
	}
	m.ask(0)
}

// park keeps v until the record has been read, and v's TTL entered if that is missing.
func (m *nodeEpoch) park(v vote) {
	m.mu.Lock()
	entry := time.Duration(0)
	if v.entry {
		entry = v.req.TTL
	} else {
		v.trial.ballot.Examine(v.node)
	}
	m.parked = append(m.parked, v)
	m.ask(entry)
}

// ask has the record read, unless it is being read, and a TTL entered, and unlocks the
// nodeEpoch. A question that was not answered for long is given up: a node need not answer.
func (m *nodeEpoch) ask(entry time.Duration) {
	g := m.guard
	m.lastGood = lastSeen{}
	m.entries = max(m.entries, entry)
	var lost []vote
	now := g.config.Clock.Now()
	if r := m.asking; r != nil {
		if now < r.begin.Add(4*g.config.Timeout) {
			m.mu.Unlock()
			return
		}
		last := len(m.parked) - 1 // the one that asks
		if last >= 0 {
			lost, m.parked = m.parked[:last], m.parked[last:]
		}
	}
	r := &reading{epoch: m, begin: now}
	m.asking = r
	var change *protocol.Admission
	if m.record != nil && m.entries > 0 {
		change = m.change(m.offset.Earliest(now), m.offset.Latest(now))
	}
	m.mu.Unlock()
	for _, v := range lost {
		v.count(fmt.Errorf("its memory could not be checked (key %q): %w", g.config.Key, errNoRecord))
	}
	r.submit(change)
}

// A reading is a question for a node's record, and the changes that follow from it.
type reading struct {
	epoch *nodeEpoch
	begin clock.Instant
	tries int

	sent clock.Instant
	req  protocol.Request
}

// maxChanges is how often a reading tries to change the record. Another client may change
// it at the same time, but what both want is mostly the same.
const maxChanges = 5

// submit asks for the record, and for a change of it if there is one.
func (r *reading) submit(change *protocol.Admission) {
	m := r.epoch
	c := &m.guard.config
	r.tries++
	r.sent = c.Clock.Now()
	if change == nil {
		change = &protocol.Admission{}
	}
	r.req = protocol.Request{Op: protocol.OpAdmit, Key: c.Key, Timeout: c.Timeout, Admit: change}
	if err := m.node.Submit(&r.req, 0, r); err != nil {
		r.Receive(0, protocol.Reply{Outcome: protocol.Failed, Err: err})
	}
}

// A nodeReading is when a node was read, and when it was before.
type nodeReading struct{ last, sent clock.Instant }

// Receive implements Receiver: it changes the record if that is needed, and judges the
// votes that have waited for it.
func (r *reading) Receive(_ int, reply protocol.Reply) {
	m := r.epoch
	g := m.guard
	m.mu.Lock()
	if m.asking != r {
		m.mu.Unlock() // given up
		return
	}
	var failure error
	times := nodeReading{last: m.readAt, sent: r.sent}
	if reply.Outcome == protocol.Granted {
		failure = m.learn(reply, r.sent)
	} else {
		failure, m.failed = reply.Err, max(m.failed, r.sent)
	}
	b := m.generation
	m.mu.Unlock()

	var unread quorum.Set
	if failure == nil {
		var told record.Loss
		told, unread = g.weigh(m.index, b)
		m.mu.Lock()
		m.forgot = m.forgot.And(told)
		if change := m.change(reply.Epoch.Clock, reply.Epoch.Clock); change != nil && r.tries <= maxChanges {
			again := &reading{epoch: m, begin: r.begin, tries: r.tries}
			m.asking = again
			m.mu.Unlock()
			again.submit(change)
			return
		}
		if m.record == nil || m.forgot.Basis >= record.Asked {
			unread = 0
		}
	} else {
		m.mu.Lock()
	}
	parked := m.parked
	m.parked, m.asking, m.entries = nil, nil, 0
	m.mu.Unlock()
	if failure == nil {
		g.heard(m.index, times)
		g.consult(unread)
	}
	for _, v := range parked {
		m.settle(v, failure)
	}
}

// settle judges a vote whose record was read meanwhile. It is counted, or goes on to wait for its
// TTL to be entered.
func (m *nodeEpoch) settle(v vote, failure error) {
	if failure != nil {
		v.count(fmt.Errorf("its memory could not be checked (key %q): %w", m.guard.config.Key, failure))
		return
	}
	m.mu.Lock()
	j, err := m.consider(&v)
	standing := m.standing(v.start, v.heard)
	m.mu.Unlock()
	if !v.entry && (j == unlisted || j == unread && v.hadKey) { // the record is new to this client
		v.trial.list(v)
		return
	}
	switch j {
	case fresh:
		err = v.trial.tooEarly()
	case unread:
		err = cmp.Or(standing, errChanged)
	case unlisted:
		err = cmp.Or(standing, errContested)
	}
	v.count(err)
}

// What is wrong with a node whose record does not keep still. It could vote at once.
var (
	errYounger   error = &protocol.QuarantineError{Reason: "it may have forgotten the vote: its memory is not older"}
	errChanged   error = &protocol.QuarantineError{Reason: "its epoch record has just changed"}
	errContested error = &protocol.QuarantineError{Reason: "its epoch record is being changed by others"}
)

// learn takes in a record that was asked for at sent. The nodeEpoch must be locked.
func (m *nodeEpoch) learn(reply protocol.Reply, sent clock.Instant) error {
	heard := m.guard.config.Clock.Now()
	e := reply.Epoch
	var read *record.Record
	if e.Record != "" {
		var err error
		if read, err = record.Parse(e.Record); err != nil {
			return fmt.Errorf("its epoch record %w; redlock reset writes a new one, redlock doctor says more", err)
		}
	}
	met := m.readAt < 0
	m.readAt = sent
	if jump := m.tellTime(e.Clock, sent, heard); jump > 0 {
		m.quarantineAhead(read, jump, e.Clock, heard)
	} else if met {
		m.keepSteps(read, heard)
	}
	before := m.steps
	m.text, m.nodes, m.lastGood, m.steps = e.Record, 0, lastSeen{}, nil
	m.knownTTLs = slices.DeleteFunc(m.knownTTLs, func(c knownTTL) bool { return c.until < heard })
	if read != nil {
		m.nodes = read.Nodes
		m.learnTTLs(read, e.Clock, sent, heard)
		// After a PERSIST, or on another server: the keys may be those of another time.
		if reply.Life <= 0 || reply.Run != "" && !read.IsOf(reply.Run) {
			read = nil
		}
	}
	end := e.Clock + reply.Life
	known := m.record != nil && read != nil && m.record.Generation == read.Generation && m.run == reply.Run
	if read != nil {
		for _, s := range read.Steps {
			_, latest := quorum.Since(s.Entered, e.Clock, sent, heard)
			now := ttlStep{s.TTL, s.Entered, min(latest, heard)}
			for _, l := range before {
				if known && l.ttl == s.TTL && l.entered == s.Entered {
					now.since = min(now.since, l.since)
				}
			}
			m.steps = append(m.steps, now)
		}
	}
	switch {
	case read == nil:
		m.generation = generationStart{earliest: sent, latest: heard, seen: heard} // if it were born now
		m.forgot, m.ends = record.Loss{}, nil
	case !known:
		least := m.withoutLead(e.Clock, heard)
		earliest, _ := quorum.Since(read.Born, e.Clock, sent, heard)
		_, latest := quorum.Since(read.Born, least, sent, heard)
		latest = min(latest, heard) // since it has been seen
		m.generation = generationStart{
			gen: read.Generation, earliest: earliest, latest: latest, seen: heard,
			age: max(0, least-read.Born), basis: read.Basis,
		}
		m.forgot, m.ends = read.Loss(), []time.Duration{end}
		if e.Found > 0 {
			m.ends = append(m.ends, e.Clock+e.Found)
		}
	default:
		m.generation.basis = read.Basis
		m.forgot = m.forgot.And(read.Loss())
		const kept = 4
		m.ends = slices.Insert(m.ends[:min(len(m.ends), kept)], 0, end)
	}
	m.record, m.run = read, reply.Run
	return nil
}

// tellTime takes a reading of the server's clock, and returns by how much it was set ahead at
// most, or zero. The nodeEpoch must be locked.
func (m *nodeEpoch) tellTime(reading time.Duration, sent, heard clock.Instant) (jump time.Duration) {
	m.offset, jump = m.offset.Read(reading, sent, heard)
	return max(0, jump)
}

// quarantineAhead gives the node no vote because its clock was set ahead. Each key that it
// holds expires that much too early, whenever that is. The record r that was read with that
// clock tells also of locks that only seem to have expired. The nodeEpoch must be locked.
func (m *nodeEpoch) quarantineAhead(r *record.Record, jump, reading time.Duration, heard clock.Instant) {
	if heard >= m.noVotesUntil {
		m.skewTotal = 0
	}
	m.skewTotal += jump
	hold := m.guard.config.MaxTTL
	if r != nil {
		for _, s := range r.Steps {
			if s.Until() >= reading-m.skewTotal { // not faded before
				hold = max(hold, s.TTL)
			}
		}
	}
	if until := heard.Add(hold + quorum.Drift(hold)); until > m.noVotesUntil {
		m.noVotesUntil, m.ahead = until, jump
		m.aheadUntil.Store(int64(until))
	}
	m.keepSteps(r, heard)
}

// withoutLead returns a reading of the server's clock less what that was set ahead lately, as
// ages must be reckoned that must not be taken for too long. The nodeEpoch must be locked.
func (m *nodeEpoch) withoutLead(reading time.Duration, heard clock.Instant) time.Duration {
	if heard < m.noVotesUntil {
		return reading - m.skewTotal
	}
	return reading
}

// keepSteps keeps this client from dropping steps for as long as a lock of any of them can
// live. The nodeEpoch must be locked.
func (m *nodeEpoch) keepSteps(r *record.Record, heard clock.Instant) {
	if r == nil {
		return
	}
	for _, s := range r.Steps {
		m.keepStepsUntil = max(m.keepStepsUntil, heard.Add(s.TTL+quorum.Drift(s.TTL)))
	}
}

// learnTTLs notes which TTLs the record tells of, by our clock. The nodeEpoch must be locked.
func (m *nodeEpoch) learnTTLs(r *record.Record, reading time.Duration, sent, heard clock.Instant) {
	least := m.withoutLead(reading, heard)
	enter := func(c knownTTL, until time.Duration) {
		left := until - least
		if left < 0 {
			return
		}
		c.gen, c.until = r.Generation, heard.Add(left+left/quorum.DriftRate+quorum.ReadingError)
		for i, before := range m.knownTTLs {
			if before.ttl == c.ttl && before.gen == c.gen {
				m.knownTTLs[i].entered, m.knownTTLs[i].until = min(before.entered, c.entered), max(before.until, c.until)
				return
			}
		}
		m.knownTTLs = append(m.knownTTLs, c)
	}
	for _, s := range r.Steps {
		earliest, _ := quorum.Since(s.Entered, reading, sent, heard)
		enter(knownTTL{ttl: s.TTL, entered: earliest}, s.Until())
	}
	if r.Forgot > 0 {
		earliest, _ := quorum.Since(0, reading, sent, heard)
		enter(knownTTL{ttl: r.Forgot, entered: earliest}, r.Born+r.Forgot)
	}
}

// change is what has to be changed in the record as it was read, when the
// server's clock shows reading at the latest and earliest at the earliest, or nil. The
// nodeEpoch must be locked.
func (m *nodeEpoch) change(earliest, reading time.Duration) *protocol.Admission {
	n := len(m.guard.nodes)
	run := m.run
	if run == "" {
		run = record.Unknown
	}
	if m.nodes != 0 && m.nodes != n {
		return nil // those with another number of nodes change nothing
	}
	a := &protocol.Admission{Old: m.text, Run: run}
	if m.record == nil {
		born := record.New(run, n)
		born.Forgot, born.Alone = m.forgot.Longest, m.forgot.Alone
		a.New, a.Life = born.String(), record.DrawLife()
		return a
	}
	next := *m.record
	loss := m.forgot
	if now := m.guard.config.Clock.Now(); loss.Basis == record.Open && m.standing(now, now) == nil {
		loss.Basis = record.Tried // so that later clients need not wait as well
	}
	more := loss.Longest > max(next.Forgot, reading-next.Born) || loss.Alone > max(next.Alone, reading-next.Born)
	if loss.Basis > next.Basis || loss.Basis == next.Basis && loss.Basis != record.Proof && more {
		next.Forgot, next.Alone, next.Basis, a.Life = loss.Longest, loss.Alone, loss.Basis, record.DrawLife()
	}
	if m.entries > 0 && !next.Covers(m.entries, reading) {
		if next.Enter(m.entries, m.drops(m.guard.config.Clock.Now(), earliest), reading) {
			a.Life = record.DrawLife() // by which all clients notice
		}
	}
	if a.New = next.String(); a.New == m.text {
		return nil
	}
	return a
}
