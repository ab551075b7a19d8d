package redlock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-multierror"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/ballot"
	"github.com/redquorum/redquorum/redlock/internal/lease"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
	"github.com/redquorum/redquorum/redlock/internal/trust"
)

// A round is one request asked of all nodes for a Locker: a ballot, the judgement of its votes, and
// whatever it is for. It outlives the goroutine that asked: a reply that comes late still finds the
// round, and through it the lock that it counts for.
type round struct {
	ballot.Ballot
	trial    trust.Trial
	group    *group
	eventCtx context.Context
	name     string
	req      protocol.Request
	session  atomic.Pointer[session] // hears each reply from Listen on
	gap      *round                  // the extension that found what this is to repair; see session.repair
	mark     lease.Mark              // guarded by the session
}

func (g *group) newRound(eventCtx context.Context, name string, req protocol.Request) *round {
	return g.newRoundAt(eventCtx, g.settings.clock.Now(), name, req)
}

// newRoundAt is newRound for a caller that has just read the clock: it is a system
// call.
func (g *group) newRoundAt(eventCtx context.Context, now clock.Instant, name string, req protocol.Request) *round {
	r := &round{group: g, eventCtx: eventCtx, name: name, req: req}
	r.Begin(g.voters, now)
	if g.guard != nil {
		r.trial.Begin(g.guard, r)
	}
	return r
}

// ask submits the round to every node and returns without waiting.
func (r *round) ask() { r.Ask(r.group.voters.All(), &r.req, r) }

// Receive implements protocol.Receiver. What a node grants counts only if the node has
// not forgotten what it granted before.
func (r *round) Receive(i int, reply protocol.Reply) {
	if reply.Outcome == protocol.Granted || reply.Outcome == protocol.Refused {
		r.group.voters.Answered(i)
	}
	if r.req.Epoch == "" || r.trial.Judge(i, &reply) != trust.NotYet {
		r.Count(i, &reply)
	}
}

// Request implements trust.Ballot.
func (r *round) Request() *protocol.Request { return &r.req }

// HadKey implements trust.Ballot.
func (r *round) HadKey(i int) bool { return r.session.Load().hadKey(i) }

// Count implements trust.Ballot: it enters a node's reply.
func (r *round) Count(i int, reply *protocol.Reply) {
	g := r.group
	c, ok := r.CountVote(i, reply, ballot.VoteKind{IsTimed: g.observed(), IsPromise: reply.Err == trust.ErrEarly})
	if !ok {
		return
	}
	if c.IsDue {
		r.trial.Proceed()
	}
	if reply.Outcome == protocol.Refused && r.req.Op == protocol.OpAcquireFenced || r.req.Judged && reply.Floor > 0 {
		g.tokens.refuse(r.req.Key, r.Start().Add(c.After))
	}
	switch s := r.session.Load(); {
	case !c.IsHeard:
	case r.gap != nil:
		s.repaired(r, i, reply.Outcome)
	default:
		s.heard(r, i, reply)
	}
	if g.observed() {
		outcome := reply.Outcome
		if reply.Err == trust.ErrEarly { // the node did what was asked, so observers are told of no fault
			outcome = protocol.Granted
		}
		g.publish(Event{Kind: EventVote, Context: r.eventCtx, Name: r.name, Op: r.req.Op, Node: g.nodes[i].String(),
			Outcome: outcome, Elapsed: c.After, Err: reply.Err})
	}
	if c.IsLast && r.req.Op.Releases() {
		g.inflight.done() // at the very end: Close does not return before
	}
}

// couldWin reports whether the round was lost only because its TTL had to be entered, and waits for
// the entries first. The nodes that have voted so early would otherwise be enough to call the round
// lost where others are down, and the next round would come before the rest have entered the TTL.
func (r *round) couldWin(ctx context.Context, limit time.Duration) bool {
	s := r.State()
	could := s.Caused(trust.ErrEarly) != 0 && s.Promised.Size() >= s.Tally.Quorum()
	if could {
		r.Wait(ctx, limit, entered)
	}
	return could
}

// entered is the goal that a quorum of nodes has the round's TTL on record, or that none is about to
// enter it.
func entered(s *ballot.State) bool {
	have := s.Caused(trust.ErrEarly) | s.With(protocol.Granted)
	return have.Size() >= s.Tally.Quorum() || s.Judging == 0
}

// cause explains by now why node i did not grant, or returns nil if it did.
func (r *round) cause(s *ballot.State, i int, now clock.Instant) *NodeError {
	reply := s.Reply(i)
	e := &NodeError{Node: r.group.nodes[i].String(), Err: reply.Err, After: s.After(i)}
	switch reply.Outcome {
	case protocol.Granted:
		if r.req.Op != protocol.OpRaise || reply.Floor == 0 {
			return nil
		}
		e.Err = errLowToken
	case protocol.Refused:
		if e.Err = (refusal{*reply}); r.req.Op == protocol.OpMark {
			e.Err = errHighMark
		}
	case 0:
		e.Err, e.After = errNoAnswer, now.Sub(r.Start())
	}
	if e.Err == nil {
		e.Err = errors.New(reply.Outcome.String())
	}
	return e
}

// fail makes the round's error. A node that has not replied is to blame only if
// its time is up: where others decided the vote, it was not waited for.
func (r *round) fail(s *ballot.State, kind error) *QuorumError {
	now := r.group.settings.clock.Now()
	return r.failAt(s, now, kind, now >= r.Start().Add(r.Late()+r.req.Timeout))
}

// failAt is fail at a moment that may have been before; blameSilent says whether
// the time of the nodes that had not replied was up.
func (r *round) failAt(s *ballot.State, now clock.Instant, kind error, blameSilent bool) *QuorumError {
	e := &QuorumError{
		Op: r.req.Op.String(), Name: r.name, Err: kind,
		Votes: s.Tally.Granted, Nodes: s.Tally.Nodes, Quorum: s.Tally.Quorum(),
	}
	for i := range s.Len() {
		if s.Reply(i).Outcome == 0 && !blameSilent {
			continue
		}
		if cause := r.cause(s, i, now); cause != nil {
			e.Causes = multierror.Append(e.Causes, cause)
		}
	}
	return e
}

// notExtended is the error of an extension that had come to nothing by the lock's deadline.
func (r *round) notExtended(deadline clock.Instant) *QuorumError {
	state := r.State()
	return r.failAt(&state, deadline, errNotExtended, true)
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
func (g *group) release(of releaseOf, now clock.Instant) *round {
	c := of.claim
	if c.ops == judgedOps && !of.held {
		c.ops = fencedOps // a node that accepts by a script is kept from doing so later
	}
	req := c.request(of.settings, c.ops.release)
	req.Held = of.held
	r := g.newRoundAt(of.eventCtx, now, c.name, req)
	g.inflight.add()
	r.Ask(of.maybe, &r.req, r)
	if rest := g.voters.All() &^ of.maybe; rest != 0 {
		// A node that holds nothing has no late acquisition to be kept from
		// either, and the counter of tokens there may be what others are
		// settling theirs by.
		c = c.withoutToken()
		req := c.request(of.settings, c.ops.release)
		req.MayHold = false
		r.Ask(rest, &req, r)
	}
	return r
}
