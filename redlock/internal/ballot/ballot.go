package ballot

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/lockorder"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/park"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A Ballot is one request asked of all nodes, and what they have replied so far. It outlives the
// goroutine that asked: a reply that comes late still finds it. Begin, Run and Ask are for that
// goroutine; the rest is safe for concurrent use.
type Ballot struct {
	// What each reply changes comes first, in as few cache lines as it fits in: the replies are counted
	// by as many goroutines as there are nodes, and the caller's.
	mu     lockorder.Mutex[lockorder.Ballot]
	waiter *park.Parker
	goal   Goal  // when to signal the waiter
	state  State // guarded by mu, as all above

	voters     *Voters
	start      clock.Instant
	late       time.Duration // from start until the last node was asked; zero: all at once
	askedLater quorum.Set    // nodes that were not asked at start; set before they are asked
}

// Begin makes b a ballot of the voters that begins at now, before the first byte is queued.
func (b *Ballot) Begin(v *Voters, now clock.Instant) {
	b.voters, b.start = v, now
	b.state.begin(len(v.nodes))
}

// Start returns when the ballot began.
func (b *Ballot) Start() clock.Instant { return b.start }

// Late returns how long after the start the last node was asked.
func (b *Ballot) Late() time.Duration { return b.late }

// State returns what the nodes have said so far.
func (b *Ballot) State() State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state.clone()
}

// Listen returns the state, and has CountVote say for each vote from now on that it is heard. So each
// vote is either in the state that was returned, or heard.
func (b *Ballot) Listen() State {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state.isHeard = true
	return b.state.clone()
}

// Close says that the ballot was lost, and that what comes now is of no use.
func (b *Ballot) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state.isOver = true
}

// Asking.

// A Plan is how the nodes are asked, and for how long. The zero Plan asks all nodes at the same time,
// and waits for them as long as it may.
type Plan struct {
	probe int // the node that is asked alone first, and the others only if it grants; plus one

	// GiveUpSplit gives up a vote that is split as soon as the nodes that have yet to answer are
	// overdue. It is for callers who come again.
	GiveUpSplit bool
}

// EveryNode is the plan to ask all nodes at the same time, for callers who come again.
var EveryNode = Plan{GiveUpSplit: true}

// Probe is the plan to ask node i first, for callers who come again.
func Probe(i int) Plan { return Plan{probe: i + 1, GiveUpSplit: true} }

// Probes reports whether the plan is to ask node i first.
func (p Plan) Probes(i int) bool { return p.probe == i+1 }

// IsProbe reports whether the plan is to ask one node first.
func (p Plan) IsProbe() bool { return p.probe > 0 }

// Run asks the nodes for req, and waits until the vote is decided, or cannot be in time: for
// req.Timeout after the last node was asked, and as long again where nodes have answered in time and
// are being asked for their records since. It reports false if the node that was probed has refused:
// then nothing was taken.
func (b *Ballot) Run(ctx context.Context, p Plan, req *protocol.Request, to protocol.Receiver) bool {
	if !p.IsProbe() {
		b.Ask(b.voters.All(), req, to)
	} else if !b.askInTurn(ctx, p.probe-1, req, to) {
		return false
	}
	b.Await(ctx, p, req)
	return true
}

// Await is what Run does when the nodes have been asked.
func (b *Ballot) Await(ctx context.Context, p Plan, req *protocol.Request) {
	limit := b.late + req.Timeout
	if !p.GiveUpSplit {
		b.Wait(ctx, limit, Decided)
	} else {
		b.waitBriefly(ctx, limit)
	}
	b.WaitForRecords(ctx, limit+req.Timeout, Decided)
}

// Ask submits req to the nodes of a set and returns without waiting. The replies are given to
// another, which has them counted.
func (b *Ballot) Ask(set quorum.Set, req *protocol.Request, to protocol.Receiver) {
	b.AskIf(set, req, to, func() bool { return true })
}

// AskIf is Ask if that is still right when the request's turn has come (see Voters.Order).
func (b *Ballot) AskIf(set quorum.Set, req *protocol.Request, to protocol.Receiver, right func() bool) {
	var failed []protocol.Reply // allocated only if a node fails at once
	order := b.voters.Order(req)
	order.Lock()
	if !right() {
		order.Unlock()
		return
	}
	for i, node := range b.voters.nodes {
		if !set.Has(i) {
			continue
		}
		if err := node.Submit(req, i, to); err != nil {
			if failed == nil {
				failed = make([]protocol.Reply, len(b.voters.nodes))
			}
			failed[i] = protocol.Reply{Outcome: protocol.Failed, Err: err}
		}
	}
	order.Unlock()
	for i, reply := range failed {
		if reply.Outcome != 0 {
			to.Receive(i, reply)
		}
	}
}

// askInTurn asks one node, and then the others unless it has refused: also if it
// does not answer soon. False means that it has refused, and that nothing was taken.
func (b *Ballot) askInTurn(ctx context.Context, first int, req *protocol.Request, to protocol.Receiver) bool {
	v := b.voters
	alone := quorum.Of(first)
	others := v.All() &^ alone
	b.askedLater = others
	b.Ask(alone, req, to)
	limit := v.AnswerLimit(first, req.Timeout)
	limit += v.jitter(limit/2 + 1) // contenders who give up on a node together would split the others
	limit = min(limit, req.Timeout)
	replied := Replied(alone)
	b.Wait(ctx, limit, replied)
	s := b.State()
	if !replied(&s) && ctx.Err() == nil {
		if waited := b.now().Sub(b.start); HasOverslept(waited, limit) {
			b.Wait(ctx, waited+MinAnswerLimit, replied)
			s = b.State()
		}
	}
	if s.Reply(first).Outcome == protocol.Refused {
		return false
	}
	if ctx.Err() != nil {
		return true
	}
	if !replied(&s) && s.Judging == 0 {
		v.PassOver(first)
	}
	b.late = b.now().Sub(b.start)
	b.Ask(others, req, to)
	return true
}

func (b *Ballot) now() clock.Instant { return b.voters.lot.Clock.Now() }

// Counting.

// Examine says that node i has voted, and that the vote waits for the node's record.
func (b *Ballot) Examine(i int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state.Judging.Add(i)
}

// Promise says that the vote of node i counts as soon as its TTL is on record. It is entered when a
// quorum of nodes has promised, or at once; isDue reports that this is so.
func (b *Ballot) Promise(i int, atOnce bool) (isDue bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &b.state
	s.Judging.Remove(i)
	s.Promised.Add(i)
	s.atOnce = s.atOnce || atOnce
	s.enter()
	b.wakeWaiter()
	return s.IsPromised()
}

// IsWon reports whether a quorum has granted.
func (b *Ballot) IsWon() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return IsWon(&b.state)
}

// A Count is what the counting of a vote has shown.
type Count struct {
	After   time.Duration // from the start to the reply
	IsLast  bool          // every node has replied now
	IsHeard bool          // see Listen
	IsDue   bool          // what was promised is to be entered now
}

// CountVote enters the reply of node i, which it changes if another node of the ballot is the same
// server. It reports false if the node has voted already.
func (b *Ballot) CountVote(i int, reply *protocol.Reply, kind VoteKind) (c Count, ok bool) {
	v := b.voters
	if reply.Outcome != protocol.Granted || kind.IsTimed {
		c.After = b.now().Sub(b.start)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &b.state
	slots := s.slots()
	if slots[i].reply.Outcome != 0 { // a node that replies twice votes once
		return c, false
	}
	if j := s.sameServer(reply.Run); j >= 0 {
		disown(reply, v.nodes[j])
	}
	slots[i] = slot{v.grants[i].share(reply), c.After}
	s.Tally.Add(reply.Outcome)
	s.Judging.Remove(i)
	if reply.Outcome == protocol.Granted || kind.IsPromise {
		s.Promised.Add(i)
		s.enter()
	}
	c.IsLast, c.IsHeard, c.IsDue = s.Tally.Pending() == 0, s.isHeard, s.IsPromised()
	if reply.Outcome == protocol.Refused && !b.askedLater.Has(i) {
		v.Measured(i, c.After)
	}
	b.wakeWaiter()
	return c, true
}

// A VoteKind is what there is to say of a vote besides the reply.
type VoteKind struct {
	IsTimed   bool // the time of a grant is of interest, too: the clock is a system call
	IsPromise bool // the node will grant when it is asked again
}

// sameServer returns the node that has replied from the process of run, or -1. Its data set, which
// run names as well, may have two names.
func (s *State) sameServer(run string) int {
	process, _, _ := strings.Cut(run, "/")
	if process == "" {
		return -1
	}
	for i, slot := range s.slots() {
		if of := slot.reply.Run; of == run || strings.HasPrefix(of, process) && strings.HasPrefix(of[len(process):], "/") {
			return i
		}
	}
	return -1
}

// disown changes the reply of a server that has replied by another node already.
func disown(reply *protocol.Reply, other protocol.Node) {
	switch reply.Outcome {
	case protocol.Granted: // to the other node as well, if their databases differ: to be undone
		reply.Outcome = protocol.Unknown
	case protocol.Refused:
		reply.Outcome = protocol.Failed
	default:
		return
	}
	reply.Err = fmt.Errorf("%w: this is %s by another address or database", ErrSameServer, other)
}

// ErrSameServer: another node of the ballot is the same server.
var ErrSameServer error = protocol.PermanentError("the same server must not vote twice")

// Waiting.

// wakeWaiter wakes the caller that waits if its goal is reached. The ballot must be locked.
func (b *Ballot) wakeWaiter() {
	if b.waiter != nil && b.goal(&b.state) {
		b.waiter.Wake()
	}
}

// Wait sleeps until the goal is reached, limit has passed since the start, or ctx has ended. What came
// of it is for the caller to look up. One goroutine waits at a time, as often as it likes.
func (b *Ballot) Wait(ctx context.Context, limit time.Duration, goal Goal) {
	b.mu.Lock()
	if goal(&b.state) {
		b.mu.Unlock()
		return
	}
	lot := b.voters.lot
	p := lot.Get()
	b.waiter, b.goal = p, goal
	b.mu.Unlock()

	for end, reached := b.start.Add(limit), false; !reached; {
		left := end.Sub(b.now())
		if left <= 0 || ctx.Err() != nil {
			break
		}
		p.WakeAfter(left)
		p.Sleep(ctx, nil)
		b.mu.Lock()
		reached = goal(&b.state)
		b.mu.Unlock()
	}

	b.mu.Lock()
	b.waiter, b.goal = nil, nil
	b.mu.Unlock()
	lot.Put(p)
}

// WaitForRecords is Wait where nodes have answered in time and are being asked for their records
// since. It returns at once where none is.
func (b *Ballot) WaitForRecords(ctx context.Context, limit time.Duration, goal Goal) {
	if s := b.State(); s.Judging != 0 {
		b.Wait(ctx, limit, goal)
	}
}

// waitBriefly waits until the vote is decided, or until it is split and the nodes that
// have yet to answer are overdue: limit at most.
func (b *Ballot) waitBriefly(ctx context.Context, limit time.Duration) {
	b.Wait(ctx, limit, DecidedOrSplit)
	if s := b.State(); s.IsSplit() {
		b.Wait(ctx, min(limit, b.late+b.voters.AnswerLimitOf(s.With(0), limit)), Decided)
	}
}
