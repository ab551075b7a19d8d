package guard

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A question is a request for a node's record, and changes it if necessary.
type question struct {
	sent  clock.Instant // the last request
	tries int           // number of requests; zero if no question is in progress
	entry time.Duration // longest TTL that parked votes need on record; zero if none does

	isHeld bool // the answer has arrived, and the change of the record waits until the common time is known
}

// maxChanges limits the number of times that a question tries to change the record. Another client
// may change it at the same time, but mostly both make the same change.
const maxChanges = 5

// ask sends a question for a node's record, unless one is in progress. A vote is parked until the
// answer arrives, and if it waits for an entry, the question enters its TTL. ask gives up a
// question that is overdue, because a reply may arrive long after its timeout.
func (g *Guard) ask(node int, v *vote, now clock.Instant) {
	m := &g.nodes[node]
	if m.asked.tries > 0 && now >= m.asked.sent.Add(4*g.terms.Timeout) {
		g.giveUp(m, errNoRecord, now)
	}
	if v != nil {
		m.parked = append(m.parked, *v)
		if v.isEntry {
			m.asked.entry = max(m.asked.entry, v.trial.Request.TTL)
		}
	}
	if m.asked.tries > 0 {
		return
	}
	change := &protocol.Admission{}
	if m.record != nil && m.asked.entry > 0 { // saves a round trip
		change = cmp.Or(g.change(m, m.time.offset.Earliest(now), m.time.offset.Latest(now), now), change)
	}
	g.send(node, change, now)
}

// send requests the record and a change of it, which may be empty.
func (g *Guard) send(node int, change *protocol.Admission, now clock.Instant) {
	q := &g.nodes[node].asked
	q.sent, q.tries = now, q.tries+1
	req := &protocol.Request{Op: protocol.OpAdmit, Key: g.terms.Key, Timeout: g.terms.Timeout, Admit: change}
	g.admits = append(g.admits, Admit{node, now, req})
}

// Record applies the reply to the Admit that was sent at sent. It requests the next change of the
// record if one is necessary. Otherwise it settles the votes that waited.
func (g *Guard) Record(node int, sent, heard clock.Instant, reply *protocol.Reply) {
	m := &g.nodes[node]
	if m.asked.tries == 0 || m.asked.sent != sent {
		return // the question was given up
	}
	before, text, heardBefore := m.readAt, m.text, m.time.readUntil
	if failure := g.learn(m, sent, heard, reply); failure != nil {
		g.giveUp(m, failure, heard)
		g.reread(node, heard)
		g.clockRead(heard)
		return
	}
	most := mostAhead
	if m.text == text {
		most = math.MaxInt64
	}
	if m.record != nil && (m.text == text || before < 0) {
		for i := range m.parked {
			if v := &m.parked[i]; v.trial.Start >= heardBefore && v.heard <= sent {
				g.fit(m, v, most)
			}
		}
	}
	m.forgot = m.forgot.And(g.weigh(node, heard))
	defer g.clockRead(heard)
	clock := reply.Epoch.Clock
	if change := g.change(m, clock, clock, heard); change != nil && m.asked.tries <= maxChanges {
		g.send(node, change, heard)
		return
	}
	if m.record == nil && m.asked.tries <= maxChanges && g.refuses(m) == nil {
		m.asked.isHeld = g.awaitsClocks(node, true, heard)
	}
	var waited []vote
	if !m.asked.isHeld {
		waited = m.unpark()
	}
	for i := range g.nodes {
		other := &g.nodes[i]
		// // The other node may know more about the loss of this node. Or this node may know more
		// about // the loss of the other, which was not read since then.
		helps := g.unread(m).Has(i) && m.record != nil && m.forgot.Basis < record.Asked &&
			!g.isTwin(other) && (other.failing == 0 || heard.Sub(other.failed) >= openWait) // otherwise the next vote asks
		isHelped := i != node && other.record != nil && other.record.Basis < record.Asked &&
			before < other.birth.latest && other.birth.latest <= sent
		if helps || isHelped {
			g.ask(i, nil, heard)
		}
	}
	g.withdraw(heard)
	for i := range waited {
		g.settle(&waited[i], g.consider(&waited[i], heard), heard)
	}
}

// fit checks the clock against a vote that was given between two readings of the same record. If
// the vote matches neither reading, the clock was ahead between the readings, by at most most. Keys
// that the server looked at during that time have expired too early, and no other reading shows
// that.
func (g *Guard) fit(m *memory, v *vote, most time.Duration) {
	if v.reply.Run != m.run || v.reply.Life <= 0 || m.covers(v) {
		return
	}
	jump := time.Duration(math.MaxInt64)
	for _, end := range m.ends {
		if _, d := m.time.offset.Read(end.at-v.reply.Life, v.trial.Start, v.heard); d > 0 {
			jump = min(jump, d)
		}
	}
	if jump < most {
		m.birth.isSpoiled = true
		m.time.setAhead(&reading{heard: v.heard, clock: v.clock, told: m.record}, jump, g.terms.MaxTTL)
	}
}

// mostAhead limits the assumed lead of a clock that differs from the first reading of a record. If
// another client changed the record in the meantime, a vote matches no record, and its clock seems
// to be years ahead or behind.
const mostAhead = 48 * 60 * time.Minute

// askUnread asks, with each reply to a ballot, the nodes that may help to end an open basis: the
// nodes that were not read since the birth of the node that replied, or this node itself.
func (g *Guard) askUnread(node int, now clock.Instant) {
	m := &g.nodes[node]
	for i := range g.nodes {
		other := &g.nodes[i]
		if g.isOpen(m) && g.unread(m).Has(i) {
			g.ask(i, nil, now)
		}
		if g.isOpen(other) && g.unread(other).Has(node) {
			g.ask(node, nil, now)
		}
	}
}

// reread repeats the questions to nodes whose open basis can end because a question to node has
// failed.
func (g *Guard) reread(node int, now clock.Instant) {
	for i := range g.nodes {
		m := &g.nodes[i]
		if g.isOpen(m) && g.unread(m).Has(node) && (g.quarantineError(m, now, now) == nil || g.mayBeTried(m, now)) {
			g.ask(i, nil, now)
		}
	}
}

// isOpen reports whether it is still unknown which locks the node may have forgotten.
func (g *Guard) isOpen(m *memory) bool { return m.record != nil && m.forgot.Basis == record.Open }

// giveUp ends a question without an answer. The votes that waited for it are void.
func (g *Guard) giveUp(m *memory, failure error, now clock.Instant) {
	if !m.asked.isHeld {
		m.failed = m.asked.sent
		if m.failing == 0 {
			m.failing = m.failed
		}
	}
	why := fmt.Errorf("its memory could not be checked (key %q): %w", g.terms.Key, failure)
	for _, v := range m.unpark() {
		g.settle(&v, why, now)
	}
}

// unpark ends a question, and returns the votes that waited for it.
func (m *memory) unpark() []vote {
	waited := m.parked
	m.parked, m.asked = nil, question{}
	return waited
}

// A reading is the answer to a question: a record and the server's clock.
type reading struct {
	sent, heard clock.Instant
	clock       time.Duration
	told        *record.Record // the record in the text, valid or not; empty without a text
	valid       *record.Record // the same record if it describes the server's present memory, otherwise nil
}

// learn applies the answer to a question.
func (g *Guard) learn(m *memory, sent, heard clock.Instant, reply *protocol.Reply) error {
	if reply.Outcome != protocol.Granted || reply.Epoch == nil {
		return cmp.Or(reply.Err, errNoRecord)
	}
	e := reply.Epoch
	r := reading{sent: sent, heard: heard, clock: e.Clock, told: &record.Record{}}
	if e.Record != "" {
		var err error
		if r.told, err = record.Parse(e.Record); err != nil {
			return fmt.Errorf("its epoch record %w: run redlock doctor for details, or redlock reset to write a new record", err)
		}
		// Without a lifetime (after a PERSIST), or on another server, the keys may be from another
		// time.
		if reply.Life > 0 && (reply.Run == "" || r.told.IsOf(reply.Run)) {
			r.valid = r.told
		}
	}
	m.time.read(&r, m.readAt < 0, g.terms.MaxTTL)
	m.learnTTLs(&r)
	isKnown := r.valid != nil && r.valid.Generation == m.birth.gen && reply.Run == m.run
	wentBack := m.wentBack(&r, isKnown)
	if !isKnown {
		if gen := m.birth.gen; gen != "" && (r.valid == nil || r.valid.Generation != gen) {
			m.past = append(m.past[max(0, len(m.past)-maxPast+1):], gen)
		}
		m.birth, m.forgot, m.ends, m.since = m.bornBy(&r), record.Loss{}, nil, nil
	}
	if r.valid != nil {
		m.time.off = r.valid.Off
		m.forgot = m.forgot.And(r.valid.Loss())
		m.endsAt(e.Clock+reply.Life, heard)
		m.since = m.stepsSince(&r)
	}
	m.birth.isSpoiled = m.birth.isSpoiled || wentBack
	m.failing, m.time.lastSeen = 0, max(m.time.lastSeen, sent)
	for i := range g.nodes {
		g.nodes[i].time.rightUntil = 0 // clocks may have been set, and Off may have changed
	}
	m.time.readUntil = heard
	m.readAt, m.run, m.link, m.text, m.record = sent, reply.Run, reply.Link, e.Record, r.valid
	if m.text != "" {
		m.by = SettingsOf(r.told)
	}
	return nil
}

// maxPast limits the number of earlier generations remembered for each node.
const maxPast = 16

// wentBack reports whether the record is older than the last one read. Then the server's keys are
// older, too: the server was restored from a snapshot, or has loaded an old dump. A step disappears
// by itself only after it has faded, and its last use only moves forward.
func (m *memory) wentBack(r *reading, isKnown bool) bool {
	switch {
	case r.valid == nil:
		return false
	case !isKnown || m.record == nil:
		return slices.Contains(m.past, r.valid.Generation)
	case r.valid.Basis < m.record.Basis:
		return true
	}
	return slices.ContainsFunc(m.record.Steps, func(known record.Step) bool {
		i := slices.IndexFunc(r.valid.Steps, func(s record.Step) bool { return s.TTL == known.TTL && s.Entered == known.Entered })
		if i < 0 {
			return known.Until() >= r.clock
		}
		return r.valid.Steps[i].Used < known.Used
	})
}

// endsAt records the time at which the record expires, according to an answer that was heard.
func (m *memory) endsAt(at time.Duration, heard clock.Instant) {
	if len(m.ends) > 0 {
		if last := &m.ends[0]; (last.at - at).Abs() <= quorum.ReadingError {
			last.at = at
			return
		}
		m.ends[0].until = heard
	}
	m.ends = slices.Insert(m.ends[:min(len(m.ends), 4)], 0, end{at: at})
}

// bornBy returns the birth of a generation that is new to this client. Without a valid record, the
// next generation is assumed to be born now.
func (m *memory) bornBy(r *reading) birth {
	b := birth{earliest: r.sent, latest: r.heard, seen: r.heard}
	if r.valid != nil {
		least := m.time.least(r)
		b.gen = r.valid.Generation
		b.earliest, _ = quorum.Since(r.valid.Born, r.clock, r.sent, r.heard)
		_, b.latest = quorum.Since(r.valid.Born, least, r.sent, r.heard)
		b.latest, b.age = min(b.latest, r.heard), max(0, least-r.valid.Born)
		if m.time.lastSeen > 0 { // earlier, the server had no record of this generation, whatever its clock shows
			b.earliest, b.latest = max(b.earliest, m.time.lastSeen), max(b.latest, m.time.lastSeen)
			b.age = min(b.age, r.heard.Sub(m.time.lastSeen))
		}
	}
	return b
}

// stepsSince returns the latest time at which each step of a valid record entered it. m.since has
// these times for the last record, if the generation is the same.
func (m *memory) stepsSince(r *reading) (since []clock.Instant) {
	for _, s := range r.valid.Steps {
		_, at := quorum.Since(s.Entered, r.clock, r.sent, r.heard)
		at = min(at, r.heard)
		for i, known := range m.since {
			if b := m.record.Steps[i]; b.TTL == s.TTL && b.Entered == s.Entered {
				at = min(at, known)
			}
		}
		since = append(since, at)
	}
	return since
}

// learnTTLs adds the TTLs of the record to the known TTLs.
func (m *memory) learnTTLs(r *reading) {
	m.known = slices.DeleteFunc(m.known, func(k knownTTL) bool { return k.until < r.heard })
	for _, s := range r.told.Steps {
		m.learnTTL(r, s.TTL, s.Entered, s.Until())
	}
	if longest := r.told.Forgot; longest > 0 {
		m.learnTTL(r, longest, 0, r.told.Born+longest)
	}
}

// learnTTL records a TTL of locks. By the server's clock, the first lock was acquired at entered or
// later, and the last must have expired at until.
func (m *memory) learnTTL(r *reading, ttl, entered, until time.Duration) {
	left := until - m.time.least(r)
	if left < 0 {
		return
	}
	k := knownTTL{ttl: ttl, gen: r.told.Generation, until: r.heard.Add(left + left/quorum.DriftRate + quorum.ReadingError)}
	k.entered, _ = quorum.Since(entered, r.clock, r.sent, r.heard)
	for i := range m.known {
		if b := &m.known[i]; b.ttl == k.ttl && b.gen == k.gen {
			b.entered, b.until = min(b.entered, k.entered), max(b.until, k.until)
			return
		}
	}
	m.known = append(m.known, k)
}

// mayBeTried reports whether clients that do not live as long as their own wait may together end an
// open basis: the record has been open for long, and the unread nodes have just failed. The record
// contains the time at which a client first found this. If another client finds it again one
// longest TTL later, no client has reached these nodes in between, because the basis would no
// longer be open.
func (g *Guard) mayBeTried(m *memory, now clock.Instant) bool {
	return m.birth.age >= record.AloneLimit*g.terms.MaxTTL && g.haveFailed(g.unread(m), now.Add(-openWait), 0)
}

// change returns the necessary change of the record as it was read, or nil. Clients with settings
// other than those of the record change nothing.
//
// The server's clock shows a time between earliest and latest. After an answer, both are the time
// in the answer. The conclusions of this client from all readings can be wrong at that point: if
// the clock was set back while the question was in progress, no reading shows it. Before an answer,
// locks that have expired by latest are omitted, and written after the answer if that was wrong.
func (g *Guard) change(m *memory, earliest, latest time.Duration, now clock.Instant) *protocol.Admission {
	if g.refuses(m) != nil {
		return nil
	}
	a := &protocol.Admission{Old: m.text, Run: cmp.Or(m.run, record.Unknown)}
	if g.mustWithdraw(m, now) {
		a.New, a.Life = m.text, time.Millisecond // the record expires
		return a
	}
	off, isKnown := g.off(m, now)
	if m.record == nil && !isKnown {
		return nil
	}
	if m.record == nil || isKnown && g.mustRenew(m, now) {
		born := record.Record{
			Run: a.Run, Generation: g.terms.Generation(), Nodes: len(g.nodes), Groups: g.terms.Groups,
			Born: record.Now, Off: off,
			Forgot: m.forgot.Longest, Alone: m.forgot.Alone,
		}
		if m.record != nil { // its own steps may belong to locks that have expired too early
			for _, s := range m.record.Steps {
				born.Forgot = max(born.Forgot, s.TTL)
			}
		}
		a.New, a.Life = born.String(), g.terms.Life()
		return a
	}
	next, loss := *m.record, m.forgot
	switch {
	case loss.Basis != record.Open:
	case g.quarantineError(m, now, now) == nil:
		loss.Basis = record.Tried // so that later clients need not wait as well
	case !g.mayBeTried(m, now):
	case next.Failed == 0:
		next.Failed = record.Now
	case latest-next.Failed >= g.openWait():
		loss.Basis = record.Tried
	}
	more := loss.Longest > max(next.Forgot, latest-next.Born) || loss.Alone > max(next.Alone, latest-next.Born)
	isNew := loss.Basis > next.Basis || loss.Basis == next.Basis && loss.Basis != record.Proof && more
	if isNew {
		next.Forgot, next.Alone, next.Basis = loss.Longest, loss.Alone, loss.Basis
	}
	if entry := m.asked.entry; entry > 0 && !next.Covers(entry, latest) {
		if now < m.time.keepStepsUntil {
			earliest = 0
		}
		isNew = next.Enter(entry, earliest, latest) || isNew // drops the steps that have faded by earliest
	}
	if a.New = next.String(); a.New == m.text {
		return nil
	}
	if isNew { // all clients must notice the change
		a.Life = g.terms.Life()
	}
	return a
}
