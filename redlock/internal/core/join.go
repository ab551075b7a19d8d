package core

import (
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
)

// endReader ends the hold of one reader. The hold of the last reader ends with the claim.
func (k *Key) endReader(h *Hold, why Reason, now clock.Instant) {
	h.Claim.remove(h)
	k.endHold(h, why, nil, now)
}

// endAll ends the holds of all readers after the hold that stands for them.
func (k *Key) endAll(all *Hold) {
	r := all.Claim.readers
	for _, h := range r.holds {
		h.Reason, h.Lost = all.Reason, all.Lost
		k.do(Effect{Kind: End, Hold: h})
	}
	r.holds, r.renewing = nil, 0
}

// tellExtended notifies the holders of an extension.
func (k *Key) tellExtended(c *Claim) {
	if c.readers == nil {
		k.do(Effect{Kind: Extended, Hold: c.hold})
		return
	}
	for _, h := range c.readers.holds {
		k.do(Effect{Kind: Extended, Hold: h})
	}
}

// endLong ends the readers whose MaxHold expired. With the last reader the claim ends.
func (k *Key) endLong(c *Claim, now clock.Instant) {
	all := c.hold
	if all.Reason != Held { // the last reader has left
		return
	}
	all.EndBy = 0
	for _, h := range slices.Clone(c.readers.holds) {
		switch {
		case h.EndBy == 0:
		case h.EndBy > now:
			sooner(&all.EndBy, h.EndBy)
		case len(c.readers.holds) > 1:
			k.endReader(h, HeldLong, now)
		default:
			all.EndBy = h.EndBy
			k.endHold(all, HeldLong, nil, now)
		}
	}
}

// Joining.

// joiner returns the first caller that could join the readers of this process, or nil. While a
// claim of readers lives, all callers that try are readers.
func (k *Key) joiner() *Caller {
	switch {
	case len(k.line) > 0 && k.line[0].Terms.Shared:
		return k.line[0]
	case len(k.tryCallers) > 0:
		return k.tryCallers[0]
	}
	return nil
}

// mayTry reports whether a caller that tries can join the readers here. No writer may wait.
func (k *Key) mayTry(t *Terms) bool {
	return t.Shared && k.claim.readers != nil && (t.Adopts == "" || t.Adopts == k.claim.Value) && (len(k.line) == 0 || k.line[0].Terms.Shared)
}

// admit lets callers join the readers if the nodes have admitted one recently. Otherwise it asks
// the nodes.
func (k *Key) admit(now clock.Instant) {
	for c, r := k.claim, k.claim.readers; r.asked == nil && c.hold.Reason == Held; {
		switch j := k.joiner(); {
		case j == nil:
			return
		case k.isConfirmed(j, now):
			k.letIn(j, now)
		case now < r.askAt && len(k.tryCallers) == 0: // a caller that tries does not pause
			return
		default:
			all := k.Group.everyNode() // nodes that refused before may hold the claim after this
			c.mayHold, c.troubled().repaired = all, all
			r.asked = k.ballot(toJoin, protocol.OpAcquire, c, now)
			r.asked.Tag = j.Terms.Tag
			c.asksFor(r.asked, j.Terms.TTL)
			k.send(r.asked, all, &r.asked.Req)
		}
	}
}

// isConfirmed reports whether a reader can join without a question: it delays a waiting writer by
// at most a turn, and at least half of the TTL is left.
func (k *Key) isConfirmed(j *Caller, now clock.Instant) bool {
	c := k.claim
	return c.mayJoin(j) && now < c.readers.confirmed.Add(k.Turn.length()) && c.until.Sub(now) >= j.Terms.TTL/2
}

// letIn lets a reader join, together with all readers that try, and with the readers of the line if
// a reader is its head.
func (k *Key) letIn(j *Caller, now clock.Instant) {
	if len(k.line) > 0 && k.line[0].Terms.Shared {
		for i := 0; i < len(k.line); {
			if c := k.line[i]; c == j || k.claim.mayJoin(c) {
				k.grant(c, k.claim, now)
			} else {
				i++
			}
		}
	}
	for _, c := range slices.Clone(k.tryCallers) {
		if k.claim.mayJoin(c) {
			k.grant(c, k.claim, now)
		}
	}
}

// joined applies an answer to a question of readers. A quorum of grants also extends the claim.
func (k *Key) joined(b *Ballot, node int, a *Answer, now clock.Instant) {
	c := k.claim
	if !c.isAsked(b) {
		return
	}
	k.answered(b, node, a, now)
	switch r := c.readers; {
	case r.asked != b:
	case b.isWon() && now < c.until:
		r.asked, r.refusals, r.early, r.confirmed = nil, 0, 0, max(r.confirmed, b.Start)
		if j := k.joiner(); j != nil && c.hold.Reason == Held && j.arrived <= b.Start && c.mayJoin(j) {
			k.letIn(j, now) // even if the answer was slow
		}
	case b.isLost():
		k.joinRefused(now)
	}
}

// joinRefused fails the readers that try once. For waiting readers it asks the nodes again after a
// pause, because the writer may give up.
func (k *Key) joinRefused(now clock.Instant) {
	r := k.claim.readers
	b, f := r.asked, r.asked.explain(now)
	k.endJoin(r)
	if f.IsEarly && r.early < 2 { // the nodes have recorded the TTL, so ask them again at once
		r.early++
		return
	}
	r.early = 0
	r.askAt = now.Add(k.Group.Delay(r.refusals, &Failure{}))
	r.refusals++
	for _, c := range slices.Clone(k.tryCallers) {
		if c.arrived <= b.Start {
			k.fail(c, f)
		}
	}
}

// tickJoin fails readers that have tried for three times their timeout, and ends an overdue
// question.
func (k *Key) tickJoin(now clock.Instant) {
	b := k.claim.readers.asked
	for _, try := range slices.Clone(k.tryCallers) {
		if now >= k.ends(try) {
			k.fail(try, b.explain(now))
		}
	}
	if now >= b.timeout() {
		k.joinRefused(now)
	}
}

// endJoin gives up the question in progress.
func (k *Key) endJoin(r *readers) {
	if r.asked != nil {
		k.do(Effect{Kind: Lost, Ballot: r.asked})
		r.asked = nil
	}
}

// joinDue returns the time of the next tickJoin or question; zero for none.
func (k *Key) joinDue() clock.Instant {
	switch r := k.claim.readers; {
	case r.asked != nil:
		at := r.asked.timeout()
		for _, try := range k.tryCallers {
			at = min(at, k.ends(try))
		}
		return at
	case k.joiner() != nil:
		return r.askAt
	}
	return 0
}

// Downgrade makes a writer a reader, without a gap for another writer, and extends the claim. Done
// follows, as for Extend. Failed nodes may hold a claim of a writer until the next renewal.
func (k *Key) Downgrade(h *Hold, caller *Caller, now clock.Instant) {
	k.expire(now)
	if c := h.Claim; h.Reason == Held && c.readers == nil {
		c.readers, c.tokens, c.hold = newReaders(k.Name), nil, nil
		c.add(h)
		k.unwatch() // nodes keep all readers under one key, and would send hints about each
	}
	k.Extend(h, 0, caller, now)
	k.next(now)
}

// The intent of a writer.

// An intent keeps out readers that arrive after a waiting writer.
type intent struct {
	value   string  // empty until the nodes know it
	attempt *Ballot // lost attempt that was followed by the last notice to the nodes

	traceless int     // consecutive attempts whose refusing nodes had no holder at the rollback
	traced    *Ballot // rollback of the last of them
}

// intentLife is the time for which the nodes keep an intent. Each lost attempt of the writer renews
// it.
func intentLife(timeout time.Duration) time.Duration { return time.Second + 2*timeout }

// mostTraceless is the number of consecutive attempts that may lose to holders that have left
// before the rollback. Writers leave like this as well, so a few such losses prove nothing.
const mostTraceless = 5

// intend leaves the writer's intent on the nodes if a node has reported readers, or if the holders
// always leave before the rollback. In the second case the nodes may have no readers at the moment,
// but readers in turns would starve the writer.
func (k *Key) intend(now clock.Instant) {
	c := k.contest
	if len(k.line) == 0 || k.line[0].Terms.Shared || c.queue.standing == behind {
		return
	}
	if c.intent == nil {
		c.intent = &intent{}
	}
	if i := c.intent; i.value == "" {
		if i.traced != c.rollback && c.attempt.with(protocol.Refused) != 0 {
			i.traced = c.rollback
			i.traceless++
		}
		if slices.ContainsFunc(c.rollback.answers, func(a Answer) bool { return a.TTL != 0 }) {
			i.traceless = 0
		}
		if i.traceless <= mostTraceless && !slices.ContainsFunc(c.rollback.answers, func(a Answer) bool { return a.Readers }) {
			return
		}
		i.value = k.Group.NewValue("")
	}
	if c.intent.attempt != c.attempt {
		c.intent.attempt = c.attempt
		k.tellIntent(intentLife(c.timeout), now)
	}
}

// withdraw takes the intent back.
func (k *Key) withdraw(now clock.Instant) {
	if i := k.contest.intent; i != nil && i.value != "" {
		k.tellIntent(0, now)
	}
	k.contest.intent = nil
}

func (k *Key) tellIntent(life time.Duration, now clock.Instant) {
	c := k.contest
	b := k.ballot(toNothing, protocol.OpIntend, nil, now)
	b.Req.Value, b.Req.TTL, b.Req.Timeout, b.Req.Shared = c.intent.value, life.Truncate(time.Millisecond), c.timeout, newReaders(k.Name).keys
	b.Req.Shared.Regardless = true
	k.send(b, k.Group.everyNode(), &b.Req)
}
