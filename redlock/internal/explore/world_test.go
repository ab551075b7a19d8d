// Package explore runs the keys of several processes, as package core has them, against the servers of
// package sim, without goroutines: at random, and systematically. True time judges.
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

// A process is one client. Its clock runs at its own rate.
type process struct {
	index     int
	rate      float64
	offset    time.Duration
	group     *core.Group
	key       *core.Key
	callers   []*caller
	resumes   time.Duration // it is paused until then
	behind    time.Duration // it has too much to do until then, and only ends what is over
	guard     *guard.Guard  // nil: what nodes forget is not noticed
	knows     quorum.Set    // nodes whose clock it has read: it notices when that is set
	listening int
	closed    bool
	voted     clock.Instant // its last vote began
	floor     int64         // the highest token that was granted then
	proven    []proof
	drawn     int           // by its guard
	died      bool          // lately: what it had is on the nodes until it expires
	ahead     time.Duration // its wall clock
	proposed  int64         // the last token that it has proposed
	wire      []*message    // to it and from it, in no order

	// For the judges.
	vote   vote
	first  first
	known  [5]forgotten  // the claim that each node was last counted for
	placed clock.Instant // it sent the question about the order that was answered last
}

// A proof is until when a value is held, by the last request that a quorum has granted.
type proof struct {
	value string
	until clock.Instant
}

// prove notes that a quorum has granted a request.
func (p *process) prove(value string, until clock.Instant) {
	for i := range p.proven {
		if o := &p.proven[i]; o.value == value {
			o.until = max(o.until, until)
			return
		}
	}
	p.proven = append(p.proven, proof{value, until})
}

// proof is until when a value is held, by what a quorum has granted; zero: by nothing.
func (p *process) proof(value string) clock.Instant {
	for i := range p.proven {
		if p.proven[i].value == value {
			return p.proven[i].until
		}
	}
	return 0
}

// A caller is one of a process, and what it wants to do.
type caller struct {
	*core.Caller
	process *process
	hold    *core.Hold // told by Grant, until End
	granted bool
	reads   bool          // it is a reader
	came    clock.Instant // its call began
	again   int           // how many times it comes again, where it tries
	rests   bool          // until it comes again
	over    bool          // it has been told how its call ended
	asks    *core.Caller  // its Release or Extend
	acts    time.Duration // when it does something next; never: it waits
	leaves  time.Duration // its context ends
	ends    clock.Instant // its MaxHold is over; zero: never
}

const never = time.Duration(1<<63 - 1)

// A message is a request on its way to a node, or an answer or a hint on its way back.
type message struct {
	at      time.Duration
	order   int
	what    what
	process int
	node    int
	ballot  *core.Ballot
	request *protocol.Request // nil: the ballot's
	reply   protocol.Reply
	key     string        // of a hint
	sent    clock.Instant // of a question for a record
	back    time.Duration
	unknown bool // the answer is lost, or comes too late
}

// asks is the request that the message is, or answers.
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
	retry    // of a release that was not confirmed, which the node does by itself
	admit    // a question of the guard for a node's record
	admitted // its answer; each follows its question
	stray    // a request that is run late, or once more; it holds up no other, and is not answered
)

// A world is processes and nodes.
type world struct {
	now       time.Duration
	nodes     []*sim.Store
	processes []*process
	idle      []*message // messages to be used again
	reuses    bool
	remembers bool
	History   string // the processes that were granted the lock, in their order
	entered   int
	network   network
	problem   string
	grants    int
	token     int64 // the highest that was granted
	traces    bool
	doubled   func() bool                                         // whether the answer that was just given is given again; nil: never
	strays    func(lost bool) (after time.Duration, isStray bool) // whether a request strays; nil: none does
	versions  bool                                                // processes with an odd number have a later version, which adds a field to records
	variant   variant
	beyond    bool           // only tokens, deadlines and ends are promised
	given     map[int64]bool // tokens
	coarse    time.Duration  // by so much the wall clocks of processes advance at once; zero: a nanosecond
	turns     turns

	// For the judges.
	judged bool
	calm   bool                                         // no message is lost or slow, and no process stops
	sure   bool                                         // no message is lost
	gone   [5][]forgotten                               // of each node
	misled time.Duration                                // a node last called the key free while it was held
	denied quorum.Set                                   // nodes that reject each request permanently
	down   quorum.Set                                   // nodes that refuse connections
	early  func(m *message, reply *protocol.Reply) bool // whether a node has to record the TTL first
}

// Turns are of phases, as they were seen: on an event, from one to another.
type turns [eventKinds][len(phases)][len(phases)]bool

// phases are their letters.
const phases = "NVUOR"

// The phases of a contest, as package core numbers them.
const (
	voting byte = iota + 1
	undoing
	ordered
	resting
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

// phaseOf returns the phase of a key, of which it is the first field of its contest.
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

// saw notes that an event has happened to a process's key, which was in the phase from.
func (w *world) saw(e event, p *process, from byte) { w.turns[e][from][phaseOf(p.key)] = true }

// A network says what becomes of a message.
type network interface {
	// travel returns how long a request and its answer take, and whether each is lost.
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
	wall := time.Unix(1_700_000_000, 0).Add(w.now + p.ahead).Truncate(w.coarse) // as that of the nodes
	p.proposed = max(wall.UnixMicro(), p.proposed+1)
	return p.proposed
}

// local is the process's clock.
func (p *process) local(now time.Duration) clock.Instant {
	return clock.Instant(float64(now)*p.rate) + clock.Instant(p.offset)
}

// moment is when the process's clock shows an instant.
func (p *process) moment(at clock.Instant) time.Duration {
	return time.Duration(float64(at-clock.Instant(p.offset))/p.rate) + 1
}

// trace prints what has happened. Callers ask for w.traces first: to pass the arguments costs more than
// most events.
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
			w.grant(p, f.Caller.Shell.(*caller))
		case core.Fail:
			w.refuse(p, f.Caller.Shell.(*caller))
		case core.End:
			w.end(p, f.Hold)
		case core.Done:
			f.Caller.Shell.(*caller).asks = nil
		case core.Voted:
			p.vote.ends(w, p, f)
		case core.Lost:
			p.vote.ends(w, p, f)
			if t, ok := f.Ballot.Shell.(*trial); ok {
				lost = append(lost, t)
			}
		}
	}
	p.key.Carried()
	if w.calm {
		p.noteFirst(w.now)
	}
	if p.key.Idle(p.local(w.now)) { // package engine forgets it
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
	ran    [5]time.Duration // at each node
}

// protect has all processes judge votes by the nodes' records.
func (w *world) protect(longest time.Duration) {
	for _, node := range w.nodes {
		node.Settle(len(w.nodes), longest)
	}
	for _, p := range w.processes {
		p.group.Epoch = record.Key
		p.protect(longest)
	}
}

// protect has a process judge votes by the nodes' records, of which it knows none.
func (p *process) protect(longest time.Duration) {
	t := guard.Terms{Nodes: p.group.Nodes, Key: record.Key, Timeout: 30 * time.Millisecond, MaxTTL: longest}
	t.Life = func() time.Duration {
		p.drawn++
		return 1<<42*time.Millisecond + time.Duration(1000*p.index+p.drawn)*time.Hour // no clock that is set looks like another record
	}
	t.Generation = func() string { p.drawn++; return fmt.Sprint("g", p.index, "-", p.drawn) }
	p.guard = guard.New(t)
}

// settle does what the guard of a process wants done.
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

// versioned returns a question for a record as the process's version asks it. The earlier one must keep the field of the
// later one, as long as the record is of one generation.
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
	for _, m := range p.wire { // a request overtakes none that was made before
		if m.at > arrives && m.node == node && (m.what == request || m.what == retry || m.what == admit) && !w.variant.overtakes {
			arrives = m.at
		}
	}
	if w.strays != nil {
		if after, isStray := w.strays(lost); isStray {
			w.request(stray, p, node, f).fill(arrives+after, back, true)
		}
	}
	if p.guard != nil && f.Request.Epoch != "" && f.Ballot.Shell == nil {
		own := *f.Request
		t := &trial{ballot: f.Ballot}
		t.Request, t.Start, t.Owner, t.Repairs = &own, f.Ballot.Start, t, f.Ballot.IsRepair()
		f.Ballot.Shell = t
	}
	if r := f.Request; r.Op.Releases() && !strings.HasPrefix(r.Value, fmt.Sprint("p", p.index, "v")) && p.proof(r.Value) == 0 {
		w.fail("process %d: gives back %s, which is another's", p.index, r.Value)
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

// request enters a message about a process's request.
func (w *world) request(of what, p *process, node int, f *core.Effect) *message {
	m := w.message(of, p.index, node)
	if m.ballot = f.Ballot; f.Request != &f.Ballot.Req { // pointers into the middle are no plain data
		m.request = f.Request
	}
	w.enter(m)
	return m
}

func (m *message) fill(at, back time.Duration, unknown bool) {
	m.at, m.back, m.unknown = at, back, unknown
}

// message returns one that is blank.
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

// take takes a message off the wire.
func (p *process) take(i int) *message {
	m, last := p.wire[i], len(p.wire)-1
	p.wire[i], p.wire[last] = p.wire[last], nil
	p.wire = p.wire[:last]
	return m
}

// deliver takes a message off a process's wire, and does what it does.
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
		if p.guard == nil && w.doubled != nil && w.doubled() { // a node that answers twice
			w.counted(p, m.ballot, m.node, &m.reply)
		}
	case hint:
		w.hinted(p, m)
	}
	w.drop(m)
}

// execute has a node run a request. The message goes back as the answer.
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
	node, isAnswered := m.node, m.what != retry && !m.unknown // a stray is unknown
	if isAnswered {
		if m.ballot != nil {
			if t, ok := m.ballot.Shell.(*trial); ok {
				t.ran[node] = w.now
			}
		}
		m.what++ // its answer
		m.at, m.reply = w.now+m.back, reply
		w.enter(m)
	}
	w.hint(node, hints)
	if !isAnswered {
		w.drop(m)
	}
}

// serve has a node run a request, which may be one of a variant.
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

// drop keeps a message for the next.
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
	t, ok := b.Shell.(*trial)
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

// deadline is the latest of what the process's callers hold. Zero: they hold nothing.
func (p *process) deadline() (latest clock.Instant) {
	for _, c := range p.callers {
		if c.hold != nil {
			latest = max(latest, c.hold.Deadline())
		}
	}
	return latest
}

// counted gives a key an answer that has been judged.
func (w *world) counted(p *process, b *core.Ballot, node int, reply *protocol.Reply) {
	from, now, before := phaseOf(p.key), p.local(w.now), p.deadline()
	p.vote.hears(b, node, reply)
	w.judgeVote(p, b, node, reply)
	if p.key.Count(b, node, reply) {
		p.key.Weigh(b, node, now)
	}
	if b.Req.Op.Extends() && before > 0 && now >= before && p.deadline() > before {
		w.fail("P3: process %d: what was over at %v is extended at %v", p.index, before, now)
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

// arrive has a caller of a process call, for the first time or once more.
func (w *world) arrive(c *caller) {
	p := c.process
	c.Caller = &core.Caller{Terms: c.Terms, Try: c.Try, Shell: c}
	c.came, c.rests = p.local(w.now), false
	from := phaseOf(p.key)
	p.key.Arrive(c.Caller, c.came)
	w.saw(onArrive, p, from)
	w.carry(p)
}

// downgrade has a writer become a reader.
func (w *world) downgrade(c *caller, ask *core.Caller) {
	p := c.process
	c.reads = !w.variant.writesOn
	p.key.Downgrade(c.hold, ask, p.local(w.now))
	w.carry(p)
}

// refuse tells a caller that it has not got the lock.
func (w *world) refuse(p *process, c *caller) {
	w.judgeOutcome(p, outcome{caller: c, failure: c.Failure, at: p.local(w.now)})
	switch {
	case c.over || c.rests:
		w.fail("process %d: a caller is told twice", p.index)
	case c.again > 0 && c.Failure.Kind != core.AfterClose:
		c.again--
		c.rests = true
		return
	}
	c.over = true
}

// grant tells a caller that it has the lock.
func (w *world) grant(p *process, c *caller) {
	if c.over {
		w.fail("process %d: a caller is told twice", p.index)
	}
	c.over, c.granted, c.hold, c.reads = true, true, c.Hold, c.Terms.Shared
	now := p.local(w.now)
	w.judgeOutcome(p, outcome{caller: c, at: now})
	if now >= c.hold.Deadline() {
		w.fail("P3: process %d: granted at %v what was over at %v", p.index, now, c.hold.Deadline())
	}
	if most := c.Terms.MaxHold; most > 0 {
		c.ends = now.Add(most)
	}
	switch isFenced := c.Terms.Fenced && c.Terms.Adopts == ""; {
	case isFenced:
		w.give(p, c.Token, p.floor)
	case c.Token != 0:
		w.fail("P2: process %d: a token that was not asked for", p.index)
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

// give notes the token of a holder. Those of holders that follow each other rise. Beyond the promise two may hold
// at once: then no token is given twice, and each is above those that were granted before its vote began.
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

// end tells a caller that its hold has ended.
func (w *world) end(p *process, h *core.Hold) {
	if w.traces {
		w.trace("p%d ends %s: %v", p.index, h.Claim.Value, h.Reason)
	}
	for _, c := range p.callers {
		if c.Hold == h {
			if c.hold == nil && c.granted {
				w.fail("process %d: the end of a hold is told twice", p.index)
			}
			c.hold = nil
			return
		}
	}
}

// judge holds the world to the promises, by true time.
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
				w.fail("P4: process %d: nothing is done at the deadline %v, but at %v", p.index, deadline, due)
			}
		}
	}
	if (writers > 1 || writers > 0 && readers > 0) && !w.beyond {
		w.fail("P1: %d writers and %d readers", writers, readers)
	}
}

// tick has a process do what is due, and checks that nothing is left to do.
func (w *world) tick(p *process) {
	from, now := phaseOf(p.key), p.local(w.now)
	p.key.Tick(now)
	w.saw(onTick, p, from)
	w.carry(p)
	for _, c := range p.callers {
		if c.hold != nil && now >= c.hold.Deadline() {
			w.fail("P4: process %d: the context lives on after the deadline", p.index)
		}
	}
	if due := p.key.Due(); due > 0 && due <= now && !p.key.Idle(now) {
		w.fail("process %d: due at %v after a tick at %v: %+v", p.index, due, now, *p.key)
	}
}
