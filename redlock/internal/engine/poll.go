package engine

import (
	"context"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
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

// Receive implements protocol.Receiver.
func (p *Poll) Receive(node int, r protocol.Reply) {
	e, now := p.engine, p.engine.clock.Now()
	if e.events != nil {
		e.events.Answered(Answer{p.tag, false, &p.req, node, &r, now.Sub(p.Start)})
	}
	p.answers <- pollAnswer{node, r, now}
	e.count(-1)
}

// Wait counts answers until there are enough (nil: all), or the request's Timeout is over, or the context ends. It
// is called once.
func (p *Poll) Wait(ctx context.Context, isEnough func(quorum.Tally) bool) {
	over := make(chan struct{})
	defer p.engine.clock.AfterFunc(p.Start.Add(p.req.Timeout).Sub(p.engine.clock.Now()), func() { close(over) }).Stop()
	for p.Tally.Pending() > 0 && (isEnough == nil || !isEnough(p.Tally)) {
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
	p.engine.isFirst(a.node, &a.reply, p.Tally.IsFirst)
	p.Tally.Add(a.reply.Outcome)
	p.Replies[a.node], p.After[a.node] = a.reply, a.at.Sub(p.Start)
}

// Silent returns the nodes that have not answered.
func (p *Poll) Silent() (set quorum.Set) {
	for i, r := range p.Replies {
		if r.Outcome == 0 {
			set.Add(i)
		}
	}
	return set
}

// Changed has the key looked at, as if all nodes had hinted at it. Nodes do not hint at what their own client does.
func (e *Engine) Changed(key string) {
	for i := range e.nodes {
		e.hints.hint(i, key)
	}
}

// Op returns what the nodes were asked.
func (p *Poll) Op() protocol.Op { return p.req.Op }
