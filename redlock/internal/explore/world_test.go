// Package explore runs the Keys of package core for several processes against the servers of
// package sim, without goroutines: at random, and systematically. True time decides whether a
// promise is kept.
package explore

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/guard"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

const name = "k"

// A process is one client, with its own clock rate.
type process struct {
	index     int
	rate      float64
	offset    time.Duration
	group     *core.Group
	key       *core.Key
	callers   []*caller
	resumes   time.Duration // time until which the process is paused
	behind    time.Duration // until then the process is overloaded, and only ends expired holds
	guard     *guard.Guard  // nil: losses of memory are not noticed
	knows     quorum.Set    // nodes whose clock it has read, so that it notices when the clock is set
	listening int
	closed    bool
	voted     clock.Instant // start of its last attempt
	floor     int64         // highest token granted at that time
	proven    []proof
	drawn     int           // number of draws by its guard
	died      bool          // the process died recently; the nodes have its keys until they expire
	ahead     time.Duration // lead of its wall clock
	proposed  int64         // last token that it proposed
	wire      []*message    // messages to and from the process, in no order

	// For the judges.
	vote   vote
	first  first
	known  [5]forgotten  // the claim for which each node last counted
	placed clock.Instant // time at which it sent the last answered question about the queue
}

// A proof is the time until which a value is held, according to the last request that a quorum has
// granted.
type proof struct {
	value string
	until clock.Instant
}

// prove records that a quorum has granted a request.
func (p *process) prove(value string, until clock.Instant) {
	for i := range p.proven {
		if o := &p.proven[i]; o.value == value {
			o.until = max(o.until, until)
			return
		}
	}
	p.proven = append(p.proven, proof{value, until})
}

// proof returns the time until which a value is held, according to a quorum's grants; zero if it is
// not held.
func (p *process) proof(value string) clock.Instant {
	for i := range p.proven {
		if p.proven[i].value == value {
			return p.proven[i].until
		}
	}
	return 0
}

// A caller is a caller of a process, with its plans.
type caller struct {
	*core.Caller
	process *process
	hold    *core.Hold // set by Grant, cleared by End
	granted bool
	reads   bool          // the caller is a reader
	came    clock.Instant // start of its call
	again   int           // number of further tries
	rests   bool          // the caller rests until its next try
	over    bool          // its call has ended
	asks    *core.Caller  // its Release or Extend
	acts    time.Duration // time of its next action; never: it waits
	leaves  time.Duration // end of its context
	ends    clock.Instant // end of its MaxHold; zero: never
}

const never = time.Duration(1<<63 - 1)

// A message is a request in transit to a node, or an answer or a hint in transit to a process.
type message struct {
	at      time.Duration
	order   int
	what    what
	process int
	node    int
	ballot  *core.Ballot
	request *protocol.Request // nil: the request of the ballot
	reply   protocol.Reply
	key     string        // key of a hint
	sent    clock.Instant // sending time of a question for a record
	back    time.Duration
	unknown bool // the answer is lost or late
}

// asks returns the request of the message, or the request that it answers.
func (m *message) asks() *protocol.Request {
	if m.request == nil {
		return &m.ballot.Req
	}
	return m.request
}

type what uint8

const (
	request what = iota
	answer
	hint
	retry    // repetition of an unconfirmed release, by the node alone
	admit    // the guard's question for a node's record
	admitted // answer to admit; each answer constant follows its question
	stray    // a request that runs late or twice; it delays no other, and gets no answer
)

// A world has processes and nodes.
type world struct {
	now       time.Duration
	nodes     []*sim.Store
	processes []*process
	idle      []*message // messages for reuse
	reuses    bool
	remembers bool
	History   string // processes that were granted the lock, in order
	entered   int
	network   network
	problem   string
	grants    int
	token     int64 // highest token granted
	traces    bool
	doubled   func() bool                                         // reports whether the last answer is repeated; nil: never
	strays    func(lost bool) (after time.Duration, isStray bool) // reports whether a request strays; nil: none does
	versions  bool                                                // processes with odd numbers have a later version, which adds a field to records
	variant   variant
	beyond    bool           // only tokens, deadlines and ends of locks are promised
	given     map[int64]bool // tokens
	coarse    time.Duration  // step of the wall clocks of processes; zero: a nanosecond
	turns     turns

	// For the judges.
	judged bool
	calm   bool                                         // no message is lost or slow, and no process stops
	sure   bool                                         // no message is lost
	gone   [5][]forgotten                               // locks that each node forgot
	denied quorum.Set                                   // nodes that reject each request permanently
	down   quorum.Set                                   // nodes that refuse connections
	early  func(m *message, reply *protocol.Reply) bool // reports whether a node must record the TTL first
}

// Turns are the observed changes of phases: by event, from one phase to another.
type turns [eventKinds][len(phases)][len(phases)]bool

// phases are the letters of the phases.
const phases = "NVRQP"

// The phases of a contest, with the numbers of package core.
const (
	voting byte = iota + 1
	rollingBack
	queued
	pausing
)

// An event is a column of the table of phases.
type event uint8

const (
	onArrive event = iota
	onLeave
	onAnswer
	onHint
	onRelease
	onTick
	onClose
	eventKinds
)

// phaseOf returns the phase of a key, which is the first field of its contest.
func phaseOf(k *core.Key) byte {
	contest := *(**byte)(unsafe.Add(unsafe.Pointer(k), contestAt))
	if contest == nil {
		return 0
	}
	return *contest
}

var contestAt = func() uintptr {
	f, _ := reflect.TypeFor[core.Key]().FieldByName("contest")
	if first := f.Type.Elem().Field(0); first.Name != "phase" {
		panic("a contest does not begin with its phase")
	}
	return f.Offset
}()

// saw records an event of a process's key, which was in the phase from.
func (w *world) saw(e event, p *process, from byte) { w.turns[e][from][phaseOf(p.key)] = true }

// A network determines the losses and delays of messages.
type network interface {
	// travel returns the delays of a request and its answer, and whether each is lost.
	travel(process, node int) (there, back time.Duration, lost, unanswered bool)
}

func newWorld(nodes, processes int, n network, jitter func(time.Duration) time.Duration) *world {
	w := &world{network: n, now: time.Millisecond}
	for i := range nodes {
		w.nodes = append(w.nodes, sim.NewStore(i, fmt.Sprint("node", i)))
	}
	for i := range processes {
		p := &process{index: i, rate: 1}
		values := 0
		p.group = &core.Group{Nodes: nodes, Lots: make([]uint64, nodes), Hinting: quorum.All(nodes), Jitter: jitter,
			NewValue: func(string) string { values++; return fmt.Sprint("p", i, "v", values) }}
		p.group.Slack, p.group.Observed = guard.TokenSlack, true
		p.group.Propose = func() int64 { return w.propose(p) }
		for j := range nodes {
			p.group.Lots[j] = uint64(j + 1)
		}
		p.key = &core.Key{Group: p.group, Name: name}
		w.processes = append(w.processes, p)
	}
	return w
}

// propose draws a fencing token.
func (w *world) propose(p *process) int64 {
	wall := time.Unix(1_700_000_000, 0).Add(w.now + p.ahead).Truncate(w.coarse) // like the nodes' clocks
	p.proposed = max(wall.UnixMicro(), p.proposed+1)
	return p.proposed
}

// local returns the reading of the process's clock.
func (p *process) local(now time.Duration) clock.Instant {
	return clock.Instant(float64(now)*p.rate) + clock.Instant(p.offset)
}

// moment returns the time at which the process's clock shows an instant.
func (p *process) moment(at clock.Instant) time.Duration {
	return time.Duration(float64(at-clock.Instant(p.offset))/p.rate) + 1
}

// trace prints an event. Callers check w.traces first, because passing the arguments costs more
// than most events.
func (w *world) trace(format string, args ...any) {
	fmt.Printf("%12v "+format+"\n", append([]any{w.now}, args...)...)
}

func (w *world) fail(format string, args ...any) {
	if w.problem == "" {
		w.problem = fmt.Sprintf("at %v: ", w.now) + fmt.Sprintf(format, args...)
	}
}

// carry carries out the effects of a process's key, as package engine does.
func (w *world) carry(p *process) {
	var lost []*trial
	for i := 0; i < len(p.key.Effects()); i++ {
		switch f := &p.key.Effects()[i]; f.Kind {
		case core.Send:
			w.asks(p, f)
			for node := range w.nodes {
				if f.To.Has(node) {
					w.send(p, node, f)
				}
			}
		case core.Listen:
			p.listening++
		case core.Unlisten:
			p.listening--
		case core.Grant:
			w.grant(p, f.Caller.Ref.(*caller))
		case core.Fail:
			w.refuse(p, f.Caller.Ref.(*caller))
		case core.End:
			w.end(p, f.Hold)
		case core.Done:
			f.Caller.Ref.(*caller).asks = nil
		case core.Voted:
			p.vote.ends(w, p, f)
		case core.Lost:
			p.vote.ends(w, p, f)
			if t, ok := f.Ballot.Ref.(*trial); ok {
				lost = append(lost, t)
			}
		}
	}
	p.key.Carried()
	if w.calm {
		p.noteFirst()
	}
	if p.key.Idle(p.local(w.now)) { // package engine drops the key
		w.judgeTold(p)
		p.key = &core.Key{Group: p.group, Name: name, Turn: p.key.Turn}
		if p.closed {
			p.key.Close(0)
		}
	}
	for _, t := range lost {
		p.guard.Close(&t.Trial)
		w.settle(p)
	}
	w.judge()
}

// A trial is a ballot whose votes the guard judges.
type trial struct {
	guard.Trial
	ballot *core.Ballot
	ran    [5]time.Duration // time of the vote at each node
}

// protect makes all processes judge votes by the nodes' records.
func (w *world) protect(longest time.Duration) {
	for _, node := range w.nodes {
		node.Settle(len(w.nodes), longest)
	}
	for _, p := range w.processes {
		p.group.Epoch = record.Key
		p.protect(longest)
	}
}

// protect makes a process judge votes by the nodes' records, without knowing any record.
func (p *process) protect(longest time.Duration) {
	t := guard.Terms{Nodes: p.group.Nodes, Key: record.Key, Timeout: 30 * time.Millisecond, MaxTTL: longest}
	t.Life = func() time.Duration {
		p.drawn++
		return 1<<42*time.Millisecond + time.Duration(1000*p.index+p.drawn)*time.Hour // records differ so much that no set clock looks like another record
	}
	t.Generation = func() string { p.drawn++; return fmt.Sprint("g", p.index, "-", p.drawn) }
	p.guard = guard.New(t)
}

// settle carries out the effects of a process's guard.
func (w *world) settle(p *process) {
	for admits, settled := p.guard.Effects(); admits != nil || settled != nil; admits, settled = p.guard.Effects() {
		for _, a := range admits {
			a.Request = w.versioned(p, a.Request)
			there, back, lost, unanswered := w.network.travel(p.index, a.Node)
			lost = lost || w.down.Has(a.Node)
			unknown := lost || unanswered || there+back > a.Request.Timeout
			if unknown {
				m := w.message(admitted, p.index, a.Node)
				m.at, m.request, m.sent, m.reply.Outcome = w.now+a.Request.Timeout, a.Request, a.Sent, protocol.Unknown
				w.enter(m)
			}
			if !lost {
				m := w.message(admit, p.index, a.Node)
				m.at, m.request, m.sent, m.back, m.unknown = w.now+there, a.Request, a.Sent, back, unknown
				w.enter(m)
			}
		}
		for i := range settled {
			s := &settled[i]
			if w.traces {
				w.trace("p%d has judged the vote of node %d: %v %v", p.index, s.Node, s.Reply.Outcome, s.Reply.Err)
			}
			w.counted(p, s.Trial.Owner.(*trial).ballot, s.Node, &s.Reply)
		}
	}
}

// versioned returns a question for a record in the form of the process's version. The earlier
// version must keep the field of the later one, as long as the generation of the record is the
// same.
func (w *world) versioned(p *process, r *protocol.Request) *protocol.Request {
	a := r.Admit
	if !w.versions || a.New == "" {
		return r
	}
	field := func(text, begin string) string {
		_, rest, _ := strings.Cut(text, begin)
		value, _, _ := strings.Cut(rest, " ")
		return value
	}
	had, kept := field(a.Old, " later="), field(a.New, " later=")
	if p.index%2 == 1 {
		again, admission := *r, *a
		admission.New = strings.Replace(a.New, " later="+kept, "", 1) + fmt.Sprint(" later=", p.index)
		again.Admit = &admission
		return &again
	}
	if kept != had && field(a.Old, " gen=") == field(a.New, " gen=") {
		w.fail("process %d has an earlier version, and wrote %q where a record had %q of a later one", p.index, kept, had)
	}
	return r
}

func (w *world) send(p *process, node int, f *core.Effect) {
	there, back, lost, unanswered := w.network.travel(p.index, node)
	if w.traces {
		w.trace("p%d asks node %d: %v %s %s lost %v, unanswered %v, to %v", p.index, node, f.Request.Op, f.Request.Key, f.Request.Value, lost, unanswered, f.Request.MayHold)
	}
	late := w.now + f.Request.Timeout
	arrives := w.now + there
	for _, m := range p.wire { // a request does not overtake earlier ones
		if m.at > arrives && m.node == node && (m.what == request || m.what == retry || m.what == admit) && !w.variant.overtakes {
			arrives = m.at
		}
	}
	if w.strays != nil {
		if after, isStray := w.strays(lost); isStray {
			w.request(stray, p, node, f).fill(arrives+after, back, true)
		}
	}
	if p.guard != nil && f.Request.Epoch != "" && f.Ballot.Ref == nil {
		own := *f.Request
		t := &trial{ballot: f.Ballot}
		t.Request, t.Start, t.Owner, t.Repairs = &own, f.Ballot.Start, t, f.Ballot.IsRepair()
		f.Ballot.Ref = t
	}
	if r := f.Request; r.Op.Releases() && !strings.HasPrefix(r.Value, fmt.Sprint("p", p.index, "v")) && p.proof(r.Value) == 0 {
		w.fail("process %d: releases %s, the value of another process", p.index, r.Value)
	}
	if f.Request.Op.Acquires() && !f.Ballot.IsRepair() && p.voted != f.Ballot.Start {
		p.voted, p.floor = f.Ballot.Start, w.token
	}
	unknown := unanswered || lost || arrives+back > late
	if w.down.Has(node) {
		m := w.request(answer, p, node, f)
		m.fill(w.now, 0, false)
		m.reply.Outcome, m.reply.Err = protocol.Failed, errDown
		return
	}
	switch {
	case !lost:
		w.request(request, p, node, f).fill(arrives, back, unknown)
	case f.Request.MayHold:
		w.request(retry, p, node, f).fill(arrives+20*time.Millisecond, back, unknown)
	}
	if unknown {
		m := w.request(answer, p, node, f)
		m.fill(late, back, true)
		m.reply.Outcome = protocol.Unknown
	}
}

// request adds a message about a process's request.
func (w *world) request(of what, p *process, node int, f *core.Effect) *message {
	m := w.message(of, p.index, node)
	if m.ballot = f.Ballot; f.Request != &f.Ballot.Req { // a pointer into the middle of a struct is not plain data
		m.request = f.Request
	}
	w.enter(m)
	return m
}

func (m *message) fill(at, back time.Duration, unknown bool) {
	m.at, m.back, m.unknown = at, back, unknown
}

// message returns an empty message.
func (w *world) message(of what, process, node int) (m *message) {
	if last := len(w.idle) - 1; last >= 0 {
		m, w.idle = w.idle[last], w.idle[:last]
	} else {
		m = &message{}
	}
	m.what, m.process, m.node = of, process, node
	return m
}

func (w *world) enter(m *message) {
	w.entered++
	m.order = w.entered
	p := w.processes[m.process]
	p.wire = append(p.wire, m)
}

// take removes a message from the wire.
func (p *process) take(i int) *message {
	m, last := p.wire[i], len(p.wire)-1
	p.wire[i], p.wire[last] = p.wire[last], nil
	p.wire = p.wire[:last]
	return m
}

// deliver removes a message from a process's wire, and processes it.
func (w *world) deliver(p *process, i int) {
	m := p.take(i)
	switch m.what {
	case admit, request, retry, stray:
		w.execute(m)
		return
	case admitted:
		if w.traces {
			w.trace("p%d has the record of node %d: %v", m.process, m.node, m.reply.Outcome)
		}
		if m.reply.Outcome == protocol.Granted {
			p.knows.Add(m.node)
		}
		p.guard.Record(m.node, m.sent, p.local(w.now), &m.reply)
		w.settle(p)
	case answer:
		w.answered(p, m)
		if p.guard == nil && w.doubled != nil && w.doubled() { // the node answers twice
			w.counted(p, m.ballot, m.node, &m.reply)
		}
	case hint:
		w.hinted(p, m)
	}
	w.drop(m)
}

// execute makes a node run a request. The message becomes the answer.
func (w *world) execute(m *message) {
	reply, hints := w.serve(m)
	if w.calm {
		w.ordered(w.processes[m.process], m.asks(), &reply)
	}
	if w.traces {
		w.trace("node %d runs %v %s %s of p%d: %v (%v)", m.node, m.asks().Op, m.asks().Key, m.asks().Value, m.process, reply.Outcome, m.what)
		if r := m.asks(); r.Ticket != nil {
			w.trace("node %d: the place %s, waited %v, leaves %v, overtakes %v: %d others", m.node, r.Ticket.ID, r.Ticket.Waited, r.Ticket.Leave, r.Ticket.Overtakes, reply.Others)
		}
		if r := m.asks(); r.Token != 0 {
			w.trace("node %d: token %d and %d: floor %d", m.node, r.Token, r.Block, reply.Floor)
		}
	}
	node, isAnswered := m.node, m.what != retry && !m.unknown // strays are unknown
	if isAnswered {
		if m.ballot != nil {
			if t, ok := m.ballot.Ref.(*trial); ok {
				t.ran[node] = w.now
			}
		}
		m.what++ // the constant of its answer
		m.at, m.reply = w.now+m.back, reply
		w.enter(m)
	}
	w.hint(node, hints)
	if !isAnswered {
		w.drop(m)
	}
}

// serve makes a node run a request, or the variant's version of it.
func (w *world) serve(m *message) (protocol.Reply, []sim.StoreHint) {
	if w.denied.Has(m.node) {
		return protocol.Reply{Outcome: protocol.Failed, Err: protocol.PermanentError("NOPERM")}, nil
	}
	if w.variant.serves == nil {
		reply, hints := w.nodes[m.node].Run(w.now, m.process, m.asks())
		if w.early != nil && w.early(m, &reply) {
			reply = protocol.Reply{Outcome: protocol.Unknown, Err: &protocol.QuarantineError{Reason: "it had to record the TTL first"}}
		}
		return reply, hints
	}
	s := &served{Store: w.nodes[m.node], at: w.now, client: m.process}
	reply := w.variant.serves(s, m.asks())
	return reply, s.hints
}

// drop keeps a message for reuse.
func (w *world) drop(m *message) {
	if w.reuses {
		*m = message{}
		w.idle = append(w.idle, m)
	}
}

func (w *world) hint(node int, hints []sim.StoreHint) {
	for _, h := range hints {
		for p, again := w.processes[h.Client], true; p.listening > 0 && again; {
			again = w.doubled != nil && w.doubled()
			if _, back, lost, _ := w.network.travel(h.Client, node); !lost {
				m := w.message(hint, h.Client, node)
				m.at, m.key = w.now+back, h.Key
				w.enter(m)
			}
		}
	}
}

func (w *world) answered(p *process, m *message) {
	b := m.ballot
	if w.traces {
		w.trace("p%d hears node %d: %v %s: %v", p.index, m.node, b.Req.Op, b.Req.Value, m.reply.Outcome)
	}
	if b.Req.Op == protocol.OpQueue && !b.Req.Ticket.Leave {
		p.placed = b.Start
	}
	t, ok := b.Ref.(*trial)
	if !ok {
		w.counted(p, b, m.node, &m.reply)
		return
	}
	if t.HadKey = b.HadKey; p.local(w.now) >= b.HadUntil {
		t.HadKey = 0
	}
	if p.guard.Judge(&t.Trial, m.node, &m.reply, p.local(w.now)) == guard.Parked {
		p.key.Park(b, m.node)
	} else {
		w.counted(p, b, m.node, &m.reply)
	}
	w.settle(p)
}

// deadline returns the latest deadline of the process's holds; zero without a hold.
func (p *process) deadline() (latest clock.Instant) {
	for _, c := range p.callers {
		if c.hold != nil {
			latest = max(latest, c.hold.Deadline())
		}
	}
	return latest
}

// counted passes a judged answer to a key.
func (w *world) counted(p *process, b *core.Ballot, node int, reply *protocol.Reply) {
	from, now, before := phaseOf(p.key), p.local(w.now), p.deadline()
	p.vote.records(b, node, reply)
	w.judgeVote(p, b, node, reply)
	if p.key.Count(b, node, reply) {
		p.key.Weigh(b, node, now)
	}
	if b.Req.Op.Extends() && before > 0 && now >= before && p.deadline() > before {
		w.fail("P3: process %d: a hold that ended at %v is extended at %v", p.index, before, now)
	}
	w.saw(onAnswer, p, from)
	if v := b.Req.Value; v != "" && b.Votes() > len(w.nodes)/2 && (b.Req.Op.Acquires() || b.Req.Op.Extends()) {
		p.prove(v, quorum.Deadline(b.Start, b.Req.TTL))
	}
	w.carry(p)
	w.judgeConcluded(p, b)
}

func (w *world) hinted(p *process, m *message) {
	if w.traces {
		w.trace("p%d has a hint of node %d: %s", p.index, m.node, m.key)
	}
	from, now := phaseOf(p.key), p.local(w.now)
	switch of, id, isCall := keys.OfCall(m.key); {
	case m.key == "":
		p.key.Doubt(now)
	case isCall && of == name:
		p.key.Call(id, now)
	case m.key == name:
		p.key.Hint(m.node, now)
	}
	w.saw(onHint, p, from)
	w.carry(p)
}

// arrive makes a caller of a process call, for the first time or again.
func (w *world) arrive(c *caller) {
	p := c.process
	c.Caller = &core.Caller{Terms: c.Terms, Try: c.Try, Ref: c}
	c.came, c.rests = p.local(w.now), false
	from := phaseOf(p.key)
	p.key.Arrive(c.Caller, c.came)
	w.saw(onArrive, p, from)
	w.carry(p)
}

// downgrade makes a writer become a reader.
func (w *world) downgrade(c *caller, ask *core.Caller) {
	p := c.process
	c.reads = !w.variant.writesOn
	p.key.Downgrade(c.hold, ask, p.local(w.now))
	w.carry(p)
}

// refuse reports to a caller that its call has failed.
func (w *world) refuse(p *process, c *caller) {
	w.judgeOutcome(p, outcome{caller: c, failure: c.Failure, at: p.local(w.now)})
	switch {
	case c.over || c.rests:
		w.fail("process %d: a caller gets two outcomes", p.index)
	case c.again > 0 && c.Failure.Kind != core.AfterClose:
		c.again--
		c.rests = true
		return
	}
	c.over = true
}

// grant reports to a caller that it has the lock.
func (w *world) grant(p *process, c *caller) {
	if c.over {
		w.fail("process %d: a caller gets two outcomes", p.index)
	}
	c.over, c.granted, c.hold, c.reads = true, true, c.Hold, c.Terms.Shared
	now := p.local(w.now)
	w.judgeOutcome(p, outcome{caller: c, at: now})
	if now >= c.hold.Deadline() {
		w.fail("P3: process %d: grants at %v a hold that ended at %v", p.index, now, c.hold.Deadline())
	}
	if most := c.Terms.MaxHold; most > 0 {
		c.ends = now.Add(most)
	}
	switch isFenced := c.Terms.Fenced && c.Terms.Adopts == ""; {
	case isFenced:
		w.give(p, c.Token, p.floor)
	case c.Token != 0:
		w.fail("P2: process %d: an unrequested token", p.index)
	}
	if w.traces {
		w.trace("p%d has %s until %v", p.index, c.hold.Claim.Value, p.moment(c.hold.Deadline()))
	}
	w.grants++
	if w.remembers {
		w.History += strconv.Itoa(p.index)
	}
	for _, o := range p.callers {
		if o != c && o.hold != nil && !(o.reads && c.reads) {
			w.fail("P1: process %d: a caller is granted the lock before the context of another has ended", p.index)
		}
	}
}

// give checks the token of a holder. Tokens of successive holders rise. In a run beyond the
// promises, two callers may hold the lock at once: then no token is given twice, and each token is
// above those that were granted before its attempt began.
func (w *world) give(p *process, token, floor int64) {
	if !w.beyond {
		floor = w.token
	}
	if token <= floor || w.given[token] {
		w.fail("P2: process %d: the token %d after %d", p.index, token, floor)
	}
	if w.token = max(w.token, token); w.beyond {
		w.given[token] = true
	}
}

// end reports to a caller that its hold has ended.
func (w *world) end(p *process, h *core.Hold) {
	if w.traces {
		w.trace("p%d ends %s: %v", p.index, h.Claim.Value, h.Reason)
	}
	for _, c := range p.callers {
		if c.Hold == h {
			if c.hold == nil && c.granted {
				w.fail("process %d: the end of a hold is reported twice", p.index)
			}
			c.hold = nil
			return
		}
	}
}

// judge checks the promises, by true time.
func (w *world) judge() {
	writers, readers := 0, 0
	for _, p := range w.processes {
		for _, c := range p.callers {
			if c.hold == nil || w.now < p.resumes {
				continue
			}
			now, deadline := p.local(w.now), c.hold.Deadline()
			if until := p.proof(c.hold.Claim.Value); deadline > until {
				w.fail("P3: process %d: valid until %v, but by its votes until %v", p.index, deadline, until)
			}
			if c.ends > 0 && deadline > c.ends {
				w.fail("P3: process %d: valid for longer than its MaxHold", p.index)
			}
			switch {
			case now >= deadline:
			case c.reads:
				readers++
			default:
				writers++
			}
			if due := p.key.Due(); due == 0 || due > deadline {
				w.fail("P4: process %d: no timer for the deadline %v, but for %v", p.index, deadline, due)
			}
		}
	}
	if (writers > 1 || writers > 0 && readers > 0) && !w.beyond {
		w.fail("P1: %d writers and %d readers", writers, readers)
	}
}

// tick makes a process do the work that is due, and checks that none is left.
func (w *world) tick(p *process) {
	from, now := phaseOf(p.key), p.local(w.now)
	p.key.Tick(now)
	w.saw(onTick, p, from)
	w.carry(p)
	for _, c := range p.callers {
		if c.hold != nil && now >= c.hold.Deadline() {
			w.fail("P4: process %d: the context is alive after the deadline", p.index)
		}
	}
	if due := p.key.Due(); due > 0 && due <= now && !p.key.Idle(now) {
		w.fail("process %d: due at %v after a tick at %v: %+v", p.index, due, now, *p.key)
	}
}
