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

// A Poll is a request to all nodes that is no matter of a Key: what they hold, a mark, or the release of a lock by
// its value.
type Poll struct {
	Start   clock.Instant
	Tally   quorum.Tally
	Replies []protocol.Reply // by node; those that have not answered have no Outcome
	After   []time.Duration  // from the Start to the answer

	engine  *Engine
	judge   func(*protocol.Reply) // changes replies to what they are worth; nil: they count as they are
	req     protocol.Request
	tag     any
	answers chan pollAnswer // has room for all
}

type pollAnswer struct {
	node  int
	reply protocol.Reply
	at    clock.Instant
}

// Ask begins a Poll. Until all nodes have answered it counts as a key, which Close waits for.
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

// AskSlots begins a Poll for each of k slots of the request's key, so that they share packets.
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

// All and Decided tell when there are enough answers to a Poll: when there are all, or when a quorum has done what
// was asked, or a majority cannot.
func All(t quorum.Tally) bool     { return t.Pending() == 0 }
func Decided(t quorum.Tally) bool { return t.Verdict() == quorum.Won || t.Gone() }

// Wait counts answers until there are enough or all, or the request's Timeout is over, or the context ends. It
// is called once.
func (p *Poll) Wait(ctx context.Context, isEnough func(quorum.Tally) bool) {
	over := make(chan struct{})
	defer p.engine.clock.AfterFunc(p.Start.Add(p.req.Timeout).Sub(p.engine.clock.Now()), func() { close(over) }).Stop()
	for !All(p.Tally) && !isEnough(p.Tally) {
		select {
		case a := <-p.answers: // also one that came before the end, which would win half of the time
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

func (p *Poll) add(a pollAnswer) {
	p.engine.servers.isFirst(a.node, &a.reply, p.Tally.IsFirst)
	if p.judge != nil {
		p.judge(&a.reply)
	}
	p.Tally.Add(a.reply.Outcome)
	p.Replies[a.node], p.After[a.node] = a.reply, a.at.Sub(p.Start)
}

// Failure returns why no quorum has done what was asked, or nil if one has. Its Kind is NotHeld where a majority
// cannot do it any more, and NoQuorum where too few have answered.
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

// Answer returns what a node has said. Without an Outcome it has said nothing for so long.
func (p *Poll) Answer(node int) core.Answer {
	r, after := p.Replies[node], p.After[node]
	if r.Outcome == 0 {
		after = p.engine.clock.Now().Sub(p.Start)
	}
	return core.Answer{Node: node, Outcome: r.Outcome, Err: r.Err, TTL: r.TTL, Owner: r.Owner, Readers: r.Readers, After: after}
}

// Marks returns the marks of the nodes that have told theirs, zero for none. A mark of other digits than the scripts
// write is a fault of its node.
func (p *Poll) Marks() (marks []int64) {
	for i := range p.Replies {
		r := &p.Replies[i]
		if r.Outcome != protocol.Granted {
			continue
		}
		mark, err := strconv.ParseUint(cmp.Or(r.Value, "0"), 10, 53)
		if err != nil {
			*r = protocol.Reply{Outcome: protocol.Failed,
				Err: fmt.Errorf("its mark is no number (delete the key %s* on this node when the tick is over)", keys.Mark)}
			p.Tally.Granted--
			p.Tally.Add(r.Outcome)
			continue
		}
		marks = append(marks, int64(mark))
	}
	return marks
}

// Meet asks all nodes whether their clients have this one's settings, and returns why a quorum does
// not say so, or nil. The failure is of kind InQuarantine if there is a quorum with the nodes that
// have no clients, and no node has others: then Introduce is what is missing. Without the memory guard
// there is nothing to ask.
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
	case others >= p.Tally.Quorum() && f.Votes > 0: // of clients that lost a race for new nodes
		e.Introduce()
	case others > 0: // the others may have forgotten its clients
	case !failed.Outage():
		f.Kind = core.InQuarantine
	}
	return f
}

// Introduce has nodes without a record get one that tells of this client.
func (e *Engine) Introduce() { e.judge.happen(e.judge.guard.Introduce) }

// Changed has the key looked at, as if all nodes had hinted at it. Nodes do not hint at what their own client does.
func (e *Engine) Changed(key string) {
	for i := range e.nodes {
		e.hints.hint(i, key)
	}
}

// Op returns what the nodes were asked.
func (p *Poll) Op() protocol.Op { return p.req.Op }
