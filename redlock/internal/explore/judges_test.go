package explore

import (
	"errors"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// The judges check progress, truth and order. The promises P1 to P6 define the possible holders of
// a lock, and that each call ends. The judges check the time, the outcome and the order of these
// ends. Relays check the maximum wait of a caller (turns_test.go).

// An outcome is the end of a call.
type outcome struct {
	*caller
	failure *core.Failure // nil: the caller has the lock
	at      clock.Instant
	leaves  bool // the context of the caller has ended
}

var judges = []struct {
	name    string
	isWrong func(w *world, p *process, o *outcome) bool
}{
	// A call that tries ends within three of its own timeouts, if the process runs.
	{"progress of a try", func(w *world, p *process, o *outcome) bool {
		came := p.moment(o.came)
		return o.Try && p.resumes < came && p.behind < came && o.took() > 3*o.Terms.Timeout+time.Millisecond
	}},
	// A call that tries reports an attempt that began after the call, unless the time of the call
	// ended first.
	{"truth of a try", func(w *world, p *process, o *outcome) bool {
		return o.Try && o.fails() && o.failure.Kind != core.ByUs && o.failure.Kind != core.AfterClose && o.Terms.Adopts == "" &&
			p.voted < o.came && o.took() <= 3*o.Terms.Timeout-time.Millisecond
	}},
	// An adoption reports its own attempt. The adoption of a reader may have asked to join the
	// readers of its process.
	{"truth of an adoption", func(w *world, p *process, o *outcome) bool {
		return o.Terms.Adopts != "" && o.fails() && o.failure.Kind == core.ByOther && p.proof(o.Terms.Adopts) == 0
	}},
	// A caller that waits fails for lack of a quorum after its Patience, or earlier if a majority
	// of the nodes rejects its requests permanently.
	{"progress in an outage", func(w *world, p *process, o *outcome) bool {
		isOutage := o.waits() && o.fails() && o.failure.Kind == core.NoQuorum
		return isOutage && o.took() < o.Terms.Patience && w.denied.Size() < quorum.Tally{Nodes: len(w.nodes)}.Blocking()
	}},
	// Without another process, no other client holds the lock.
	{"truth of a refusal", func(w *world, p *process, o *outcome) bool {
		return w.sure && len(w.processes) == 1 && !p.died && o.failure != nil && o.failure.Kind == core.ByOther
	}},
	// A lock that is not renewed lasts for the whole TTL, less the time of an attempt.
	{"a whole TTL", func(w *world, p *process, o *outcome) bool {
		t := o.Terms
		return o.failure == nil && !t.Renew && t.MaxHold == 0 && o.hold.Deadline() < quorum.Deadline(o.came, t.TTL).Add(-2*max(t.Timeout, o.hold.Claim.Terms.Timeout))
	}},
	// In a calm network, Fair callers get the lock in the order of their arrival. Both callers must
	// have had their tickets when the attempt began, or before a handover when the process last
	// asked about the queue.
	{"order", func(w *world, p *process, o *outcome) bool {
		return w.calm && o.failure == nil && o.Terms.Fair && o.waits() && w.passesOver(p, o.caller)
	}},
}

// took returns the duration of the call.
func (o *outcome) took() time.Duration { return o.at.Sub(o.came) }

func (o *outcome) fails() bool { return o.failure != nil && !o.leaves }

// waits reports whether the caller waits in line.
func (c *caller) waits() bool { return !c.Try && c.Terms.Adopts == "" }

// judgeOutcome passes the end of a call to the judges.
func (w *world) judgeOutcome(p *process, o outcome) {
	if !w.judged {
		return
	}
	for i := range judges {
		if judges[i].isWrong(w, p, &o) {
			w.fail("%s: process %d: a caller of %v with %+v: %+v", judges[i].name, p.index, p.moment(o.came), *o.Terms, o.failure)
		}
	}
}

// A first is the first Fair caller of a line, and has a ticket in the queue.
type first struct {
	*caller
	since time.Duration // time when the node created the ticket; never: no ticket, or it is lost
	leads time.Duration // time when the node found the ticket first in the queue; never: not yet
}

// noteFirst finds the first Fair caller of the line.
func (p *process) noteFirst() {
	var head *caller
	for _, c := range p.callers {
		if c.waits() && c.Terms.Fair && !c.over && !c.rests && (head == nil || c.came < head.came) {
			head = c
		}
	}
	if p.first.caller != head {
		p.first = first{head, never, never}
	}
}

// loseOrder makes a node lose its queue.
func (w *world) loseOrder(node int) {
	w.hint(node, w.nodes[node].Del(w.now, keys.Queue.Of(name)))
	for _, p := range w.processes {
		p.first.since, p.first.leads = never, never
	}
}

// ordered records that a node ran a request about the queue. In a calm network, no caller takes the
// lock out of turn and thereby removes the ticket of the first Fair caller.
func (w *world) ordered(p *process, r *protocol.Request, reply *protocol.Reply) {
	switch {
	case r.Op != protocol.OpQueue:
	case r.Ticket.Overtakes:
		for _, o := range w.processes {
			if f := o.first; o != p && f.caller != nil && !o.closed && f.leads < p.moment(p.voted)-tolerance {
				w.fail("order: process %d drops the ticket of process %d, which has been first since %v", p.index, o.index, f.leads)
			}
		}
	case !r.Ticket.Leave:
		if p.first.since = min(p.first.since, w.now); reply.Outcome == protocol.Granted {
			p.first.leads = min(p.first.leads, w.now)
		} else {
			p.first.leads = never
		}
	}
}

const tolerance = 5 * time.Millisecond // nodes do not answer at once, and clocks run at different rates

// passesOver reports whether a Fair caller gets the lock before an earlier one of another process.
func (w *world) passesOver(p *process, c *caller) bool {
	came, since := p.moment(c.came), p.moment(c.hold.Since)
	if v := p.vote.ballot; v == nil || v.Start != c.hold.Since { // a handover relies on the last answer about the queue
		since = min(since, p.moment(p.placed))
	}
	for _, of := range w.processes {
		x := of.first.caller
		if of == p || x == nil || of.closed || of.first.since > since-tolerance {
			continue
		}
		if xCame := of.moment(x.came); xCame+tolerance+(w.now-xCame)/100 < came {
			return p.first.caller == c && p.first.since != never
		}
	}
	return false
}

// A vote holds the facts about the last attempt of a process that the judges need.
type vote struct {
	ballot, raise *core.Ballot
	open          quorum.Set // nodes that have not answered yet; in a raise, the nodes of the raise
	isOver        bool
	told          int  // number of reports to the observer
	mayBeUntold   bool // the next attempt belongs to the same try, or a caller has left
}

// asks records that a process began an attempt, or a raise in it.
func (w *world) asks(p *process, f *core.Effect) {
	b, v := f.Ballot, &p.vote
	switch {
	case !w.judged || !b.IsVote() || b.IsOfHeld() || p.holds(b.Req.Value):
	case b == v.ballot || b == v.raise:
		v.open |= f.To
	case b.Req.Op == protocol.OpRaise:
		v.raise, v.open = b, f.To
	default:
		w.judgeTold(p)
		*v = vote{ballot: b, open: f.To}
	}
}

// holds reports whether a caller of the process holds the claim with a value.
func (p *process) holds(value string) bool {
	for _, c := range p.callers {
		if c.hold != nil && c.hold.Claim.Value == value {
			return true
		}
	}
	return false
}

// ends records the end of the attempt, and the report to the observer, if any.
func (v *vote) ends(w *world, p *process, f *core.Effect) {
	if v.ballot != f.Ballot {
		return
	}
	if v.isOver = true; f.Kind == core.Voted {
		if v.told++; v.told > 1 {
			w.fail("truth of a vote: process %d: a vote is reported twice", p.index)
		}
	}
}

// judgeTold checks that each attempt is reported to the observer once.
func (w *world) judgeTold(p *process) {
	if v := &p.vote; v.isOver && v.told == 0 && !v.mayBeUntold && !p.closed {
		w.fail("truth of a vote: process %d: a vote is not reported", p.index)
	}
}

// records an answer to the attempt.
func (v *vote) records(b *core.Ballot, node int, r *protocol.Reply) {
	if b != v.ballot && b != v.raise {
		return
	}
	if q := (*protocol.QuarantineError)(nil); r.Err != nil && errors.As(r.Err, &q) && q.Left == 0 {
		v.mayBeUntold = true
	}
	if b == v.raise || v.raise == nil {
		v.open.Remove(node)
	}
}

// judgeConcluded checks that an attempt ends with the last of its answers.
func (w *world) judgeConcluded(p *process, b *core.Ballot) {
	if v := &p.vote; w.judged && (b == v.ballot || b == v.raise) && v.open == 0 && !v.isOver {
		w.fail("progress of a vote: process %d: a vote is not over with the last of its answers", p.index)
	}
}

// A forgotten is a lock that a node forgot while a caller held it.
type forgotten struct {
	value     string
	at, until time.Duration // time of the loss, or start of the counted request; deadline of the holder
}

// forgets records the locks that a node is about to forget.
func (u *run) forgets(node int) {
	for _, p := range u.processes {
		for _, c := range p.callers {
			if c.hold != nil && u.rests(c, u.nodes[node], u.now) {
				u.gone[node] = append(u.gone[node], forgotten{c.hold.Claim.Value, u.now, p.moment(c.hold.Deadline())})
			}
		}
	}
}

// judgeVote checks that a node's vote does not count if the node may have forgotten another living
// lock, unless the node is known to have had the claim until now.
func (w *world) judgeVote(p *process, b *core.Ballot, node int, reply *protocol.Reply) {
	t, ok := b.Ref.(*trial)
	if !ok || reply.Outcome != protocol.Granted {
		return
	}
	ran, known := t.ran[node], &p.known[node]
	for _, l := range w.gone[node] {
		if !b.IsRepair() && l.value != b.Req.Value && l.at < ran && ran < l.until && !(known.value == b.Req.Value && ran < known.until) {
			w.fail("truth of a vote: process %d counts node %d for %s, which forgot %s", p.index, node, b.Req.Value, l.value)
		}
	}
	if at := p.moment(b.Start); at >= known.at { // otherwise the answer is late, about an earlier claim
		*known = forgotten{b.Req.Value, at, p.moment(b.Deadline())}
	}
}
