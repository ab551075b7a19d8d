// Package core is the state machine of one key in one process. It decides who competes for the key,
// which requests the nodes get, which caller gets the lock, and when the lock ends.
//
// The package is pure. Each event is a method call with the time of the event, and its effects are
// data. Package engine owns the Keys and carries out the effects. So a test can drive several
// processes through every order of events (package redlock/internal/explore).
//
// # Terms
//
//   - A caller is one call that wants the lock. It waits in the line of its process, or tries once.
//   - An attempt asks all nodes to set the key. It is lost if no quorum (more than half) can grant
//     it.
//   - A claim is the lock of this process on the nodes. A hold is one caller's use of a claim.
//   - An extension asks the nodes to prolong a claim. A look asks whether they still hold it.
//   - A ballot is a request of any kind to nodes, with their answers.
//   - A hint is a node's notice that a watched key has changed. It proves nothing.
//   - The queue orders the waiting processes, which have tickets in it. One node keeps it.
//
// # The life of a lock
//
// A caller arrives. The first caller of the line competes with other processes in a contest. Its
// attempt wins a claim, and the caller gets a hold of it. When that caller releases the hold, the
// next caller of the line gets a hold of the same claim, without a request to the nodes. This
// continues until the turn of the process is over or the line is empty.
//
//	Arrive ──► line ──► contest ──won──► claim ──Release, Close, or lost──► released on all nodes
//	                     ▲   │           │   ▲
//	                     │  lost         └───┘ handover to the next caller of the line
//	                     └───┘ rolls back, waits in the queue, and attempts again
//
// # How processes wait
//
//  1. A process whose attempt was refused joins the queue.
//  2. The first process of the queue makes an attempt when a node reports that the key is free. It
//     leaves the queue at the same moment, so the next process is called during the attempt. If the
//     key may only have been renewed, the process keeps its ticket, because it would then lose the
//     attempt.
//  3. A turn lasts a few milliseconds. After its turn, a process that still wants the lock releases
//     it and joins the queue. If it is not aware of other waiting processes, it asks the home for
//     them together with the release. If it had to wait for the lock, its turn also ends as soon as
//     its line is empty.
//  4. Hints can get lost, so a timer repeats the questions.
//
// # Files
//
// turn.go, queue.go (waiting), token.go (fencing tokens), claim.go (answers about a claim) and
// pace.go (response times) use no Key. They return decisions as data, and key.go, contest.go,
// line.go, held.go and join.go carry these out.
//
// # Phases
//
// A Key has a claim, or a contest, or neither. A contest makes one attempt at a time, so a process
// never competes with itself. Only the contest for a Fair caller can coexist with a claim, and it
// only waits.
//
//	none         no contest: the process holds the lock, or no caller wants it
//	voting       an attempt is in progress; with a fencing token until a quorum has accepted one
//	rollingBack  an attempt was lost; callers that try wait until the refusing nodes report their holder
//	queued       the process waits in the queue, or has asked to join it
//	pausing      the contest pauses before its next attempt: in an outage, in a quarantine, or after its turn
//
// Each cell lists the phases that can follow the event, by their first letters. A dash marks an
// event that cannot happen. Hint includes Call (a ticket may have become the first) and Doubt (hints
// may have been missed). Release includes Extend and Downgrade. TestRandomSchedules checks the table.
//
//	            | Arrive | Leave | Answer | Hint | Release | Tick | Close
//	none        | N V Q P | N | N V Q P | N | N V Q P | N V Q P | N
//	voting      | V | N V | N V R Q P | V | - | N V R Q P | N
//	rollingBack | R | N R | N V R Q P | R | - | N V R Q P | N
//	queued      | V Q | N V Q | N V Q P | V Q | N V Q | V Q | N
//	pausing     | V Q P | N V P | V P | P | - | V Q P | N
//
// # Fair callers
//
// Fair callers are served in order of arrival, across all processes. A process with a Fair caller
// joins the queue before its attempt, and its ticket counts from the arrival of that caller. The
// ticket also serves the callers ahead in the line, which are not Fair. The process keeps it during
// an attempt, and does not overtake. Under a claim the next Fair caller replaces the ticket in one
// step, so a process whose caller arrived later always finds a ticket ahead of its own. Readers and
// callers that try are not served in order.
//
// With each ticket the home reports how long the next process has waited. The arrival of that
// process is the horizon of the claim; if no process waits, the horizon is the time of the
// question. A caller that arrived before the horizon would also have got its ticket first, so it
// gets the claim by handover. Without an answer, or behind another process, the claim is released.
// A node that replaces the home gives no horizon, because other processes may still use the home.
//
// # Callers that try once
//
// A caller that tries while this process holds the lock is refused at once. If it arrives during an
// attempt, it gets the lock if no other caller takes the claim. A lost attempt that began before its
// arrival does not count against it, so it shares the next one. Nor does a reader share the loss of a
// writer, because the writer may have lost to readers. In the phases queued and pausing a caller
// starts an attempt at once, and in the phase rollingBack it waits for the next. A caller that adopts a
// value gets its own attempt, before all other callers (claim.go).
//
// After the turn of its process, a caller that tries starts no attempt for as long as a turn, if
// other processes wait, but for no longer than its timeout. Otherwise callers that try again and
// again would keep the key: their attempt follows the release so closely that no other process finds
// the key free. In the meantime the process asks the home whether others wait. The attempts also
// serve the line, so the process keeps the ticket of the line while callers try.
//
// # The end of a claim
//
// A claim ends once, in [Key.end], with a Reason: the holder released it and no caller took it
// over, the Locker was closed, or the claim was lost. A claim is lost if no quorum has extended it
// before its deadline, if the holder's MaxHold has expired, if a majority refuses an extension, or
// if a look finds that a majority does not hold it. A handover, in [Key.Release], ends only the
// hold.
//
// The effect End notifies the holder. It precedes all consequences of the end: the release on the
// nodes, and the Grant for the next caller. Grant, Fail and Done wake callers.
//
// # Late answers
//
// A Key exists until every answer has arrived. A grant that arrives after its attempt was lost
// needs no action: the release of the rollback was sent later, on the same connection. A grant that
// arrives after its attempt was won adds the node to the claim, if the claim still lives. The owner
// drops a Key when [Key.Idle] returns true.
package core

import (
	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A Key is the state of one key in one process. It is not safe for concurrent use: its owner holds
// a mutex, calls one method at a time (Count and Weigh are one), and then carries out the Effects.
type Key struct {
	Group     *Group
	Name      string
	Unwatched bool // set by the owner if too many keys are watched: the nodes send no hints about the claim
	isWatched bool // nodes send hints about the claim
	closed    bool
	open      int32 // outstanding answers

	callers
	contest *contest
	claim   *Claim
	Turn    Turn      // the owner may keep it when it drops the Key, for the next Key of that name
	past    *past     // nil without memories
	awaited []*Caller // callers that wait for a Release or Extend
	seq     int64     // number of the last ballot
	effects *[]Effect // nil without effects
}

// Callers want the key.
type callers struct {
	line       []*Caller // waiting callers, in order of service
	fair       *Caller   // first Fair caller of the line; nil without one
	tryCallers []*Caller // callers that try; they share the current attempt or the next
}

func (k *Key) remember() *past {
	if k.past == nil {
		k.past = &past{}
	}
	return k.past
}

// Idle reports whether the Key has nothing to do and nothing to remember.
func (k *Key) Idle(now clock.Instant) bool {
	return k.IsQuiet() && (k.closed || !k.past.isMet(now))
}

// IsQuiet reports whether the Key has nothing to do.
func (k *Key) IsQuiet() bool {
	return k.open == 0 && len(k.line) == 0 && k.claim == nil && k.contest == nil && len(k.tryCallers)+len(k.awaited) == 0
}

// IsWanted reports whether a caller of this process holds the lock or competes for it.
func (k *Key) IsWanted() bool { return k.claim != nil || k.candidate(nil) != nil }

// IsKnown reports whether this process wants the key, or another process wanted it in the last
// second.
func (k *Key) IsKnown(now clock.Instant) bool { return k.IsWanted() || k.past.isMet(now) }

// IsTurnOver reports whether a waiting caller would let other processes go first.
func (k *Key) IsTurnOver(now clock.Instant) bool { return k.Turn.isOver(now) }

// Tick does everything that is due.
func (k *Key) Tick(now clock.Instant) {
	k.tickHeld(now)
	k.finishAwaited(func(b *Ballot) bool { return now >= b.overdue() }, now)
	if c := k.contest; c != nil && now >= c.due() {
		k.tickContest(now)
	}
	k.next(now)
	if k.claim != nil && k.claim.readers != nil {
		k.tickHeld(now) // a reader that has just joined may need renewals
	}
}

// Due returns the time of the next Tick, or zero if none is needed.
func (k *Key) Due() (at clock.Instant) {
	if k.claim != nil {
		sooner(&at, k.heldDue())
	}
	if k.contest != nil {
		sooner(&at, k.contest.due())
		if !k.contest.isVoting() {
			sooner(&at, k.triesFrom())
		}
	}
	for _, c := range k.awaited {
		sooner(&at, c.asked.overdue())
	}
	if at == 0 && k.past != nil && k.past.contendedAt > 0 && k.IsQuiet() {
		sooner(&at, k.past.contendedAt.Add(metStays))
	}
	return at
}

// Close ends the claim and fails all callers. Its effects include the releases for the nodes.
func (k *Key) Close(now clock.Instant) {
	k.closed = true
	if k.claim != nil {
		k.end(Closed, nil, now)
	}
	k.abandon(now)
	for c := k.candidate(nil); c != nil; c = k.candidate(nil) {
		k.fail(c, &Failure{Kind: AfterClose, At: now})
	}
}

// An Effect is an action for the owner of a Key. The order matters: each node gets the requests in
// this order, and a hold ends before the next caller is woken and the nodes get the release.
type Effect struct {
	Kind    EffectKind
	To      quorum.Set        // Send
	Request *protocol.Request // Send
	Ballot  *Ballot           // Send, Lost, Voted
	Caller  *Caller           // Grant, Fail, Done
	Hold    *Hold             // End, Extended
	Failure *Failure          // Voted; nil if the attempt was won
}

// An EffectKind is the kind of an Effect.
type EffectKind uint8

// The kinds of effects. Grant and the later ones concern callers and the guard. The owner may carry
// them out, in order, after it has unlocked the Key.
const (
	Send     EffectKind = iota + 1 // Request to the nodes in To; each answer goes to Count, with Ballot
	Listen                         // start the hints about the key
	Unlisten                       // stop the hints about the key
	End                            // Hold has ended
	Extended                       // Hold was extended
	Voted                          // the attempt Ballot has ended
	Grant                          // Caller got its Hold
	Fail                           // Caller got its Failure
	Done                           // the Release or Extend of Caller has ended; its Failure is nil on success
	Lost                           // the attempt Ballot was given up; later grants do not count
)

// Lend gives the Key an empty slice for the effects of the next call. Without it the Key allocates
// one.
func (k *Key) Lend(room *[]Effect) { k.effects = room }

// Effects returns the effects of the last call, in order.
func (k *Key) Effects() []Effect {
	if k.effects == nil {
		return nil
	}
	return *k.effects
}

// Carried must be called after the effects were carried out. It returns the slice to the owner.
func (k *Key) Carried() { k.effects = nil }

func (k *Key) do(e Effect) {
	if k.effects == nil {
		k.effects = &[]Effect{}
	}
	*k.effects = append(*k.effects, e)
}

// tellVoted reports the outcome of an attempt.
func (k *Key) tellVoted(b *Ballot, f *Failure) {
	if k.Group.Observed {
		k.do(Effect{Kind: Voted, Ballot: b, Failure: f})
	}
}

// ballot creates a ballot about claim c, or about the key if c is nil.
func (k *Key) ballot(p purpose, op protocol.Op, c *Claim, now clock.Instant) *Ballot {
	var b *Ballot
	if k.contest != nil {
		b, k.contest.room = k.contest.room, nil
	}
	if b == nil {
		b = &Ballot{}
	}
	k.seq++
	b.Start, b.purpose, b.seq, b.tally.Nodes = now, p, k.seq, k.Group.Nodes
	b.Req.Op, b.Req.Key = op, k.Name
	if c != nil {
		b.Req.Value, b.Req.TTL, b.Req.Timeout, b.Tag = c.Value, c.Terms.TTL, c.Terms.Timeout, c.Terms.Tag
		if c.readers != nil {
			c.readers.speak(b)
		}
	}
	if b.IsVote() {
		b.Req.Epoch = k.Group.Epoch
	}
	return b
}

// send sends the request to the nodes in to that the ballot has not asked yet.
func (k *Key) send(b *Ballot, to quorum.Set, req *protocol.Request) {
	if to &^= b.asked; to != 0 {
		b.asked |= to
		k.open += int32(to.Size())
		k.do(Effect{Kind: Send, Ballot: b, To: to, Request: req})
	}
}

// Park records a grant that the memory guard has not judged yet. Count follows with the verdict.
// Until then the attempt is not lost for lack of this node's vote.
func (k *Key) Park(b *Ballot, node int) { b.parked |= b.open() & quorum.Of(node) }

// Count records a node's answer. If it returns true, the owner must call Weigh. The two are
// separate because Weigh needs the time, and reading the clock costs a system call.
func (k *Key) Count(b *Ballot, node int, r *protocol.Reply) (matters bool) {
	if !b.count(node, r) {
		return false
	}
	k.open--
	switch {
	case k.open == 0, b.purpose == toAcquire && !b.decided && b.tally.Pending() == 0:
		return true
	case k.past != nil && k.past.silent.Has(node): // it answers again
		return true
	case b.purpose == toNothing:
		return false
	case b.purpose == toAcquire: // most grants during an attempt change nothing
		if r.Outcome != protocol.Granted || b.Req.Op.Extends() || !b.decided && (b.isWon() || b.isSplit()) {
			return true
		}
		if b.decided && k.claim.isAsked(b) {
			k.claim.takeLate(b, node, nil)
		}
		return false
	case b.purpose == toRollBack:
		return k.contest != nil && k.contest.rollback == b
	case b.purpose == toRelease:
		return b.isSettled() && len(k.awaited) > 0
	}
	return true
}

// timeAnswer learns the pace of nodes from refusals and tickets only, so an uncontended lock pays
// nothing. The pace of a node that did not answer in time is unknown.
func (k *Key) timeAnswer(b *Ballot, node int, a *Answer) {
	if a != nil && a.Outcome == protocol.Unknown && (b.purpose == toJoinQueue || b.purpose == toAskQueue) {
		k.remember().silent.Add(node)
	}
	if a == nil && k.past == nil || a != nil && a.Outcome != protocol.Granted && a.Outcome != protocol.Refused {
		return
	}
	p := k.remember()
	p.silent.Remove(node)
	if a != nil && b.purpose != toRelease {
		p.answered(a.After)
	}
}

// Weigh acts on an answer that Count has recorded.
func (k *Key) Weigh(b *Ballot, node int, now clock.Instant) {
	a := b.answerOf(node, now)
	k.timeAnswer(b, node, a)
	switch b.purpose {
	case toAcquire:
		k.attemptAnswered(b, node, a, now)
	case toRaise:
		k.raised(b, now)
	case toExtend, toRepair, toLook:
		k.answered(b, node, a, now)
	case toJoin:
		k.joined(b, node, a, now)
	case toRollBack:
		k.rolledBack(b, now)
	case toRelease:
		k.released(b, now)
	case toJoinQueue:
		k.inQueue(event{kind: ticketAnswered, number: b.seq, start: b.Start, answer: a}, now)
	case toAskQueue:
		k.othersCounted(b, a, now)
	case toWatch:
		k.inQueue(event{kind: keyAnswered, number: b.seq, node: node, answer: a}, now)
	}
	k.next(now)
}
