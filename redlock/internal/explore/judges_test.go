package explore

import (
	"errors"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// The judges of progress, truth and order. The promises P1 to P6 say who may hold a lock, and that each call ends. The
// judges say when it ends, with which outcome, and in which order. How long a caller waits at most is judged by relays
// (turns_test.go).

// An outcome is the end of a call.
type outcome struct {
	*caller
	failure *core.Failure // nil: it has the lock
	at      clock.Instant
	leaves  bool // the context of the caller has ended
}

var judges = []struct {
	name    string
	isWrong func(w *world, p *process, o *outcome) bool
}{
	// A call that tries ends within three of its own time-outs, if the process runs.
	{"progress of a try", func(w *world, p *process, o *outcome) bool {
		came := p.moment(o.came)
		return o.Try && p.resumes < came && p.behind < came && o.took() > 3*o.Terms.Timeout+time.Millisecond
	}},
	// A call that tries reports a vote that began after it, unless its time was over before.
	{"truth of a try", func(w *world, p *process, o *outcome) bool {
		return o.Try && o.fails() && o.failure.Kind != core.ByUs && o.failure.Kind != core.AfterClose && o.Terms.Adopts == "" &&
			p.voted < o.came && o.took() <= 3*o.Terms.Timeout-time.Millisecond
	}},
	// An adoption reports its own vote. One of a reader may have asked to join the readers of its process.
	{"truth of an adoption", func(w *world, p *process, o *outcome) bool {
		return o.Terms.Adopts != "" && o.fails() && o.failure.Kind == core.ByOther && p.proof(o.Terms.Adopts) == 0
	}},
	// A caller that waits fails for lack of a quorum after its Patience, and earlier only if a majority of the nodes
	// rejects its requests permanently.
	{"progress in an outage", func(w *world, p *process, o *outcome) bool {
		isOutage := o.waits() && o.fails() && o.failure.Kind == core.NoQuorum
		return isOutage && o.took() < o.Terms.Patience && w.denied.Size() < quorum.Tally{Nodes: len(w.nodes)}.Blocking()
	}},
	// Without another process, no other client holds the lock.
	{"truth of a refusal", func(w *world, p *process, o *outcome) bool {
		return w.sure && len(w.processes) == 1 && !p.died && o.failure != nil && o.failure.Kind == core.ByOther
	}},
	// A lock that is not renewed lasts for the whole TTL, less the time of a vote.
	{"a whole TTL", func(w *world, p *process, o *outcome) bool {
		t := o.Terms
		return o.failure == nil && !t.Renew && t.MaxHold == 0 && o.hold.Deadline() < quorum.Deadline(o.came, t.TTL).Add(-2*max(t.Timeout, o.hold.Claim.Terms.Timeout))
	}},
	// In a calm network Fair callers get the lock in the order of their arrival. Both must have had their places in the
	// order when the vote began, or before a handover when the process last asked about the order.
	{"order", func(w *world, p *process, o *outcome) bool {
		return w.calm && o.failure == nil && o.Terms.Fair && o.waits() && w.passesOver(p, o.caller)
	}},
}

// took is how long the call lasted.
func (o *outcome) took() time.Duration { return o.at.Sub(o.came) }

func (o *outcome) fails() bool { return o.failure != nil && !o.leaves }

// waits reports whether the caller waits in line.
func (c *caller) waits() bool { return !c.Try && c.Terms.Adopts == "" }

// judgeOutcome asks the judges about the end of a call.
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

// A first is the caller at the head of a line, which has a place in the order if it is Fair.
type first struct {
	*caller
	since time.Duration // when it entered its place; never: the node has lost the place
}

// noteFirst finds the first of the line.
func (p *process) noteFirst(now time.Duration) {
	var head *caller
	for _, c := range p.callers {
		if c.waits() && !c.over && !c.rests && (head == nil || c.came < head.came) {
			head = c
		}
	}
	if p.first.caller != head {
		p.first = first{head, now}
	}
}

// loseOrder has a node lose its order of waiters.
func (w *world) loseOrder(node int) {
	w.hint(node, w.nodes[node].Del(w.now, keys.Queue.Of(name)))
	for _, p := range w.processes {
		p.first.since = never
	}
}

// ordered notes that a node ran a request about the order, or called a key free that is held.
func (w *world) ordered(p *process, r *protocol.Request, reply *protocol.Reply) {
	switch {
	case r.Op == protocol.OpQueue && !r.Ticket.Leave:
		p.first.since = min(p.first.since, w.now)
	case r.Op == protocol.OpWatch && r.Key == name && reply.Outcome == protocol.Granted && slices.ContainsFunc(w.processes, func(o *process) bool { return o.deadline() > 0 }):
		w.misled = w.now
	}
}

// passesOver reports whether a Fair caller gets the lock before one of another process that came earlier.
func (w *world) passesOver(p *process, c *caller) bool {
	const tolerance = 5 * time.Millisecond // nodes do not answer at once, and clocks run at rates that differ
	came, since := p.moment(c.came), p.moment(c.hold.Since)
	if v := p.vote.ballot; v == nil || v.Start != c.hold.Since { // a handover rests on the last answer about the order
		since = min(since, p.moment(p.placed))
	}
	if w.misled+100*time.Millisecond > since { // a waiter may have believed that the first left the key lying
		return false
	}
	for _, of := range w.processes {
		x := of.first.caller
		if of == p || x == nil || !x.Terms.Fair || of.closed || of.first.since > since-tolerance {
			continue
		}
		if xCame := of.moment(x.came); xCame+tolerance+(w.now-xCame)/100 < came {
			return p.first.caller == c && p.first.since != never
		}
	}
	return false
}

// A vote is the last vote of a process, as far as the judges need it.
type vote struct {
	ballot, raise *core.Ballot
	open          quorum.Set // nodes whose answers are to come, to the raise if there is one
	isOver        bool
	told          int  // how often it was reported to the observer
	mayBeUntold   bool // the next vote is the same try, or a caller has left
}

// asks notes that a process began a vote, or a raise in it.
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

// ends notes that the vote is over, and perhaps a report to the observer.
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

// judgeTold: each vote is reported to the observer, once.
func (w *world) judgeTold(p *process) {
	if v := &p.vote; v.isOver && v.told == 0 && !v.mayBeUntold && !p.closed {
		w.fail("truth of a vote: process %d: a vote is not reported", p.index)
	}
}

// hears takes an answer to the vote.
func (v *vote) hears(b *core.Ballot, node int, r *protocol.Reply) {
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

// judgeConcluded: a vote is over with the last of its answers.
func (w *world) judgeConcluded(p *process, b *core.Ballot) {
	if v := &p.vote; w.judged && (b == v.ballot || b == v.raise) && v.open == 0 && !v.isOver {
		w.fail("progress of a vote: process %d: a vote is not over with the last of its answers", p.index)
	}
}

// A forgotten is a lock that a node forgot while a caller held it.
type forgotten struct {
	value     string
	at, until time.Duration // it was forgotten, and the deadline of the holder
}

// forgets notes the locks that a node is about to forget.
func (u *run) forgets(node int) {
	for _, p := range u.processes {
		for _, c := range p.callers {
			if c.hold != nil && u.rests(c, u.nodes[node], u.now) {
				u.gone[node] = append(u.gone[node], forgotten{c.hold.Claim.Value, u.now, p.moment(c.hold.Deadline())})
			}
		}
	}
}

// judgeVote: no vote counts of a node that may have forgotten another lock that lives, unless it is known to have had
// the claim until now.
func (w *world) judgeVote(p *process, b *core.Ballot, node int, reply *protocol.Reply) {
	t, ok := b.Shell.(*trial)
	if !ok || reply.Outcome != protocol.Granted {
		return
	}
	ran, known := t.ran[node], &p.known[node]
	for _, l := range w.gone[node] {
		if !b.IsRepair() && l.value != b.Req.Value && l.at < ran && ran < l.until && !(known.value == b.Req.Value && ran < known.until) {
			w.fail("truth of a vote: process %d counts node %d for %s, which forgot %s", p.index, node, b.Req.Value, l.value)
		}
	}
	*known = forgotten{value: b.Req.Value, until: p.moment(b.Deadline())}
}
