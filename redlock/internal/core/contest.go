package core

import (
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/hash"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A phase is what a contest is doing. The package comment has a table.
type phase uint8

const (
	none phase = iota
	voting
	undoing
	ordered
	resting
)

// A contest is how the callers of this process compete with other processes.
type contest struct {
	phase   phase
	until   clock.Instant // when the phase ends by itself
	ends    clock.Instant // when the first caller has waited for long enough for the vote, at the earliest; zero: none does
	claim   *Claim        // that the vote asks for
	vote    *Ballot       // voting: under way; else the last, nil if there was none
	timeout time.Duration // of a request to a node
	undo    *Ballot       // gives back what that vote had taken
	lost    *Failure      // of that vote; nil: none was lost
	tries   int           // votes that were lost
	early   int           // votes lost because nodes first had to record a TTL
	untold  bool          // the owner is to hear of the lost vote when the refusers have said what is in the way
	place   place
	intent  *intent // of a writer that has lost a vote
	look    lookout
	room    *Ballot // for the first, allocated with the contest; nil: it is used
}

func (k *Key) beginContest(t *Terms) {
	both := &struct {
		contest contest
		first   Ballot
	}{}
	k.contest = &both.contest
	k.contest.timeout, k.contest.room = t.Timeout, &both.first
}

// due is when the contest goes on by itself.
func (c *contest) due() clock.Instant {
	switch {
	case c.phase == ordered && c.look.second > 0:
		return min(c.until, c.look.second)
	case c.isVoting() && c.ends > 0:
		return min(c.until, c.ends)
	}
	return c.until
}

// isVoting reports whether callers wait for what comes of a vote.
func (c *contest) isVoting() bool { return c.phase == voting || c.phase == undoing }

// wait lets the phase last until t.
func (c *contest) wait(p phase, t clock.Instant) { c.phase, c.until = p, t }

// Voting.

// vote asks the nodes for the lock.
func (k *Key) vote(now clock.Instant) {
	c, t := k.contest, k.wanting(nil).Terms
	k.tellLost()
	c.claim = &Claim{Terms: t, Value: k.newValue(t), horizon: c.place.horizon}
	if t.Shared {
		k.withdraw(now)
		c.claim.readers = newReaders(k.Name)
	}
	c.vote, c.undo = k.ballot(toAcquire, protocol.OpAcquire, c.claim, now), nil
	switch {
	case t.Adopts != "":
		c.claim.adopt(c.vote)
	case t.Fenced:
		k.propose(c.claim, c.vote)
	}
	c.wait(voting, now.Add(t.Timeout))
	c.ends = now.Add(secondAfter) // most votes are over before, so that the line need not be looked through
	for _, try := range k.tries {
		c.endsBy(max(k.ends(try), now+1)) // at once after this vote began, if that is over
	}
	k.send(c.vote, k.Group.everyNode(), &c.vote.Req)
}

// newValue makes the value of a claim. That of a permit tells of how many it is one, before the owner's label.
func (k *Key) newValue(t *Terms) string {
	value := k.Group.NewValue(t.Owner)
	if t.Permits == 0 {
		return value
	}
	at := min(len(value), randomLength)
	return value[:at] + " " + protocol.PermitsLabel(t.Permits) + value[at:]
}

// voted is told of an answer to a vote.
func (k *Key) voted(b *Ballot, node int, a *Answer, now clock.Instant) {
	c := k.contest
	switch isOver := c == nil || c.vote != b || c.phase != voting; {
	case isOver && b.Req.Op.Extends(): // an adoption
		k.extended(b, node, a, now)
	case isOver:
		k.votedLate(b, node, a)
	case b.isWon():
		k.won(now)
	case b.isLost(), b.isSplit() && b.silent()&^k.remember().silent == 0:
		k.lost(now)
	case b.isSplit() && !c.claim.adopts(): // an adopter keeps no others waiting
		c.until = min(c.until, now.Add(k.answerLimit(b.Req.Timeout)))
	}
}

// won ends the vote for the caller that gets the claim, if it has come in time. A process that was paused, or
// a machine that slept, must not trust votes from before that.
func (k *Key) won(now clock.Instant) {
	c, b, claim := k.contest, k.contest.vote, k.contest.claim
	who := k.wanting(claim)
	switch isLate := now >= quorum.Deadline(b.Start, claim.Terms.TTL); {
	case isLate:
		k.undo(k.Group.everyNode(), now)
		c.loses(b.failure(Stale, now))
		k.judge(now)
		return
	case who == nil: // it has left
		k.undo(k.Group.everyNode(), now)
		c.loses(b.failure(Stale, now))
		k.endContest(now)
		return
	case !k.hasToken(now):
		return
	}
	b.decided = true
	k.tellVoted(b, nil)
	rivals, last := c.rivals(), c.place
	isFollowed := who.isFair() && len(k.line) > 1 && k.line[1].isFair()
	if isFollowed { // the next caller takes the place over
		c.place.at = 0
	}
	if who.isFair() { // it has waited among all
		k.Turn.until = 0
	}
	if rivals > 0 {
		k.remember().met = now
	}
	if k.past != nil {
		k.past.outage = 0
	}
	k.endContest(now)
	k.claim = claim
	k.Turn.begins(b.Start, now, rivals)
	claim.begin(b, k.renewAfter(b.Start, claim.Terms.TTL))
	if claim.readers != nil && len(k.line) > 0 && k.line[0] == who {
		k.letIn(who, now)
	} else {
		k.grant(who, claim, now)
	}
	who.Hold.Since = b.Start
	tries := k.tries
	k.tries = nil
	for _, try := range tries {
		if k.mayTry(try.Terms) {
			k.tries = append(k.tries, try)
		} else {
			k.refuse(try, k.heldHere(try, now))
		}
	}
	if isFollowed {
		k.beginContest(k.line[0].Terms)
		k.contest.place = place{id: last.id, since: last.since, at: last.at, bad: last.bad}
		k.ask(now)
	}
}

// rivals is how many other processes want the key, as far as is known.
func (c *contest) rivals() int {
	if c.place.waited || c.lost != nil && c.lost.Kind == ByOther {
		return max(c.place.others, 1)
	}
	return c.place.others
}

// lost gives back what the vote may have taken. If callers only wait, and another client holds the key, the
// process lines up at once. If callers try, it first waits for what the refusers say.
func (k *Key) lost(now clock.Instant) {
	c, b := k.contest, k.contest.vote
	if c.claim.adopts() {
		k.notAdopted(now)
		return
	}
	k.Turn.until = 0
	if b.tally.Refused > 0 {
		k.remember().met = now
	}
	if silent := b.silent(); silent != 0 && now >= c.until { // a vote can be lost before the last have answered
		k.remember().silent |= silent
	}
	refusers := b.with(protocol.Refused)
	c.loses(b.explain(now))
	k.undo(refusers, now)
	until := min(b.timeout(), now.Add(k.answerLimit(b.Req.Timeout)))
	if refusers == 0 || now >= until || c.lost.Kind == ByOther && len(k.tries) == 0 {
		k.judge(now)
		return
	}
	c.wait(undoing, until)
}

// undo gives back what a vote may have taken. It also asks the nodes in others what they hold, and those that
// have failed: a release that they do not need costs less than to trust all that may stand between.
func (k *Key) undo(others quorum.Set, now clock.Instant) {
	c := k.contest
	c.vote.decided = true
	if !c.claim.adopts() {
		c.undo = k.giveBack(c.claim, c.vote.maybe(), others|c.vote.with(protocol.Failed), now)
		c.undo.purpose = toUndo
	}
	k.do(Effect{Kind: Lost, Ballot: c.vote})
}

// undone is told of an answer to the release that undoes a lost vote.
func (k *Key) undone(b *Ballot, now clock.Instant) {
	c := k.contest
	if c == nil || c.undo != b {
		return
	}
	if !c.vote.isWon() { // else it was late or has no token, and no other client is in the way
		c.lost = c.vote.explain(now)
		c.lost.learn(c.undo)
	}
	k.intend(now)
	if c.isExplained() {
		k.tellLost()
	}
	switch {
	case c.phase == undoing && c.isExplained():
		k.judge(now)
	case c.phase == ordered && c.lost.Kind == NoQuorum: // the key has another type: no lock is in the way
		k.judge(now)
	}
}

// loses notes why the vote was lost. Until the refusers have said more, what is in the way is what was before.
func (c *contest) loses(f *Failure) {
	if old := c.lost; old != nil && old.Kind == ByOther && f.Kind == ByOther && f.Remaining == 0 {
		f.Remaining, f.Owner = old.After(f.At).Remaining, old.Owner
	}
	c.lost, c.untold = f, true
}

// isExplained reports whether the refusers have said what is in the way.
func (c *contest) isExplained() bool {
	return c.undo == nil || c.vote.with(protocol.Refused)&c.undo.silent() == 0
}

// tellLost tells the owner of a lost vote that was not told yet.
func (k *Key) tellLost() {
	if c := k.contest; c.untold {
		c.untold = false
		k.tellVoted(c.vote, c.lost)
	}
}

// judge tells those that have tried what came of the vote, and lets the first of the line go on. Nodes may
// have answered before a caller came that joined the vote later, so such a caller gets another vote.
func (k *Key) judge(now clock.Instant) {
	c, f := k.contest, k.contest.lost
	c.tries++
	if f.Kind != NoQuorum && k.past != nil {
		k.past.outage = 0
	}
	if f.IsEarly && c.early < 2 && k.wanting(nil) != nil { // the nodes have the TTL on record now, and will vote
		c.untold = false // it is the same try
		c.early++
		k.vote(now)
		return
	}
	if f.Kind != ByOther || c.phase == undoing || c.isExplained() {
		k.tellLost()
	}
	tries := k.tries
	k.tries = nil
	for _, try := range tries {
		if try.arrived > c.vote.Start || try.Terms.Adopts != c.claim.Terms.Adopts {
			k.tries = append(k.tries, try)
		} else {
			k.refuse(try, f)
		}
	}
	if f.Kind == NoQuorum {
		k.endPatience(f, now)
	}
	switch {
	case k.wanting(nil) == nil:
		k.endContest(now)
	case len(k.tries) > 0:
		k.vote(now)
	case f.Kind == Stale || f.Kind == NotHeld: // no other client is in the way
		k.compete(now)
	case f.Kind == ByOther:
		if c.look.free { // in vain; a server may hint all the time
			gap := hintGap << min(c.look.vain/2, 4)
			c.look.vain++
			pause := gap/2 + k.Group.Jitter(gap/2)
			if k.wanting(nil).isFair() { // or those behind would take it for dead, and its place with the lock
				pause = min(pause, minAnswerLimit)
			}
			c.look.pause = now.Add(pause)
		}
		// A node has called the key free that others hold, and does so still.
		if c.look.told && !c.vote.with(protocol.Refused).Has(c.look.node) {
			c.look.wrong.Add(c.look.node)
		}
		k.ask(now)
	default:
		d := k.Group.Delay(c.tries-1, f)
		if c.place.id != "" { // a place must be asked for again before its ticket is dropped
			d = min(d, ticketLife/2)
		}
		again := now.Add(d)
		if f.Kind == NoQuorum && len(k.line) > 0 {
			again = min(again, k.patienceEnds(k.line[0]))
		}
		c.wait(resting, again)
	}
}

// endPatience fails the callers at the head of the line whose Patience is over. Otherwise each would need a
// vote of its own before it is told.
func (k *Key) endPatience(f *Failure, now clock.Instant) {
	p := k.remember()
	if p.outage == 0 {
		p.outage = max(k.contest.vote.Start, 1) // zero stands for none
	}
	for len(k.line) > 0 {
		if c := k.line[0]; f.IsPermanent() || now >= k.patienceEnds(c) {
			k.fail(c, f.During(p.outage, now))
		} else {
			return
		}
	}
}

// patienceEnds is when the caller has waited through an outage for as long as it wants to. The last vote begins
// then at the latest.
func (k *Key) patienceEnds(c *Caller) clock.Instant {
	return max(k.past.outage, c.arrived).Add(c.Terms.Patience)
}

const (
	longest = 200 * time.Millisecond // the longest wait between two checks without a hint
	hintGap = time.Millisecond
)

// Delay is how long to pause after a failed try; the first is number 0. Half of it is drawn by lot, so that
// those who split the nodes among them do not collide again in step. If the key in the way expires sooner,
// the pause ends just after that: its holder may have crashed.
func (g *Group) Delay(try int, f *Failure) time.Duration {
	left := f.Remaining
	if f.Kind == InQuarantine && left > longest {
		d := min(left, time.Second) // no release ends a quarantine earlier, only a node that comes back
		return d + g.Jitter(d/8)
	}
	limit := min(firstDelay<<min(try, 10), longest)
	d := limit/2 + g.Jitter(limit/2)
	if left > 0 && left < d {
		return g.beyond(left)
	}
	return d
}

// firstDelay is the longest first Delay.
const firstDelay = 8 * time.Millisecond

// beyond is a moment after a key has expired. Redis expires with a resolution of a millisecond.
func (g *Group) beyond(left time.Duration) time.Duration {
	return left + time.Millisecond + g.Jitter(firstDelay/2)
}

// tickContest goes on where a phase has ended by itself.
func (k *Key) tickContest(now clock.Instant) {
	c := k.contest
	if c.isVoting() && c.ends > 0 && now >= c.ends {
		if k.endCallers(now); now < c.until {
			return
		}
	}
	switch c.phase {
	case voting:
		if c.vote.isWon() {
			k.tokenOverdue(now)
			return
		}
		if end := c.vote.overdue(); c.vote.parked != 0 && now < end {
			c.until = end
			return
		}
		k.lost(now)
	case undoing:
		k.judge(now)
	case resting:
		k.compete(now)
	case ordered:
		k.tickOrdered(now)
	}
}

// ends is when a caller has waited for long enough, whatever the vote waits for: one that tries for three of its
// time-outs, and one in line, in an outage, for its Patience.
func (k *Key) ends(c *Caller) clock.Instant {
	if !c.waits() {
		return c.arrived.Add(3 * c.Terms.Timeout)
	}
	since := k.contest.vote.Start
	if k.past != nil && k.past.outage > 0 {
		since = k.past.outage
	}
	return max(since, c.arrived).Add(max(c.Terms.Patience, c.Terms.Timeout))
}

func (c *contest) endsBy(at clock.Instant) {
	if c.ends == 0 || at < c.ends {
		c.ends = at
	}
}

// endCallers fails those that have waited for long enough. The vote goes on for the others.
func (k *Key) endCallers(now clock.Instant) {
	c, f := k.contest, k.contest.lost
	switch {
	case c.phase == undoing:
	case c.vote.isWon():
		f = c.vote.failure(NoToken, now)
	default:
		f = c.explain(now)
	}
	c.ends = 0
	for _, w := range slices.Concat(k.tries, k.line) {
		switch end := k.ends(w); {
		case now < end:
			c.endsBy(end)
		case !w.waits():
			k.fail(w, f)
		case f.Kind == NoQuorum && c.phase == voting && w != k.wanting(nil): // that one has the time of the vote
			k.fail(w, f.During(max(k.remember().outage, c.vote.Start), now))
		}
	}
	if c.phase == voting && k.wanting(nil) == nil { // nobody waits for the other answers
		c.loses(f)
	}
}

// endContest drops the contest, its place in the order and its hints.
func (k *Key) endContest(now clock.Instant) {
	c := k.contest
	k.tellLost()
	k.leaveOrder(now)
	k.withdraw(now)
	k.contest = nil
	if c.look.listens {
		k.do(Effect{Kind: Unlisten})
	}
}

// abandon ends a contest that has no callers any more.
func (k *Key) abandon(now clock.Instant) {
	c := k.contest
	if c == nil {
		return
	}
	c.place.overtakes = false // nothing was taken
	if c.phase == voting {
		k.undo(0, now)
	}
	k.endContest(now)
}

// The pace of nodes.

// minAnswerLimit is how long a node is waited for at least before it is passed over: a round trip on one
// network takes less, but a busy machine may be that late to take the answer.
const minAnswerLimit = 5 * time.Millisecond

// answerLimit is how long a node is waited for where another could be asked instead. It decides only whom to
// wait for, never who holds a lock.
func (k *Key) answerLimit(limit time.Duration) time.Duration {
	if k.past == nil || k.past.pace == 0 {
		return limit
	}
	return min(max(4*k.past.pace, minAnswerLimit), limit)
}

// timeAnswer learns how fast nodes answer from refusals and places in the order only, so an uncontended lock
// pays nothing. A node that did not answer in time says nothing of its pace.
func (k *Key) timeAnswer(b *Ballot, node int, a *Answer) {
	if a == nil && k.past == nil || a != nil && a.Outcome != protocol.Granted && a.Outcome != protocol.Refused {
		return
	}
	p := k.remember()
	p.silent.Remove(node)
	if a != nil && b.purpose != toRelease {
		p.pace = max(a.After, p.pace-p.pace/8)
	}
}

// The draw.

// draw returns the node with the highest lot for the key. All processes get the same node, however they list
// them. It skips the nodes in avoid, and returns -1 if none is left.
func (k *Key) draw(avoid quorum.Set) int {
	best, most := -1, uint64(0)
	for i, lot := range k.Group.Lots {
		if avoid.Has(i) {
			continue
		}
		if lot = hash.Mix(hash.Text(lot, k.Name)); best < 0 || lot > most {
			best, most = i, lot
		}
	}
	return best
}

// drawOf draws a node outside both sets. If there is none, it allows the nodes of rather.
func (k *Key) drawOf(rather, avoid quorum.Set) int {
	if i := k.draw(rather | avoid); i >= 0 {
		return i
	}
	return k.draw(avoid)
}
