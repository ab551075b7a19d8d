package redlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-multierror"

	"github.com/redquorum/redquorum/clock"
)

// A round is one request asked of all nodes, and what they have replied so
// far. It outlives the goroutine that asked: a reply that comes late still
// finds the round, and through it the lock that it counts for.
type round struct {
	locker   *Locker
	told     context.Context // of its events
	name     string
	start    clock.Instant // before the first byte was queued
	seq      int           // of the rounds of one lock
	regained nodeSet       // nodes that were given the lock again since; guarded by the Lock
	parked   atomic.Int32  // votes that wait for a node's epoch record
	req      Request
	gap      *round   // the extension that found what this is to repair; see Lock.repair
	spare    *Request // instead of req for the nodes in without; nil: they are not asked
	without  nodeSet

	mu     sync.Mutex
	tally  tally
	slots  []slot  // one a node
	few    [5]slot // the memory of slots, if that will do
	lock   *Lock   // told of each reply from now on
	waiter *parker
	goal   func(*round) bool // when to signal the waiter
	waited time.Duration     // in vain, by the wait before
	need   nodeSet           // for the goal repliedNeeded
}

// A slot is one node's part of a round.
type slot struct {
	reply Reply         // its Outcome is zero until the node has replied
	after time.Duration // from start to the reply
}

func (l *Locker) newRound(told context.Context, name string, req Request) *round {
	return l.newRoundAt(told, l.settings.clock.Now(), name, req)
}

// newRoundAt is newRound for those who have just read the clock: it is a system
// call.
func (l *Locker) newRoundAt(told context.Context, now clock.Instant, name string, req Request) *round {
	n := len(l.nodes)
	r := &round{locker: l, told: told, name: name, start: now, req: req, tally: tally{n: n}}
	if n <= len(r.few) {
		r.slots = r.few[:n]
	} else {
		r.slots = make([]slot, n)
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
	var failed []Reply // allocated only if a node fails at once
	order := l.orderOf(r.req.Key)
	order.Lock()
	if !right() {
		order.Unlock()
		return
	}
	for i, node := range l.nodes {
		req := &r.req
		if r.without.has(i) {
			if req = r.spare; req == nil {
				continue
			}
		}
		if err := node.Submit(req, i, r); err != nil {
			if failed == nil {
				failed = make([]Reply, len(l.nodes))
			}
			failed[i] = Reply{Outcome: Failed, Err: err}
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
func (r *round) Receive(i int, reply Reply) {
	if r.req.Epoch == "" || reply.Outcome != Granted && reply.Outcome != Refused {
		r.count(i, reply)
		return
	}
	w := &r.locker.guard.witnesses[i]
	v := vote{round: r, slot: i, reply: reply}
	if reply.Outcome == Refused {
		w.notice(v)
		r.count(i, reply)
	} else if void, parked := w.judge(&v); !parked {
		v.count(void)
	}
}

// count enters a node's reply.
func (r *round) count(i int, reply Reply) {
	l := r.locker
	var after time.Duration // read only where it is shown: the clock is a system call
	if reply.Outcome != Granted || l.observed() {
		after = l.settings.clock.Now().Sub(r.start)
	}
	r.mu.Lock()
	if r.slots[i].reply.Outcome != 0 { // a node that replies twice votes once
		r.mu.Unlock()
		return
	}
	if j := r.sameServer(reply.Run); j >= 0 {
		reply = disown(reply, l.nodes[j])
	}
	r.slots[i] = slot{reply, after}
	r.tally.add(reply.Outcome)
	last := r.tally.pending() == 0
	lock := r.lock
	if r.waiter != nil && r.goal(r) {
		r.waiter.wake()
	}
	r.mu.Unlock()

	switch {
	case r.gap != nil:
		lock.repaired(r.gap, i, reply.Outcome)
	case lock != nil:
		lock.heard(r, i, reply)
	}
	if l.observed() {
		l.publish(Event{Kind: EventVote, Context: r.told, Name: r.name, Op: r.req.Op, Node: l.nodes[i].String(),
			Outcome: reply.Outcome, Elapsed: after, Err: reply.Err})
	}
	if last && r.req.Releases() {
		l.inflight.done() // at the very end: Close does not return before
	}
}

// Goals of a wait. They are called with the round locked.

// decided: the vote can go only one way.
func decided(r *round) bool { return r.tally.verdict() != votePending }

// settled: won, or a majority says that our value is gone, or all have replied.
// A fault decides nothing about a lock that is held, so it is waited out.
func settled(r *round) bool {
	return r.tally.verdict() == voteWon || r.tally.gone() || r.tally.pending() == 0
}

// complete: every node has replied.
func complete(r *round) bool { return r.tally.pending() == 0 }

// repliedNeeded: all the needed nodes have replied.
func repliedNeeded(r *round) bool {
	for i := range r.slots {
		if r.need.has(i) && r.slots[i].reply.Outcome == 0 {
			return false
		}
	}
	return true
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
	p := l.parkers.get()
	r.waiter, r.goal = p, goal
	r.mu.Unlock()

	// The round has only just begun, so its limit can be counted from now as
	// well, which saves reading the clock.
	p.timer.Reset(limit - r.waited)
	for {
		p.sleep(ctx, nil)
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
	l.parkers.put(p)
}

// nodes returns the nodes with one of the outcomes; zero is that of a node that
// has not replied. The round must be locked.
func (r *round) nodes(outcomes ...Outcome) (set nodeSet) {
	for i := range r.slots {
		if slices.Contains(outcomes, r.slots[i].reply.Outcome) {
			set.add(i)
		}
	}
	return set
}

// cause explains why node i did not grant, or returns nil if it did. The round
// must be locked.
func (r *round) cause(i int) *NodeError {
	s := r.slots[i]
	e := &NodeError{Node: r.locker.nodes[i].String(), Err: s.reply.Err, After: s.after}
	switch s.reply.Outcome {
	case Granted:
		if r.req.Op != OpRaise || s.reply.Floor == 0 {
			return nil
		}
		e.Err = errLowToken
	case Refused:
		e.Err = refusal{s.reply}
	case 0:
		e.Err, e.After = errNoAnswer, r.locker.settings.clock.Now().Sub(r.start)
	}
	if e.Err == nil {
		e.Err = errors.New(s.reply.Outcome.String())
	}
	return e
}

// fail makes the round's error. A node that has not replied is to blame only if
// its time is up: where others decided the vote, nobody waited for it. The round
// must be locked.
func (r *round) fail(kind error) *QuorumError {
	e := &QuorumError{
		Op: r.req.Op.String(), Name: r.name, Err: kind,
		Votes: r.tally.granted, Nodes: r.tally.n, Quorum: r.tally.quorum(),
	}
	timeUp := r.locker.settings.clock.Now() >= r.start.Add(r.req.Timeout)
	for i := range r.slots {
		if r.slots[i].reply.Outcome == 0 && !timeUp {
			continue
		}
		if cause := r.cause(i); cause != nil {
			e.Causes = multierror.Append(e.Causes, cause)
		}
	}
	return e
}
