// Package core decides about one key in one process: who competes for it, what the nodes are asked, who
// gets it, and when that is over. It is pure: events go in, with the moment at which they happened, and
// effects come out as data. Package engine is the owner of all Keys and carries the effects out. So a test
// can run this code itself, of several processes, through every order of events (package explore).
//
// # The words
//
// A caller wants the lock: it waits in the line of its process, or only tries. A vote asks all nodes to set
// the key. It is lost if a quorum, more than half of them, cannot grant it. What a vote has won is a claim:
// the lock of this process on the nodes, until a deadline. An extension asks the nodes to let a claim live
// longer, and a look whether they still have it. What one caller has of a claim is its hold. A ballot is any
// request to nodes, with their answers. A node hints when a watched key has changed; a hint proves nothing.
//
// # The life of a lock
//
// A caller arrives. The first of the line competes for the key in a contest, and its vote wins a claim. The
// caller gets a hold. When it releases that, the next of the line gets a hold of the same claim, without a
// word to the nodes. This goes on until the turn of the process is over or nobody waits. Then the claim is
// given back on all nodes.
//
//	Arrive ──► line ──► contest ──won──► claim ──Release, Close, or lost──► given back on all nodes
//	                     ▲   │           │   ▲
//	                     │  lost         └───┘ handover to the next of the line
//	                     └───┘ gives back what it has, waits among all processes, and votes again
//
// # Waiting has four rules
//
//  1. A process that was refused lines up with the others, at one node that keeps their order.
//  2. The first of the order votes when a node says that the key is free. It gives up its place
//     at the same moment, so the next is called while the vote is under way. It keeps its place if
//     the news may be that of a renewal: it would lose the vote, and newcomers would come before it.
//  3. When its turn is over, a process that still wants the lock gives it back and lines up. If it
//     knows of no other process it asks, together with the release, whether any waits: it would hear
//     of none if it took the lock again and again. A turn is some milliseconds. After a lock that it
//     had to wait for, the turn of a process ends as soon as no caller of its own waits.
//  4. Hints can be lost. So a timer asks again.
//
// # Phases
//
// A Key has a claim, or a contest, or neither. In its contest it has one vote at a time, so two votes of one
// process never fight each other. Only the contest of a Fair caller can be beside a claim. It waits in the order
// then, and does not vote.
//
//	none      there is no contest: the process holds the lock, or nobody wants it
//	voting    the nodes are asked for their votes
//	undoing   a vote was lost, and callers that try wait for the refusers to say what is in the way
//	ordered   the process waits in the order, or has asked for its place there
//	resting   the contest pauses before its next vote, in an outage or a quarantine
//
// In the phase ordered the first votes when the key is free: by a hint, by an answer, because the key in the
// way must have expired, or after a while without any news. The others ask for their place again when a node
// calls them, and when the timer fires. They vote only if those before them have left a free lock lying.
//
// Where a caller wants a fencing token, the phase voting lasts until a quorum has accepted one (token.go).
//
// Each cell lists the phases that can follow the event, by their first letters; - says that it cannot happen.
// Hint includes Call (a node says that a place may be the first) and Doubt (hints may have been missed).
// Release includes Extend and Downgrade. TestRandomSchedules checks the table.
//
//	        | Arrive | Leave | Answer | Hint | Release | Tick | Close
//	none    | N V O | N O | N V O | N | N V O | N V O | N
//	voting  | V | N V | N V U O R | V | - | N V U O R | N
//	undoing | U | N U | N V U O R | U | - | N V U O R | N
//	ordered | V O | N V O | N V O R | V O | N V O | V O | N
//	resting | V R | N R | R | R | - | V O R | N
//
// # Fair callers
//
// They are served in the order in which those of all processes came. Each lines up before its first vote, and
// its place counts from its own arrival. It keeps its place while it votes, and does not overtake. The next of
// the line takes the place over, in one step at the node, while the claim lives. So another process, whose
// caller came later, finds it in the order at each moment, or one that came before it.
//
// With each place the node tells how long the next of another process has waited. Who came before that, or if
// there is none before the question was sent, would have got its place before it as well: this is the horizon
// of the claim, which is handed over that far. If there is no answer yet, or another process comes first, the
// claim is given back. A node that keeps the order in place of another gives no horizon, because not all may
// have moved there. Readers and callers that try are not served in order, and can get before others.
//
// # Callers that only try
//
// One that tries while this process holds the lock is refused at once. One that comes during a vote gets the
// lock if that vote wins it for nobody else. It is never told that a vote was lost which had begun before it
// came: then the next vote is for it as well. One that comes in the phases ordered or resting makes the
// contest vote at once. In the phase undoing it waits for the next vote. One that adopts a value gets a vote of
// its own, before all others (adopt.go).
//
// # Readers
//
// Readers hold the lock together, and those of one process have one claim. All about them is in readers.go:
// how callers join a claim that lives, and how a writer keeps out readers that come later.
//
// # The end of a claim
//
// A claim ends once, in [Key.end], for a Reason: its holder has released it and it is not handed over, the
// Locker was closed, or it was lost. It is lost when no quorum has extended it before its deadline, when the
// holder's MaxHold is over, when a majority refuses an extension, or when a look finds that a majority does
// not have it. A handover, in [Key.Release], ends a hold and not the claim.
//
// # Where a caller is woken
//
// By the effects Grant, Fail and Done. [Key.grant] wakes a caller that gets the lock, by a vote or a
// handover, and [Key.refuse] one that does not. One that waits for its Release or Extend is woken by
// these, if that is over at once, and else by tellAwaited. A holder learns of its
// end by the effect End, which comes before all that follows from it: the release that the nodes get, and
// the Grant of the next.
//
// # Late answers
//
// A Key is kept until every answer has come. A grant that comes after its vote was lost needs nothing: the
// release that undoes the vote was sent after it, on the same connection. A grant that comes after its vote
// was won adds the node to the claim. After the claim has ended it needs nothing again, for the same reason.
//
// # When a Key is forgotten
//
// When [Key.Idle] says so, its owner drops it: no caller, no claim, no contest, and no answer is left to
// come. A Key that has met other processes stays for a second after that, and remembers its turn and which
// nodes were slow.
package core

import (
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A Group is what the keys of one Locker have in common. It never changes.
type Group struct {
	Nodes    int
	Lots     []uint64   // one for each node, by its name: they decide which node keeps the order of a key
	Hinting  quorum.Set // nodes that can hint when a key changes
	Epoch    string     // the key of the nodes' epoch records; empty without the memory guard
	Jitter   func(limit time.Duration) time.Duration
	NewValue func(owner string) string // with the owner's label, if there is one
	Observed bool                      // the owner wants to know what comes of each vote

	// For fencing tokens.
	Propose func() int64  // draws a fencing token that the process has not proposed before: the wall clock in microseconds, or more
	Slack   time.Duration // how far a token may be from a node's clock; the same for all clients
}

func (g *Group) everyNode() quorum.Set { return quorum.All(g.Nodes) }

// Terms are how a caller wants the lock. Many callers share one, and it never changes.
type Terms struct {
	TTL      time.Duration
	Timeout  time.Duration // of a request to a node
	MaxHold  time.Duration // zero: for ever
	Renew    bool
	Fenced   bool          // with a fencing token
	Adopts   string        // the value of a lock to take over, in place of a new one, which is not Fenced then
	Owner    string        // the label in the value; empty for none
	Patience time.Duration // through an outage
	Shared   bool          // it is a reader: see readers.go
	Fair     bool          // it is served in the order in which callers of all processes came; no reader is
	Permits  int           // of how many this is one, which the value tells; zero: it is no permit
	Tag      any           // the owner's: whose requests these are
}

// A Key is all that one process knows of one key. It is not safe for concurrent use: its owner calls one
// method at a time, under a mutex, and carries out the Effects after each. Count and Weigh are one call.
type Key struct {
	Group     *Group
	Name      string
	Unwatched bool // by its owner: nodes are not to hint at its claim, because they hint at so many already
	isWatched bool // nodes hint at its claim
	closed    bool
	open      int32 // answers that are still to come

	line    []*Caller // that wait, in the order in which they are served
	tries   []*Caller // that share the current vote or the next
	contest *contest
	claim   *Claim
	Turn    Turn      // its owner can keep it when it drops the Key, for the next Key of that name
	past    *past     // nil: nothing to remember
	awaited []*Caller // releases and extensions whose callers wait
	seq     int64     // of ballots
	effects *[]Effect // nil: there are none
}

// A past is what a Key remembers from one contest to the next.
type past struct {
	met     clock.Instant // another process wanted the key; zero: never
	outage  clock.Instant // since when no quorum has answered; zero: one has
	noOrder clock.Instant // until then no node is asked to keep an order
	silent  quorum.Set    // nodes that were not heard of in time, until they are
	pace    time.Duration // of the slowest node that answers; zero: not known
}

func (k *Key) remember() *past {
	if k.past == nil {
		k.past = &past{}
	}
	return k.past
}

// metStays is how long a key remembers that other processes wanted it.
const metStays = time.Second

func (p *past) isMet(now clock.Instant) bool {
	return p != nil && p.met > 0 && now.Sub(p.met) < metStays
}

// Idle reports whether the Key has nothing to do, and nothing worth remembering.
func (k *Key) Idle(now clock.Instant) bool {
	return k.IsQuiet() && (k.closed || !k.past.isMet(now))
}

// IsQuiet reports whether the Key has nothing to do.
func (k *Key) IsQuiet() bool {
	return k.open == 0 && len(k.line) == 0 && k.claim == nil && k.contest == nil && len(k.tries)+len(k.awaited) == 0
}

// IsWanted reports whether a caller has the lock or competes for it.
func (k *Key) IsWanted() bool { return k.claim != nil || k.wanting(nil) != nil }

// IsKnown reports whether the key is wanted here, or other processes have wanted it within the last second.
func (k *Key) IsKnown(now clock.Instant) bool { return k.IsWanted() || k.past.isMet(now) }

// IsTurnOver reports whether a caller that waits would let other processes go first.
func (k *Key) IsTurnOver(now clock.Instant) bool { return k.Turn.isOver(now) }

// Tick does what is due.
func (k *Key) Tick(now clock.Instant) {
	k.tickHeld(now)
	k.tellAwaited(func(b *Ballot) bool { return now >= b.overdue() }, now)
	if c := k.contest; c != nil && now >= c.due() {
		k.tickContest(now)
	}
	k.next(now)
	if k.claim != nil && k.claim.readers != nil {
		k.tickHeld(now) // one that has just joined may want the claim renewed, and the others did not
	}
}

// Due is when Tick must be called next; zero: never.
func (k *Key) Due() (at clock.Instant) {
	sooner := func(t clock.Instant) {
		if t > 0 && (at == 0 || t < at) {
			at = t
		}
	}
	if k.claim != nil {
		sooner(k.heldDue())
	}
	if k.contest != nil {
		sooner(k.contest.due())
	}
	for _, c := range k.awaited {
		sooner(c.asked.overdue())
	}
	if at == 0 && k.past != nil && k.past.met > 0 && k.IsQuiet() {
		sooner(k.past.met.Add(metStays))
	}
	return at
}

// Close ends the claim and all waiting for the lock. Its effects include the releases that the nodes must get.
func (k *Key) Close(now clock.Instant) {
	k.closed = true
	if k.claim != nil {
		k.end(Closed, nil, now)
	}
	k.abandon(now)
	for c := k.wanting(nil); c != nil; c = k.wanting(nil) {
		k.fail(c, &Failure{Kind: AfterClose, At: now})
	}
}

// An Effect is something that the owner of a Key does for it. Their order matters: requests reach each
// node in that order, and the context of a holder has ended before the next holder is told, and before a
// node is asked to give the lock back.
type Effect struct {
	Kind    EffectKind
	To      quorum.Set        // Send
	Request *protocol.Request // Send
	Ballot  *Ballot           // Send, Lost, Voted
	Caller  *Caller           // Grant, Fail, Done
	Hold    *Hold             // End, Extended
	Failure *Failure          // Voted; nil: the vote was won
}

// An EffectKind is what an Effect asks for.
type EffectKind uint8

// The effects. Those from Grant on go to callers and the guard, and can be carried out, in their order, after
// the owner has let go of the Key.
const (
	Send     EffectKind = iota + 1 // Request to the nodes in To; each answer goes to Count, with Ballot
	Listen                         // have the nodes hint at the key
	Unlisten                       // no more
	End                            // Hold has ended
	Extended                       // Hold was extended
	Voted                          // the vote Ballot is over
	Grant                          // Caller has got its Hold
	Fail                           // Caller has got its Failure
	Done                           // what Caller has asked about its Hold is over; its Failure is nil if it succeeded
	Lost                           // Ballot is a vote that was given up: later grants are of no use
)

// Lend gives the Key room for the effects of the next call, which is empty. Without it the Key makes its own.
func (k *Key) Lend(room *[]Effect) { k.effects = room }

// Effects returns the effects of the last call, in order.
func (k *Key) Effects() []Effect {
	if k.effects == nil {
		return nil
	}
	return *k.effects
}

// Carried says that the effects were carried out. The owner has the room for them again.
func (k *Key) Carried() { k.effects = nil }

func (k *Key) do(e Effect) {
	if k.effects == nil {
		k.effects = &[]Effect{}
	}
	*k.effects = append(*k.effects, e)
}

// tellVoted tells what came of a vote.
func (k *Key) tellVoted(b *Ballot, f *Failure) {
	if k.Group.Observed {
		k.do(Effect{Kind: Voted, Ballot: b, Failure: f})
	}
}

// ballot makes one that asks for op about a claim; without one (nil) it is about the key.
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

// send asks those of the nodes that the ballot has not asked yet.
func (k *Key) send(b *Ballot, to quorum.Set, req *protocol.Request) {
	if to &^= b.asked; to != 0 {
		b.asked |= to
		k.open += int32(to.Size())
		k.do(Effect{Kind: Send, Ballot: b, To: to, Request: req})
	}
}

// Park notes that a node has granted, and that the memory guard has yet to judge whether its vote counts.
// Count follows when it has. Until then the vote is not lost for want of that node.
func (k *Key) Park(b *Ballot, node int) { b.parked |= b.open() & quorum.Of(node) }

// Count takes a node's answer. If it returns true, Weigh must follow. They are two because Weigh needs the
// time, and to read the clock costs a system call.
func (k *Key) Count(b *Ballot, node int, r *protocol.Reply) (matters bool) {
	if !b.count(node, r) {
		return false
	}
	k.open--
	switch {
	case k.open == 0, b.purpose == toAcquire && !b.decided && b.tally.Pending() == 0:
		return true
	case b.purpose == toNothing:
		return false
	case b.purpose == toAcquire: // most grants in the middle of a vote change nothing
		if r.Outcome != protocol.Granted || b.Req.Op.Extends() || !b.decided && (b.isWon() || b.isSplit()) {
			return true
		}
		if b.decided {
			k.votedLate(b, node, nil)
		}
		return false
	case b.purpose == toUndo:
		return k.contest != nil && k.contest.undo == b
	case b.purpose == toRelease:
		return b.isSettled() && len(k.awaited) > 0
	}
	return true
}

// Weigh draws the conclusions from an answer that Count has taken.
func (k *Key) Weigh(b *Ballot, node int, now clock.Instant) {
	a := b.answerOf(node, now)
	k.timeAnswer(b, node, a)
	switch b.purpose {
	case toAcquire:
		k.voted(b, node, a, now)
	case toRaise:
		k.raised(b, now)
	case toExtend:
		k.extended(b, node, a, now)
	case toRepair:
		k.repaired(b, node, now)
	case toJoin:
		k.joined(b, node, a, now)
	case toLook:
		k.looked(b, node, a, now)
	case toUndo:
		k.undone(b, now)
	case toRelease:
		k.released(b, now)
	case toLineUp:
		k.placed(b, a, now)
	case toProbe:
		k.othersCounted(a, now)
	case toWatch:
		k.watched(b, node, a, now)
	}
	k.next(now)
}
