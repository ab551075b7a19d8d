package core

import (
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// Readers and writers. A caller whose Terms say Shared is a reader; the others are writers. Any number of
// readers hold the lock together, and no writer beside them.
//
// The readers of one process have one claim, so any number of them costs the nodes one entry. Each has a hold
// of its own, with an end of its own. The claim is renewed while one of them wants that, for as long as the
// longest TTL that one of them has asked for, and given back when the last has left.
//
// Two rules keep a stream of readers from keeping a writer out for ever. Where the line of a process has a
// writer, readers that come later wait behind it; when a reader is the first of the line, all readers of the
// line come in with it. And a writer that has met readers of other processes leaves its intent on the nodes,
// which then let no new reader in. Readers that join a claim of their own process would not notice. So the
// process asks the nodes again, as for a new reader, if they have let none in for the length of a turn.
//
// The intent ends with the contest, and in any case when its TTL is over. A writer that finds others before
// it in the order takes it back: it would keep out readers that it waits for itself.

// Readers are what a claim of readers has besides what all claims have. The hold of such a claim is had by no
// caller: it stands for all holds of readers, and its EndBy is the earliest of theirs.
type readers struct {
	keys      *protocol.Shared
	holds     []*Hold
	renewing  int           // holds that want the claim renewed
	confirmed clock.Instant // when the request began by which the nodes last let a reader in
	asked     *Ballot       // asks them to let another in; nil: none is under way
	askAt     clock.Instant // not before this
	refusals  int           // of such requests, in a row
	early     int           // of these, for want of a TTL that nodes first had to record
}

func newReaders(key string) *readers {
	return &readers{keys: &protocol.Shared{Readers: keys.Readers.Of(key), Intent: keys.Intent.Of(key)}}
}

// speak turns a request about a claim into the one for readers.
func (r *readers) speak(b *Ballot) {
	switch b.Req.Shared = r.keys; b.Req.Op {
	case protocol.OpAcquire:
		b.Req.Op = protocol.OpShare
	case protocol.OpExtend:
		b.Req.Op = protocol.OpExtendShared
	case protocol.OpRelease:
		b.Req.Op = protocol.OpReleaseShared
	}
	if b.purpose == toRepair { // it is a reader already, so it makes way for no writer
		regardless := *r.keys
		regardless.Regardless = true
		b.Req.Shared = &regardless
	}
}

// add makes h one of the holds of the claim.
func (c *Claim) add(h *Hold) {
	r := c.readers
	if c.hold == nil {
		c.hold = &Hold{Claim: c, Terms: h.Terms, Since: h.Since}
	}
	if r.holds = append(r.holds, h); h.Terms.Renew {
		r.renewing++
	}
	if h.EndBy > 0 {
		c.hold.endBy(h.EndBy)
	}
}

func (h *Hold) endBy(at clock.Instant) {
	if h.EndBy == 0 || at < h.EndBy {
		h.EndBy = at
	}
}

// remove takes h out of the holds of the claim.
func (c *Claim) remove(h *Hold) {
	r := c.readers
	i := slices.Index(r.holds, h)
	if r.holds = slices.Delete(r.holds, i, i+1); h.Terms.Renew {
		r.renewing--
	}
}

// endReader ends the hold of one reader. It is not for the last, with whose hold the claim ends.
func (k *Key) endReader(h *Hold, why Reason, now clock.Instant) {
	h.Claim.remove(h)
	k.endHold(h, why, nil, now)
}

// endAll ends the holds of all readers, as the one that stands for them has ended.
func (k *Key) endAll(all *Hold) {
	r := all.Claim.readers
	for _, h := range r.holds {
		h.Reason, h.Lost = all.Reason, all.Lost
		k.do(Effect{Kind: End, Hold: h})
	}
	r.holds, r.renewing = nil, 0
}

// tellExtended tells the holders that their claim was extended.
func (k *Key) tellExtended(c *Claim) {
	if c.readers == nil {
		k.do(Effect{Kind: Extended, Hold: c.hold})
		return
	}
	for _, h := range c.readers.holds {
		k.do(Effect{Kind: Extended, Hold: h})
	}
}

// endLong ends the readers whose MaxHold is over. With the last of them the claim is over.
func (k *Key) endLong(c *Claim, now clock.Instant) {
	all := c.hold
	if all.Reason != Held { // the last has ended before
		return
	}
	all.EndBy = 0
	for _, h := range slices.Clone(c.readers.holds) {
		switch {
		case h.EndBy == 0:
		case h.EndBy > now:
			all.endBy(h.EndBy)
		case len(c.readers.holds) > 1:
			k.endReader(h, HeldLong, now)
		default:
			all.EndBy = h.EndBy
			k.endHold(all, HeldLong, nil, now)
		}
	}
}

// Joining.

// joiner returns the first caller that could join the readers of this process; nil: there is none. While a
// claim of readers lives, those that try are readers.
func (k *Key) joiner() *Caller {
	switch {
	case len(k.line) > 0 && k.line[0].Terms.Shared:
		return k.line[0]
	case len(k.tries) > 0:
		return k.tries[0]
	}
	return nil
}

// mayTry reports whether a caller that tries can join the readers of this process. It does not pass a writer
// that waits.
func (k *Key) mayTry(t *Terms) bool {
	return t.Shared && k.claim.readers != nil && (t.Adopts == "" || t.Adopts == k.claim.Value) && (len(k.line) == 0 || k.line[0].Terms.Shared)
}

// admit lets callers join the readers of this process, if the nodes have let a reader in lately. Otherwise it
// asks them to.
func (k *Key) admit(now clock.Instant) {
	for c, r := k.claim, k.claim.readers; r.asked == nil && c.hold.Reason == Held; {
		switch j := k.joiner(); {
		case j == nil:
			return
		case k.isConfirmed(j, now):
			k.letIn(j, now)
		case now < r.askAt && len(k.tries) == 0: // one that tries does not pause
			return
		default:
			all := k.Group.everyNode() // also those that had refused can have it from now on
			c.maybe, c.troubled().repaired = all, all
			r.asked = k.ballot(toJoin, protocol.OpAcquire, c, now)
			r.asked.Tag = j.Terms.Tag
			c.asksFor(r.asked, j.Terms.TTL)
			k.send(r.asked, all, &r.asked.Req)
		}
	}
}

// isConfirmed reports whether a reader can join without a question: a writer that waits is held up by a turn at most,
// and at least half of the TTL is left.
func (k *Key) isConfirmed(j *Caller, now clock.Instant) bool {
	c := k.claim
	return c.mayJoin(j) && now < c.readers.confirmed.Add(k.Turn.length()) && c.until.Sub(now) >= j.Terms.TTL/2
}

// mayJoin reports whether the claim is one that the reader would have asked for. One that does not renew it wants all
// of its TTL.
func (c *Claim) mayJoin(j *Caller) bool {
	return c.suits(j.Terms) && (j.Terms.Renew || c.until >= quorum.Deadline(j.arrived, j.Terms.TTL))
}

// letIn has a reader join, and with it all that wait or try, if the first of the line is one of them.
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
	for _, c := range slices.Clone(k.tries) {
		if k.claim.mayJoin(c) {
			k.grant(c, k.claim, now)
		}
	}
}

// joined is told of an answer to the question whether another reader may join. A quorum that grants it has
// extended the claim as well.
func (k *Key) joined(b *Ballot, node int, a *Answer, now clock.Instant) {
	c := k.claim
	if !c.isAsked(b) {
		return
	}
	if a == nil {
		c.knows(b, node)
	}
	k.weighExtension(b, now)
	switch r := c.readers; {
	case r.asked != b:
	case b.isWon() && now < c.until:
		r.asked, r.refusals, r.early, r.confirmed = nil, 0, 0, max(r.confirmed, b.Start)
		if j := k.joiner(); j != nil && c.hold.Reason == Held && j.arrived <= b.Start && c.mayJoin(j) {
			k.letIn(j, now) // however long the answer took
		}
	case b.isLost():
		k.joinRefused(now)
	}
}

// joinRefused notes that the nodes let no reader in. Those that try are told. Those that wait have the nodes
// asked again after a pause, unless the claim ends before: a writer may wait for it to end, or may have given
// up.
func (k *Key) joinRefused(now clock.Instant) {
	r := k.claim.readers
	b, f := r.asked, r.asked.explain(now)
	k.endJoin(r)
	if f.IsEarly && r.early < 2 { // the nodes have the TTL on record now, and are asked again at once
		r.early++
		return
	}
	r.early = 0
	r.askAt = now.Add(k.Group.Delay(r.refusals, &Failure{}))
	r.refusals++
	for _, c := range slices.Clone(k.tries) {
		if c.arrived <= b.Start {
			k.fail(c, f)
		}
	}
}

// tickJoin fails those that try and have waited for three of their time-outs, and ends a question that is overdue.
func (k *Key) tickJoin(now clock.Instant) {
	b := k.claim.readers.asked
	for _, try := range slices.Clone(k.tries) {
		if now >= k.ends(try) {
			k.fail(try, b.explain(now))
		}
	}
	if now >= b.timeout() {
		k.joinRefused(now)
	}
}

// endJoin gives up the question, if one is under way.
func (k *Key) endJoin(r *readers) {
	if r.asked != nil {
		k.do(Effect{Kind: Lost, Ballot: r.asked})
		r.asked = nil
	}
}

// joinDue is when the question is over, or can be asked; zero: never.
func (k *Key) joinDue() clock.Instant {
	switch r := k.claim.readers; {
	case r.asked != nil:
		at := r.asked.timeout()
		for _, try := range k.tries {
			at = min(at, k.ends(try))
		}
		return at
	case k.joiner() != nil:
		return r.askAt
	}
	return 0
}

// Downgrade makes a writer's hold that of a reader, with no moment between at which another writer could get
// the lock, and extends the claim. Done follows, as for Extend. Some nodes may still have the claim as a
// writer's after a failure; the next renewal goes on with it.
func (k *Key) Downgrade(h *Hold, caller *Caller, now clock.Instant) {
	k.expire(now)
	if c := h.Claim; h.Reason == Held && c.readers == nil {
		c.readers, c.tokens, c.hold = newReaders(k.Name), nil, nil
		c.add(h)
		k.unwatch() // nodes keep many readers under the key, and hint at all
	}
	k.Extend(h, 0, caller, now)
	k.next(now)
}

// The lookout of readers.

// seekReaders has the lookout of a reader ask whether the key has readers. It could join them.
func seekReaders(b *Ballot) {
	b.Req.Op, b.Req.Value, b.Req.Watch = protocol.OpLook, protocol.ReadersValue, true
}

// seen turns the answer to seekReaders into one about a key that is free for readers, or is not. One that is
// behind others does not pass them, because one of them may be a writer that waits for the readers.
func (p *place) seen(a *Answer) *Answer {
	switch {
	case a != nil && a.Outcome == protocol.Refused && a.TTL == 0: // there is no key
		return nil
	case a == nil && p.standing == behind:
		return &Answer{Outcome: protocol.Refused}
	}
	return a
}

// The intent of a writer.

// An intent is how a writer that waits keeps out readers that come later.
type intent struct {
	value string  // empty: nodes do not know of it
	vote  *Ballot // that was lost before the nodes heard of it last

	traceless int     // votes in a row whose refusers had gone before they could be seen
	traced    *Ballot // of the last of them: its undo
}

// intentLife is how long the nodes remember the intent of a writer that they do not hear from. A live writer
// repeats it after each vote that is lost.
func intentLife(timeout time.Duration) time.Duration { return time.Second + 2*timeout }

// mostTraceless is how many votes in a row may be lost to clients that have gone when the release comes that undoes the
// vote. Writers leave so as well, so a few of them say nothing.
const mostTraceless = 5

// intend leaves the writer's intent on the nodes if one has told that the key has readers, or if those who refuse
// keep going before they can be seen: also where there are none at this moment, or the writer would starve behind
// readers that take turns.
func (k *Key) intend(now clock.Instant) {
	c := k.contest
	if len(k.line) == 0 || k.line[0].Terms.Shared || c.place.standing == behind {
		return
	}
	if c.intent == nil {
		c.intent = &intent{}
	}
	if i := c.intent; i.value == "" {
		if i.traced != c.undo && c.vote.with(protocol.Refused) != 0 {
			i.traced = c.undo
			i.traceless++
		}
		if slices.ContainsFunc(c.undo.answers, func(a Answer) bool { return a.TTL != 0 }) {
			i.traceless = 0
		}
		if i.traceless <= mostTraceless && !slices.ContainsFunc(c.undo.answers, func(a Answer) bool { return a.Readers }) {
			return
		}
		i.value = k.Group.NewValue("")
	}
	if c.intent.vote != c.vote {
		c.intent.vote = c.vote
		k.tellIntent(intentLife(c.timeout), now)
	}
}

// withdraw takes the intent back, if there is one.
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
