package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-multierror"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/protocol"
	"github.com/redquorum/redquorum/redlock/internal/park"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
	"github.com/redquorum/redquorum/redlock/internal/trust"
)

// A round is one request asked of all nodes, and what they have replied so
// far. It outlives the goroutine that asked: a reply that comes late still
// finds the round, and through it the lock that it counts for.
type round struct {
	// What each reply changes comes first, in as few cache lines as it fits in: the replies are counted
	// by as many goroutines as there are nodes, and the caller's.
	mu       sync.Mutex
	tally    quorum.Tally
	waiter   *park.Parker
	goal     func(*round) bool // when to signal the waiter
	over     bool              // it was lost, and what comes now is of no use
	atOnce   bool              // what is promised is entered without a quorum of promises
	promised quorum.Set        // nodes whose grant counts, now or when its TTL is on record
	judging  quorum.Set        // nodes whose vote waits for their epoch record
	session  *session          // hears each reply from now on
	slots    []slot            // one a node
	few      [5]slot           // the memory of slots, if that will do
	trial    trust.Trial

	waited     time.Duration // in vain, by the wait before
	need       quorum.Set    // for the goals repliedNeeded and repliedMost
	askedLater quorum.Set    // nodes that were not asked at start
	regained   quorum.Set    // nodes that were given the lock again since; guarded by the session

	seq      int32 // of the rounds of one session
	locker   *Locker
	eventCtx context.Context
	name     string
	start    clock.Instant // before the first byte was queued
	req      protocol.Request
	gap      *round            // the extension that found what this is to repair; see session.repair
	spare    *protocol.Request // instead of req for the nodes in without; nil: they are not asked
	without  quorum.Set
	late     time.Duration // from start until the last node was asked; zero: all at once
}

func (l *Locker) newRound(eventCtx context.Context, name string, req protocol.Request) *round {
	return l.newRoundAt(eventCtx, l.settings.clock.Now(), name, req)
}

// newRoundAt is newRound for a caller that has just read the clock: it is a system
// call.
func (l *Locker) newRoundAt(eventCtx context.Context, now clock.Instant, name string, req protocol.Request) *round {
	n := len(l.nodes)
	r := &round{locker: l, eventCtx: eventCtx, name: name, start: now, req: req, tally: quorum.Tally{Nodes: n}}
	if n <= len(r.few) {
		r.slots = r.few[:n]
	} else {
		r.slots = make([]slot, n)
	}
	for i := range r.slots {
		r.slots[i].reply = noReply
	}
	if l.guard != nil {
		r.trial.Begin(l.guard, r, now, &r.req)
	}
	return r
}

// ask submits the round to every node and returns without waiting. It is
// called once.
func (r *round) ask() { r.askIf(func() bool { return true }) }

// askIf is ask if that is still right when the round's turn has come.
//
// All rounds for one name go to the nodes in the same order, whichever of them
// is first. Otherwise several callers of this process that try for a name at
// once could split the nodes among them, and each be refused by the others.
func (r *round) askIf(right func() bool) {
	l := r.locker
	var failed []protocol.Reply // allocated only if a node fails at once
	order := l.orderOfRequest(&r.req)
	order.Lock()
	if !right() {
		order.Unlock()
		return
	}
	for i, node := range l.nodes {
		req := &r.req
		if r.without.Has(i) {
			if req = r.spare; req == nil {
				continue
			}
		}
		if err := node.Submit(req, i, r); err != nil {
			if failed == nil {
				failed = make([]protocol.Reply, len(l.nodes))
			}
			failed[i] = protocol.Reply{Outcome: protocol.Failed, Err: err}
		}
	}
	order.Unlock()
	for i, reply := range failed {
		if reply.Outcome != 0 {
			r.Receive(i, reply)
		}
	}
}

// Receive implements Receiver. What a node grants counts only if the node has
// not forgotten what it granted before.
func (r *round) Receive(i int, reply protocol.Reply) {
	if reply.Outcome == protocol.Granted || reply.Outcome == protocol.Refused {
		r.locker.roundTrips[i].answered()
	}
	if r.req.Epoch == "" {
		r.count(i, &reply)
		return
	}
	if r.trial.Judge(i, &reply) != trust.NotYet {
		r.count(i, &reply)
	}
}

// Examine implements trust.Ballot.
func (r *round) Examine(i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.judging.Add(i)
}

// Promise implements trust.Ballot.
func (r *round) Promise(i int, atOnce bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.judging.Remove(i)
	r.promised.Add(i)
	r.atOnce = r.atOnce || atOnce
	r.enter()
	r.wakeWaiter()
}

// enter notes which votes are entered now. A lock that may still be refused enters nothing, because
// what is on record costs others a quarantine. The round must be locked.
func (r *round) enter() {
	if r.isPromised() {
		r.judging |= r.promised & r.nodes(0)
	}
}

func (r *round) isPromised() bool {
	return r.atOnce || !r.over && r.promised.Size() >= r.tally.Quorum()
}

// IsPromised implements trust.Ballot.
func (r *round) IsPromised() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.isPromised()
}

// IsWon implements trust.Ballot.
func (r *round) IsWon() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tally.Verdict() == quorum.Won
}

// HadKey implements trust.Ballot.
func (r *round) HadKey(i int) bool {
	r.mu.Lock()
	s := r.session
	r.mu.Unlock()
	return s.hadKey(i)
}

// Count implements trust.Ballot.
func (r *round) Count(i int, reply *protocol.Reply) { r.count(i, reply) }

// couldWin reports whether the round was lost only because its TTL had to be entered, and waits for
// the entries first. The nodes that have voted so early would otherwise be enough to call the round
// lost where others are down, and the next round would come before the rest have entered the TTL.
func (r *round) couldWin(ctx context.Context, limit time.Duration) bool {
	r.mu.Lock()
	could := r.early() != 0 && r.promised.Size() >= r.tally.Quorum()
	r.mu.Unlock()
	if could {
		r.wait(ctx, limit, entered)
	}
	return could
}

// count enters a node's reply.
func (r *round) count(i int, reply *protocol.Reply) {
	l := r.locker
	var after time.Duration // read only where it is shown: the clock is a system call
	if reply.Outcome != protocol.Granted || l.observed() {
		after = l.settings.clock.Now().Sub(r.start)
	}
	r.mu.Lock()
	if r.slots[i].reply.Outcome != 0 { // a node that replies twice votes once
		r.mu.Unlock()
		return
	}
	if j := r.sameServer(reply.Run); j >= 0 {
		disowned := disown(*reply, l.nodes[j])
		reply = &disowned
	}
	r.slots[i] = slot{l.grants[i].share(reply), after}
	r.tally.Add(reply.Outcome)
	r.judging.Remove(i)
	switch {
	case reply.Outcome == protocol.Granted, reply.Err == trust.ErrEarly:
		r.promised.Add(i)
		r.enter()
	}
	last := r.tally.Pending() == 0
	if reply.Outcome == protocol.Refused && !r.askedLater.Has(i) {
		l.roundTrips[i].measured(after)
	}
	if reply.Outcome == protocol.Refused && r.req.Op == protocol.OpAcquireFenced || r.req.Judged && reply.Floor > 0 {
		l.tokens.refuse(r.req.Key, r.start.Add(after))
	}
	s := r.session
	r.wakeWaiter()
	r.mu.Unlock()
	r.trial.Proceed()

	switch {
	case r.gap != nil:
		s.repaired(r, i, reply.Outcome)
	case s != nil:
		s.heard(r, i, reply)
	}
	if l.observed() {
		l.publish(Event{Kind: EventVote, Context: r.eventCtx, Name: r.name, Op: r.req.Op, Node: l.nodes[i].String(),
			Outcome: reply.Outcome, Elapsed: after, Err: reply.Err})
	}
	if last && r.req.Op.Releases() {
		l.inflight.done() // at the very end: Close does not return before
	}
}

// wakeWaiter wakes the caller that waits if its goal is reached. The round must be locked.
func (r *round) wakeWaiter() {
	if r.waiter != nil && r.goal(r) {
		r.waiter.Wake()
	}
}

// Goals of a wait. They are called with the round locked.

// decided: the vote can go only one way.
func decided(r *round) bool { return r.tally.Verdict() != quorum.Pending }

// decidedOrSplit: decided, or split.
func decidedOrSplit(r *round) bool { return decided(r) || r.isSplit() }

// isSplit reports whether others are in the way, and the nodes that have yet to
// answer decide, but cannot make an outage of it: too few have failed. To wait long for
// them would keep all contenders waiting for one node. The round must be locked.
func (r *round) isSplit() bool {
	t := r.tally
	return !decided(r) && t.Refused > 0 && t.Faults+t.Pending() < t.Blocking() && r.judging == 0
}

// settled: won, or a majority says that our value is gone, or all have replied.
// A fault decides nothing about a lock that is held, so it is waited out.
func settled(r *round) bool {
	return r.tally.Verdict() == quorum.Won || r.tally.Gone() || r.tally.Pending() == 0
}

// early returns the nodes that voted before the round's TTL was on record, and have it there now. The
// round must be locked.
func (r *round) early() (set quorum.Set) {
	for i := range r.slots {
		if r.slots[i].reply.Err == trust.ErrEarly {
			set.Add(i)
		}
	}
	return set
}

// entered: a quorum of nodes has the round's TTL on record, or none is about to enter it.
func entered(r *round) bool {
	have := r.early() | r.nodes(protocol.Granted)
	return have.Size() >= r.tally.Quorum() || r.judging == 0
}

// complete: every node has replied.
func complete(r *round) bool { return r.tally.Pending() == 0 }

// repliedNeeded: all the needed nodes have replied, or granted what is not on record yet.
func repliedNeeded(r *round) bool {
	for i := range r.slots {
		if r.need.Has(i) && r.slots[i].reply.Outcome == 0 && !r.promised.Has(i) {
			return false
		}
	}
	return true
}

// repliedMost: the needed nodes that have not replied are a minority of all.
func repliedMost(r *round) bool {
	missing := r.need & r.nodes(0)
	return missing.Size() < r.tally.Blocking()
}

// wait sleeps until the goal is reached, limit has passed since the round was
// asked, which must be just now, or ctx has ended. What came of it is for the
// caller to look up. It can be called again with a later limit.
func (r *round) wait(ctx context.Context, limit time.Duration, goal func(*round) bool) {
	l := r.locker
	r.mu.Lock()
	if goal(r) {
		r.mu.Unlock()
		return
	}
	p := l.parkers.Get()
	r.waiter, r.goal = p, goal
	r.mu.Unlock()

	// The round has only just begun, so its limit can be counted from now as
	// well, which saves reading the clock.
	p.WakeAfter(limit - r.waited)
	for {
		p.Sleep(ctx, nil)
		r.mu.Lock()
		reached := goal(r)
		r.mu.Unlock()
		if reached || ctx.Err() != nil || l.settings.clock.Now() >= r.start.Add(limit) {
			break
		}
	}

	r.mu.Lock()
	if r.waiter = nil; !goal(r) {
		r.waited = limit
	}
	r.mu.Unlock()
	l.parkers.Put(p)
}

// waitForRecords is wait where nodes have answered in time and are being asked for their records
// since. It returns at once where none is.
func (r *round) waitForRecords(ctx context.Context, limit time.Duration, goal func(*round) bool) {
	if r.isJudging() {
		r.wait(ctx, limit, goal)
	}
}

// waitBriefly waits until the vote is decided, or until it is split and the nodes that
// have yet to answer are overdue: limit at most.
func (r *round) waitBriefly(ctx context.Context, limit time.Duration) {
	r.wait(ctx, limit, decidedOrSplit)
	r.mu.Lock()
	split, silent := r.isSplit(), r.nodes(0)
	r.mu.Unlock()
	if split {
		r.wait(ctx, min(limit, r.late+r.locker.answerLimitOf(silent, limit)), decided)
	}
}

// isJudging reports whether a vote waits for its node's record.
func (r *round) isJudging() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.judging != 0
}

// nodes returns the nodes with one of the outcomes; zero is that of a node that
// has not replied. The round must be locked.
func (r *round) nodes(outcomes ...protocol.Outcome) (set quorum.Set) {
	for i := range r.slots {
		if slices.Contains(outcomes, r.slots[i].reply.Outcome) {
			set.Add(i)
		}
	}
	return set
}

// outcomeOf returns what node i has replied, zero if it has not.
func (r *round) outcomeOf(i int) protocol.Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.promised.Has(i) { // it waits for others to grant as well
		return protocol.Granted
	}
	return r.slots[i].reply.Outcome
}

// cause explains by now why node i did not grant, or returns nil if it did. The
// round must be locked.
func (r *round) cause(i int, now clock.Instant) *NodeError {
	s := r.slots[i]
	e := &NodeError{Node: r.locker.nodes[i].String(), Err: s.reply.Err, After: s.after}
	switch s.reply.Outcome {
	case protocol.Granted:
		if r.req.Op != protocol.OpRaise || s.reply.Floor == 0 {
			return nil
		}
		e.Err = errLowToken
	case protocol.Refused:
		if e.Err = (refusal{*s.reply, r.nameIn(s.reply)}); r.req.Op == protocol.OpMark {
			e.Err = errHighMark
		}
	case protocol.Failed:
		if name := r.nameIn(s.reply); name != "" {
			e.Err = fmt.Errorf("%q: %w", name, s.reply.Err)
		}
	case 0:
		e.Err, e.After = errNoAnswer, now.Sub(r.start)
	}
	if e.Err == nil {
		e.Err = errors.New(s.reply.Outcome.String())
	}
	return e
}

// fail makes the round's error. A node that has not replied is to blame only if
// its time is up: where others decided the vote, it was not waited for. The round
// must be locked.
func (r *round) fail(kind error) *QuorumError {
	now := r.locker.settings.clock.Now()
	return r.failAt(now, kind, now >= r.start.Add(r.late+r.req.Timeout))
}

// failAt is fail at a moment that may have been before; blameSilent says whether
// the time of the nodes that had not replied was up. The round must be locked.
func (r *round) failAt(now clock.Instant, kind error, blameSilent bool) *QuorumError {
	e := &QuorumError{
		Op: r.req.Op.String(), Name: r.name, Err: kind,
		Votes: r.tally.Granted, Nodes: r.tally.Nodes, Quorum: r.tally.Quorum(), InTheWay: r.namesInTheWay(),
	}
	for i := range r.slots {
		if r.slots[i].reply.Outcome == 0 && !blameSilent {
			continue
		}
		if cause := r.cause(i, now); cause != nil {
			e.Causes = multierror.Append(e.Causes, cause)
		}
	}
	return e
}

// A releaseOf is a claim that is to be forgotten by all nodes.
type releaseOf struct {
	eventCtx context.Context
	settings *settings
	claim    claim
	maybe    quorum.Set // nodes that may hold it, and must not be let off before they are reached
	held     bool       // until now: they do hold it, as far as is known
}

// release asks all nodes to forget a claim.
func (l *Locker) release(of releaseOf, now clock.Instant) *round {
	c := of.claim
	if c.kind == judged && !of.held {
		c.kind = fenced // a node that accepts by a script is kept from doing so later
	}
	req := l.request(of.settings, c.kind.release, c)
	req.Held = of.held
	r := l.newRoundAt(of.eventCtx, now, c.name, req)
	if all := quorum.All(len(l.nodes)); of.maybe != all {
		// A node that holds nothing has no late acquisition to be kept from
		// either, and the counter of tokens there may be what others are
		// settling theirs by.
		c = c.withoutToken()
		spare := l.request(of.settings, c.kind.release, c)
		spare.MayHold = false
		r.spare, r.without = &spare, all&^of.maybe
	}
	l.inflight.add()
	r.ask()
	return r
}

// sameServer returns the node that has replied from the process of run, or -1. Its data set, which
// run names as well, may have two names. The round must be locked.
func (r *round) sameServer(run string) int {
	process, _, _ := strings.Cut(run, "/")
	if process == "" {
		return -1
	}
	for i := range r.slots {
		if of := r.slots[i].reply.Run; of == run || strings.HasPrefix(of, process) && strings.HasPrefix(of[len(process):], "/") {
			return i
		}
	}
	return -1
}

// disown is the reply of a server that has replied by another node already.
func disown(reply protocol.Reply, other protocol.Node) protocol.Reply {
	switch reply.Outcome {
	case protocol.Granted: // to the other node as well, if their databases differ: to be undone
		reply.Outcome = protocol.Unknown
	case protocol.Refused:
		reply.Outcome = protocol.Failed
	default:
		return reply
	}
	reply.Err = fmt.Errorf("%w: this is %s by another address or database", ErrSameServer, other)
	return reply
}
