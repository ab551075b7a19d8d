package lease

import (
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// renewalStep is the longest step from one moment to the next at which locks are renewed.
const renewalStep = 20 * time.Millisecond

// renewAfter draws when a lease is renewed that was granted or extended by a round
// that began at start: between a quarter and a third of its TTL later, because
// locks that are taken together would be renewed together otherwise, each time.
// Most moments are multiples of a step, so that the renewals of many locks travel
// together.
func (t *Terms) renewAfter(start clock.Instant) clock.Instant {
	latest := start.Add(t.TTL / 3)
	at := latest.Add(-t.Jitter(t.TTL / 12))
	step := min(renewalStep, t.TTL/256)
	if rest := time.Duration(at) % step; rest > 0 {
		at = at.Add(step - rest)
	}
	return min(at, latest)
}

// isRenewed reports whether another renewal would prolong the tenure.
func (l *Lease) isRenewed() bool {
	t := l.tenure
	return t != nil && l.renews && (t.EndBy == 0 || l.until < t.EndBy)
}

// IsWell reports whether the last extension succeeded.
func (l *Lease) IsWell() bool { return l.failed() == nil }

// Extending makes r the last round, an extension. It may be followed by Renewing.
func (l *Lease) Extending(r Round) {
	l.Asking(r)
	r.Mark().extends = true
	if l.divergence != nil {
		l.divergence.watch.absent = 0 // it finds out by itself which keys are absent
	}
}

// Asking makes r the last round, one that asks for the claim as if it were new, and may extend it.
func (l *Lease) Asking(r Round) {
	l.seq++
	*r.Mark() = Mark{seq: l.seq, reader: l.reader}
}

// WantsRenewal is called when the turn of a renewal that was due has come. It reports whether there is
// to be one: if so, call Extending and Renewing, and else the Todo is what there is.
func (l *Lease) WantsRenewal() (bool, Todo) {
	l.renewDue = false
	switch {
	case l.ended != Held:
		return false, Todo{}
	case l.tenure == nil: // the next holder's renewal is due when it is there
		return false, l.Plan()
	}
	return true, Todo{}
}

// Renewing makes an extension the renewal that is under way.
func (l *Lease) Renewing(r Round) Todo {
	l.renewal = r
	return l.Plan()
}

// HasProved reports whether the deadline counts from r or a later round.
func (l *Lease) HasProved(r Round) bool { return l.proof >= r.Mark().seq }

// Failed notes that r, an extension that is no renewal, has come to nothing.
func (l *Lease) Failed(r Round) { l.ensureDivergence().failed = r }

// renewalFailed notes that r, which was to renew the lease, has come to nothing. Another is tried soon:
// some ten times within the two thirds of the TTL that are left.
func (l *Lease) renewalFailed(r Round, now clock.Instant) {
	l.keyExpiries()
	l.keysGranted(r.Votes().Granted, r.Start())
	l.divergence.failed, l.renewal = r, nil
	l.renewAt = now.Add(max(l.terms.TTL/16, time.Millisecond))
}

// An Answer is what node Node has said to a Round.
type Answer struct {
	Node    int
	Outcome protocol.Outcome
	Absent  bool // a refusal, because there is no such key
}

// Answered is called with every answer to an extension, and with those to the acquisition that come
// after the quorum. It draws the conclusions from all answers to r so far, as Weigh does.
func (l *Lease) Answered(r Round, a Answer, now clock.Instant) Todo {
	mark := r.Mark()
	refused := mark.extends && a.Outcome == protocol.Refused
	if refused {
		l.keyRefused(a.Node, now)
	}
	switch {
	case a.Outcome == protocol.Granted:
		l.maybe.Add(a.Node)
		l.keyGranted(a.Node, r.Start())
		l.found(a.Node)
	case !mark.extends && mark.seq > 0: // a reader that was refused, and may be there
	case l.isOutdated(mark): // likewise
	case l.repairing(a.Node): // an older answer does not say what is there
	case a.Outcome == protocol.Refused || a.Outcome == protocol.Failed && !mark.extends:
		l.maybe.Remove(a.Node)
	}
	todo := l.Weigh(r, now)
	if refused && a.Absent && l.ended == Held && !l.repairing(a.Node) {
		l.ensureDivergence().repairs.Add(a.Node)
		l.maybe.Add(a.Node)
		todo.Repair = true
	}
	return todo
}

// isOutdated reports whether a mark is that of an extension by the writer that a reader was before. A
// node that gets it behind the Downgrade refuses it, and holds the claim all the same.
func (l *Lease) isOutdated(m *Mark) bool { return m.extends && m.reader != l.reader }

// Weigh draws the conclusions from the answers to r so far. It can be called at any time and as often
// as one likes.
func (l *Lease) Weigh(r Round, now clock.Instant) (todo Todo) {
	if l.ended != Held {
		return Todo{}
	}
	v, mark := r.Votes(), r.Mark()
	if mark.extends && v.Tally.Gone() && !l.isOutdated(mark) {
		return l.end(Gone, r)
	}
	switch until := quorum.Deadline(r.Start(), l.terms.TTL); {
	case v.Tally.Verdict() != quorum.Won || now >= l.until:
		// Undecided, or decided too late to be believed.
	case mark.seq == l.proof:
		l.votes = v.Granted | mark.regained
	case mark.seq > l.proof && until >= l.until:
		l.extended(r, v.Granted, until)
		if l.isAbsentSomewhere() && l.renewSoon(now) {
			todo = l.Plan()
		}
		todo.Extended = true
	}
	if r == l.renewal && (v.Tally.Verdict() == quorum.Won || v.Tally.Pending() == 0) {
		if todo.Extended {
			l.renewal = nil
		} else {
			l.renewalFailed(r, now)
		}
		todo.At = l.Plan().At
	}
	return todo
}

// extended makes r the round that the deadline is counted from, which the nodes in granted granted.
func (l *Lease) extended(r Round, granted quorum.Set, until clock.Instant) {
	if l.before&^l.votes != 0 {
		l.keyExpiries()
	}
	mark := r.Mark()
	l.before, l.beforeEnd = l.votes, l.until
	l.proof, l.votes, l.until = mark.seq, granted|mark.regained, until
	l.keysGranted(granted, r.Start())
	if l.renewAt = l.terms.renewAfter(r.Start()); l.divergence != nil {
		l.divergence.failed = nil
	}
}

// repairing reports whether node i is being asked to hold the claim again.
func (l *Lease) repairing(i int) bool { return l.divergence != nil && l.divergence.repairs.Has(i) }

// Repaired is called with the answer of node i to r, which gave it the claim again. Another round, gap,
// had found that it was needed.
func (l *Lease) Repaired(gap, r Round, a Answer, now clock.Instant) (todo Todo) {
	d := l.ensureDivergence()
	d.repairs.Remove(a.Node)
	if l.ended != Held {
		return Todo{}
	}
	if l.watched { // the request has used up what the node remembered of the key
		l.found(a.Node) // what it told before is out of date, and must not end the lease
		d.watch.schedule(a.Node, now)
		todo = l.Plan()
	}
	if a.Outcome != protocol.Granted {
		return todo
	}
	l.keyGranted(a.Node, r.Start())
	mark := gap.Mark()
	mark.regained.Add(a.Node)
	if mark.seq == l.proof {
		l.votes.Add(a.Node)
	}
	return todo
}

// Downgrade makes a writer's claim a reader's. It reports whether nodes were asked to hint at it, which
// they are no more: what they have told was about the writer.
func (l *Lease) Downgrade() (watched bool) {
	watched = l.watched
	l.reader, l.watched = true, false
	if l.divergence != nil {
		l.divergence.watch = watch{}
	}
	return watched
}

// What is known of the keys at the nodes.

// A keyExpiry is what is known of the key at one node. Zero: nothing. Positive: the key lives
// until then, by a grant that counted. Negative: the node refused an extension at that moment,
// negated, and grants of rounds that began before say nothing. A grant that counts after a refusal
// takes its place: those of earlier rounds, which have the same TTL, end sooner and change nothing.
type keyExpiry clock.Instant

// keyAt returns what is known of the key at node i.
func (l *Lease) keyAt(i int) keyExpiry {
	switch d := l.divergence; {
	case d != nil && d.keys != nil:
		return d.keys[i]
	case l.votes.Has(i):
		return keyExpiry(l.until)
	case l.before.Has(i):
		return keyExpiry(l.beforeEnd)
	}
	return 0
}

// keyExpiries returns what is known of the keys, one by one. That is kept from the first node on that has
// refused an extension, or missed one that others granted and has not granted the next: for leases
// without such nodes it would be a tenth of what they cost.
func (l *Lease) keyExpiries() []keyExpiry {
	d := l.ensureDivergence()
	if d.keys == nil {
		keys := make([]keyExpiry, l.terms.Nodes)
		for i := range keys {
			keys[i] = l.keyAt(i)
		}
		d.keys = keys
	}
	return d.keys
}

// keysGranted is keyGranted for the nodes that granted a round before keys were known one by one. A
// refusal may have come since.
func (l *Lease) keysGranted(granted quorum.Set, start clock.Instant) {
	for i := range l.terms.Nodes {
		if granted.Has(i) && l.keyAt(i) != keyExpiry(-start) {
			l.keyGranted(i, start)
		}
	}
}

// keyGranted notes a grant of node i that counts, to a round that began at start: the key lives for a
// TTL from then.
func (l *Lease) keyGranted(i int, start clock.Instant) {
	if d := l.divergence; d != nil && d.keys != nil && start >= -clock.Instant(d.keys[i]) {
		d.keys[i] = max(d.keys[i], keyExpiry(quorum.Deadline(start, l.terms.TTL)))
	}
}

// keyRefused notes that node i has refused an extension.
func (l *Lease) keyRefused(i int, now clock.Instant) { l.keyExpiries()[i] = keyExpiry(-now) }

// HadKey reports whether node i, which has just granted an extension, is known to have had the key
// lately. The node may have forgotten the key meanwhile, and a late request have put it there again.
// Still no other client's vote there can have counted since: before the node forgot, the key was in
// the way, and after that the quarantine. That is no rule for a node that has refused an extension,
// because it lost the key in some other way.
func (l *Lease) HadKey(i int, now clock.Instant) bool { return now < clock.Instant(l.keyAt(i)) }
