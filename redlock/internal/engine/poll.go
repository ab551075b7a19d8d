package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/guard"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A Poll is a request to all nodes without a Key: a look at their holders, a mark, or the release
// of a lock by its value.
type Poll struct {
	Start   clock.Instant
	Tally   quorum.Tally
	Replies []protocol.Reply // by node; without an Outcome before the answer
	After   []time.Duration  // response times

	engine  *Engine
	judge   func(*protocol.Reply) // replaces replies by their verdicts; may be nil
	voters  func() quorum.Set     // the nodes whose grants count; nil for all
	req     protocol.Request
	tag     any
	answers chan pollAnswer // with room for all answers
}

type pollAnswer struct {
	node  int
	reply protocol.Reply
	at    clock.Instant
}

// Ask begins a Poll. The Poll counts as a key until all nodes have answered, so Close waits for it.
func (e *Engine) Ask(req protocol.Request, tag any) *Poll {
	n := len(e.nodes)
	p := &Poll{
		Start: e.clock.Now(), Tally: quorum.Tally{Nodes: n}, Replies: make([]protocol.Reply, n), After: make([]time.Duration, n),
		engine: e, req: req, tag: tag, answers: make(chan pollAnswer, n),
	}
	e.count(int64(n))
	for i, node := range e.nodes {
		if err := node.Submit(&p.req, i, p); err != nil {
			p.Receive(i, protocol.Reply{Outcome: protocol.Failed, Err: err})
		}
	}
	return p
}

// AskSlots begins a Poll for each of k slots of the request's key. They share packets.
func (e *Engine) AskSlots(req protocol.Request, k int, tag any) (polls []*Poll) {
	for slot := range k {
		of := req
		of.Key = keys.Slot(req.Key, slot)
		polls = append(polls, e.Ask(of, tag))
	}
	return polls
}

// Receive implements protocol.Receiver.
func (p *Poll) Receive(node int, r protocol.Reply) {
	e, now := p.engine, p.engine.clock.Now()
	if e.events != nil {
		e.events.Answered(Answer{p.tag, false, &p.req, node, &r, now.Sub(p.Start)})
	}
	p.answers <- pollAnswer{node, r, now}
	e.count(-1)
}

// All and Decided are conditions for Wait. All waits for every answer. Decided waits until a quorum
// has granted, or a majority cannot.
func All(t quorum.Tally) bool     { return t.Pending() == 0 }
func Decided(t quorum.Tally) bool { return t.Verdict() == quorum.Won || t.Gone() }

// Wait counts answers until isEnough is true, all nodes have answered, the request's Timeout has
// expired, or the context ends. Wait must be called only once.
func (p *Poll) Wait(ctx context.Context, isEnough func(quorum.Tally) bool) {
	over := make(chan struct{})
	defer p.engine.clock.AfterFunc(p.Start.Add(p.req.Timeout).Sub(p.engine.clock.Now()), func() { close(over) }).Stop()
	for !All(p.Tally) && !isEnough(p.Tally) {
		select {
		case a := <-p.answers: // otherwise select would choose the end half of the time
			p.add(a)
			continue
		default:
		}
		select {
		case a := <-p.answers:
			p.add(a)
		case <-over:
			return
		case <-ctx.Done():
			return
		}
	}
}

// OfVoters counts only grants of the nodes that hold the Lock, because other nodes may have
// forgotten the state in question. It must be called before Wait.
func (p *Poll) OfVoters(l Lock) {
	p.voters = func() quorum.Set {
		l.entry.mu.Lock()
		defer l.entry.mu.Unlock()
		return l.Claim.Voters()
	}
}

var errNoVoter = errors.New("it did not vote for the lock")

func (p *Poll) add(a pollAnswer) {
	p.engine.servers.recordServer(a.node, &a.reply, p.Tally.IsFirst)
	if p.judge != nil {
		p.judge(&a.reply)
	}
	if p.voters != nil && a.reply.Outcome == protocol.Granted && !p.voters().Has(a.node) {
		a.reply = protocol.Reply{Outcome: protocol.Unknown, Err: errNoVoter}
	}
	p.Tally.Add(a.reply.Outcome)
	p.Replies[a.node], p.After[a.node] = a.reply, a.at.Sub(p.Start)
}

// Failure returns the reason no quorum has granted, or nil. Its Kind is NotHeld if a majority
// cannot grant any longer, and NoQuorum if too few nodes have answered.
func (p *Poll) Failure() *core.Failure {
	now := p.engine.clock.Now()
	f := &core.Failure{Kind: core.NoQuorum, At: now, Nodes: p.Tally.Nodes, Votes: p.Tally.Granted, Took: now.Sub(p.Start)}
	switch {
	case p.Tally.Verdict() == quorum.Won:
		return nil
	case p.Tally.Gone():
		f.Kind = core.NotHeld
	}
	for i, r := range p.Replies {
		switch {
		case r.Outcome != protocol.Granted && r.Outcome != 0:
			f.Answers = append(f.Answers, p.Answer(i))
		case r.Outcome == 0 && f.Took >= p.req.Timeout:
			f.Silent.Add(i)
		}
	}
	return f
}

// Answer returns the answer of a node. Without an answer its Outcome is zero, with the time so far.
func (p *Poll) Answer(node int) core.Answer {
	r, after := p.Replies[node], p.After[node]
	if r.Outcome == 0 {
		after = p.engine.clock.Now().Sub(p.Start)
	}
	return core.Answer{Node: node, Outcome: r.Outcome, Err: r.Err, TTL: r.TTL, Owner: r.Owner, Readers: r.Readers, After: after}
}

// Marks returns the marks of the nodes that have answered, zero for none. A mark in another format
// than the scripts' is a fault of its node.
func (p *Poll) Marks() (marks []int64) {
	for i := range p.Replies {
		r := &p.Replies[i]
		if r.Outcome != protocol.Granted {
			continue
		}
		mark, err := strconv.ParseUint(cmp.Or(r.Value, "0"), 10, 53)
		if err != nil {
			*r = protocol.Reply{Outcome: protocol.Failed,
				Err: fmt.Errorf("its mark is not a number (after the tick, delete the key %s* on this node)", keys.Mark)}
			p.Tally.Granted--
			p.Tally.Add(r.Outcome)
			continue
		}
		marks = append(marks, int64(mark))
	}
	return marks
}

// Meet asks all nodes whether their clients have the same settings, and returns a failure unless a
// quorum confirms. The failure is InQuarantine if nodes without clients complete a quorum, and no
// node has other clients: then Introduce must follow. Without the memory guard, Meet asks nothing.
func (e *Engine) Meet(ctx context.Context, timeout time.Duration) *core.Failure {
	if e.judge == nil {
		return nil
	}
	p := e.Ask(protocol.Request{Op: protocol.OpAdmit, Key: e.group.Epoch, Timeout: timeout, Admit: &protocol.Admission{}}, nil)
	p.judge = func(r *protocol.Reply) {
		if r.Outcome != protocol.Granted || r.Epoch == nil {
			return
		}
		told, err := record.Parse(r.Epoch.Record)
		switch {
		case r.Epoch.Record == "":
			err = guard.ErrNew
		case err == nil:
			err = e.judge.terms.Refuses(guard.SettingsOf(told))
		}
		if r.Err = err; err != nil {
			r.Outcome = protocol.Unknown
		}
	}
	p.Wait(ctx, func(t quorum.Tally) bool { return t.Verdict() == quorum.Won })
	f := p.Failure()
	if f == nil {
		return nil
	}
	failed, others := quorum.Tally{Nodes: len(e.nodes), Faults: f.Silent.Size()}, 0
	for _, a := range f.Answers {
		switch {
		case errors.Is(a.Err, guard.ErrSettings):
			others++
		case a.Err != guard.ErrNew:
			failed.Faults++
		}
	}
	switch {
	case others >= p.Tally.Quorum() && f.Votes > 0: // nodes of clients that lost a race for new nodes
		e.Introduce()
	case others > 0: // the other nodes may have forgotten their clients
	case !failed.Outage():
		f.Kind = core.InQuarantine
	}
	return f
}

// Introduce writes a record of this client to the nodes without one.
func (e *Engine) Introduce() { e.judge.apply(e.judge.guard.Introduce) }

// Changed makes the engine look at the key, as after a hint from all nodes. Nodes send no hints
// about changes of their own client.
func (e *Engine) Changed(key string) {
	for i := range e.nodes {
		e.hints.hint(i, key)
	}
}

// Op returns the operation of the Poll.
func (p *Poll) Op() protocol.Op { return p.req.Op }
