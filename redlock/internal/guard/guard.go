package guard

import (
	"cmp"
	"fmt"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// Terms are the parameters of a Guard.
type Terms struct {
	Nodes   int           // number of nodes
	Key     string        // key of the nodes' records
	Groups  string        // hash of all groups of nodes, see package groups; empty without groups
	Timeout time.Duration // timeout of a question for a record
	MaxTTL  time.Duration // longest TTL that other clients are assumed to use while no node knows better

	Life       func() time.Duration // draws a record's lifetime, as record.DrawLife does
	Generation func() string        // draws the name of a generation, as record.New does
}

// Settings must be the same in all clients of a node. Its record contains them.
type Settings struct {
	Nodes  int    // nodes that a quorum is counted from
	Groups string // as in the Terms
}

// SettingsOf returns the Settings of the clients that wrote a record.
func SettingsOf(r *record.Record) Settings { return Settings{r.Nodes, r.Groups} }

// Refuses returns the reason a client with these Terms gets no vote from a node whose clients have
// other settings, or nil. A node without a record has the zero Settings. The client must not change
// a record that it refuses.
func (t *Terms) Refuses(by Settings) error {
	switch own := (Settings{t.Nodes, t.Groups}); {
	case by == own, by == Settings{}:
		return nil
	case by.Groups != own.Groups:
		return fmt.Errorf("%w: they use other groups or servers, and may hold locks that this client does not see: "+
			"configure the same groups and servers in all clients, or stop all clients for the longest TTL and run redlock reset (key %q)", ErrSettings, t.Key)
	default:
		return fmt.Errorf("%w: they lock by %d nodes, this client by %d, and two such quorums need not share a node: "+
			"configure the same nodes in all clients, or stop all clients and run redlock reset (key %q)", ErrSettings, by.Nodes, own.Nodes, t.Key)
	}
}

// mustWithdraw reports whether a node's record with this client's settings must be removed, because
// a quorum of the nodes belongs to clients with other settings. This happens if clients of both
// kinds find new nodes at the same moment. The record wins no lock, but with it, one more node that
// forgets would give the quorum to this client's settings.
func (g *Guard) mustWithdraw(m *memory, now clock.Instant) bool {
	others := 0
	for i := range g.nodes {
		other := &g.nodes[i]
		if other.text != "" && g.terms.Refuses(other.by) != nil && now < other.time.lastSeen.Add(4*g.terms.Timeout) {
			others++
		}
	}
	return others >= g.quorum() && m.text != "" && g.terms.Refuses(m.by) == nil
}

// withdraw removes the records that this client must remove. It asks their nodes first.
func (g *Guard) withdraw(now clock.Instant) {
	for i := range g.nodes {
		if g.mustWithdraw(&g.nodes[i], now) {
			g.ask(i, nil, now)
		}
	}
}

// Introduce asks for all records. So a node without a record gets its first one, and the records
// that mustWithdraw reports are removed.
func (g *Guard) Introduce(now clock.Instant) {
	for i := range g.nodes {
		g.ask(i, nil, now)
	}
}

// A Guard holds one client's knowledge of the memories of all its nodes. It is not safe for
// concurrent use.
type Guard struct {
	terms   *Terms
	nodes   []memory
	unsure  []vote // waiting until the clocks of a quorum are known
	admits  []Admit
	settled []Settled
}

// New returns a Guard that has read no record yet.
func New(t Terms) *Guard {
	g := &Guard{terms: &t, nodes: make([]memory, t.Nodes)}
	for i := range g.nodes {
		g.nodes[i].readAt = -1
	}
	return g
}

// A Verdict reports whether a reply has been judged.
type Verdict uint8

const (
	// Judged: the reply is final. A grant that does not count was changed to Unknown.
	Judged Verdict = iota
	// Parked: the vote is judged later, and a Settled reports the result.
	Parked
)

// An Admit is a request that the owner sends to a node. It passes the reply to Record, or the
// failure if the request could not be sent.
type Admit struct {
	Node    int
	Sent    clock.Instant // identifies the Admit in Record
	Request *protocol.Request
}

// A Settled is the verdict on a vote that was parked.
type Settled struct {
	Trial *Trial
	Node  int
	Reply protocol.Reply
}

// Effects returns the effects since the last call. The owner calls it after each other method.
func (g *Guard) Effects() ([]Admit, []Settled) {
	admits, settled := g.admits, g.settled
	g.admits, g.settled = nil, nil
	return admits, settled
}

// Judge judges a node's reply to a ballot: it changes a grant that does not count to Unknown. The
// owner ensures that no server replies twice.
func (g *Guard) Judge(t *Trial, node int, reply *protocol.Reply, now clock.Instant) Verdict {
	m, req := &g.nodes[node], t.Request
	t.heard.Add(node)
	if len(g.unsure) > 0 {
		defer g.clockRead(now)
	}
	g.askUnread(node, now)
	if reply.Outcome != protocol.Granted && reply.Outcome != protocol.Refused {
		return Judged
	}
	v := vote{trial: t, node: node, reply: *reply, heard: now, hadKey: req.Op.Extends() && t.HadKey.Has(node)}
	if reply.Outcome == protocol.Refused {
		// A refusal always counts. But if this client does not know the node's record, the record
		// may list locks that other nodes have forgotten.
		if reply.Life > 0 && !m.covers(&v) {
			g.ask(node, nil, now)
		}
		return Judged
	}
	why := g.consider(&v, now)
	if g.terms.Refuses(m.by) != nil {
		g.withdraw(now)
	}
	if why == errUnread || why == errWrong {
		g.ask(node, &v, now)
		return Parked
	}
	if !g.conclude(&v, why, now) {
		return Parked
	}
	*reply = v.reply
	return Judged
}

// conclude sets the final reply of a vote. The vote counts if why is nil. If its TTL must first be
// entered into the node's record, the vote continues to wait, and conclude returns false. For an
// extension of a lock that the node had, the TTL is entered even if this vote is too old to count,
// because the next vote can count.
func (g *Guard) conclude(v *vote, why error, now clock.Instant) bool {
	t := v.trial
	if why == errUnsure && g.compares(v, now) {
		g.unsure = append(g.unsure, *v)
		return false
	}
	if !v.isEntry && (why == errUnlisted || why == errUnread && v.hadKey) {
		if !t.isOver {
			v.isEntry = true
			t.waiting = append(t.waiting, *v)
			t.promised.Add(v.node)
			g.enter(t, now)
			return false
		}
		why = ErrEarly
	}
	switch {
	case why == errUnread, why == errUnlisted, why == errWrong: // again, because other clients change the record
		why = cmp.Or(g.quarantineError(&g.nodes[v.node], t.Start, v.heard), why)
	case why == ErrEarly && t.granted.Size() >= g.quorum(): // without this vote
		why = nil
	}
	v.amend(why)
	if why == nil {
		t.granted.Add(v.node)
	}
	if why == nil || why == ErrEarly {
		t.promised.Add(v.node)
		g.enter(t, now)
	}
	return true
}

// enter starts to enter the TTLs of waiting votes, once a quorum of nodes has promised their votes.
// A lock that may still be refused enters nothing, because a TTL on record costs other clients a
// quarantine.
func (g *Guard) enter(t *Trial, now clock.Instant) {
	if !t.entersAtOnce() && t.promised.Size() < g.quorum() {
		return
	}
	due := t.waiting
	t.waiting = nil
	for i := range due {
		g.ask(due[i].node, &due[i], now)
	}
}

// settle concludes a vote that was parked. It reports the result to the owner, unless the vote
// continues to wait.
func (g *Guard) settle(v *vote, why error, now clock.Instant) {
	if g.conclude(v, why, now) {
		g.settled = append(g.settled, Settled{v.trial, v.node, v.reply})
	}
}

// Close ends a lost ballot for a new lock. Votes that wait for promises become void, and later
// votes enter nothing into a record.
func (g *Guard) Close(t *Trial) {
	t.isOver = true
	due := t.waiting
	t.waiting = nil
	for i := range due {
		g.settle(&due[i], ErrEarly, due[i].heard)
	}
	unsure := g.unsure
	g.unsure = nil
	for i := range unsure {
		if v := &unsure[i]; v.trial == t {
			g.settle(v, errUnsure, v.heard)
		} else {
			g.unsure = append(g.unsure, *v)
		}
	}
}

func (g *Guard) quorum() int { return quorum.Tally{Nodes: len(g.nodes)}.Quorum() }

// weigh derives from the memories of the other nodes which locks node i may have forgotten at the
// birth of its generation.
func (g *Guard) weigh(i int, now clock.Instant) record.Loss {
	of := &g.nodes[i]
	isAsked, unread := of.record != nil && of.record.Basis >= record.Asked, g.unread(of)
	accounts := make([]record.Account, 0, len(g.nodes))
	for j := range g.nodes {
		m := &g.nodes[j]
		a := record.Account{Longest: m.longestKnown(of, isAsked, now)}
		if j != i && !unread.Has(j) { // otherwise the client knows the node only from earlier readings
			a.Remembers = m.birth.latest < of.birth.earliest && g.isSettled(m, now)
		}
		accounts = append(accounts, a)
	}
	longest, alone, proof := record.Forgotten(len(g.nodes), accounts)
	loss := record.Loss{Longest: longest, Alone: alone}
	switch {
	case proof && !isAsked: // otherwise longestKnown omits TTLs that a proof needs
		loss.Basis = record.Proof
	case unread == 0:
		loss.Basis = record.Asked
	}
	return loss
}

// isSettled reports whether the node knows all living locks that it has ever voted for. A
// quarantine without a proof may be as short as this client's MaxTTL, while other clients may use
// longer TTLs. This client may rely on such a quarantine, but must not base a proof on it, because
// a proof binds the other clients. After such a quarantine, the node can prove something once
// AloneLimit times the MaxTTL has passed.
func (g *Guard) isSettled(m *memory, now clock.Instant) bool {
	isProven := m.forgot.Basis == record.Proof
	return m.record != nil && g.quarantineError(m, now, now) == nil && g.compare(m, now) == right &&
		(isProven || now.Sub(m.birth.latest) >= record.AloneLimit*g.terms.MaxTTL)
}
