package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// A panel asks all nodes about one key, outside of any lock.
type panel struct {
	nodes    []redlock.Node
	key      string
	patience time.Duration
}

func (p *panel) quorum() int { return len(p.nodes)/2 + 1 }

func (p *panel) close() {
	for _, n := range p.nodes {
		n.Close()
	}
}

// inspect asks what the nodes hold.
func (p *panel) inspect(ctx context.Context) ([]redlock.Reply, error) {
	r := &redlock.Request{Op: redlock.OpInspect, Key: p.key, Timeout: p.patience}
	requests := make([]*redlock.Request, len(p.nodes))
	for i := range requests {
		requests[i] = r
	}
	replies := p.ask(ctx, requests)
	return replies, ctx.Err()
}

// release deletes the key on each node where it holds the value given for that
// node. Nodes without one (nil) are not asked, and count as refused. It is the
// plain release, also for fenced locks: the other kind keeps an acquisition that
// is under way from coming later, which only its own client can know of, and would
// need its token. The counters stay as they are.
func (p *panel) release(ctx context.Context, value func(node int) *string) []redlock.Reply {
	requests := make([]*redlock.Request, len(p.nodes))
	for i := range requests {
		if v := value(i); v != nil {
			requests[i] = &redlock.Request{Op: redlock.OpRelease, Key: p.key, Value: *v, Timeout: p.patience}
		}
	}
	return p.ask(ctx, requests)
}

var errSilent = errors.New("no answer")

// ask submits a request to each node that has one, and waits for the replies: for
// no longer than p.patience.
func (p *panel) ask(ctx context.Context, requests []*redlock.Request) []redlock.Reply {
	replies := make([]redlock.Reply, len(p.nodes))
	heard := make(heard, len(p.nodes))
	open := 0
	for i, r := range requests {
		if r == nil {
			replies[i].Outcome = redlock.Refused
			continue
		}
		if err := p.nodes[i].Submit(r, i, heard); err != nil {
			replies[i] = redlock.Reply{Outcome: redlock.Failed, Err: err}
			continue
		}
		replies[i] = redlock.Reply{Outcome: redlock.Unknown, Err: errSilent}
		open++
	}
	late := time.NewTimer(p.patience)
	defer late.Stop()
	for ; open > 0; open-- {
		select {
		case h := <-heard:
			replies[h.node] = h.reply
		case <-late.C:
			return replies
		case <-ctx.Done():
			return replies
		}
	}
	return replies
}

// heard takes the replies; each node gives one, for which there is room.
type heard chan struct {
	node  int
	reply redlock.Reply
}

// Receive implements redlock.Receiver.
func (h heard) Receive(node int, reply redlock.Reply) {
	h <- struct {
		node  int
		reply redlock.Reply
	}{node, reply}
}

// failure says which nodes did not do what they were asked, and why. It is for
// want of a quorum, unless they did answer.
func (p *panel) failure(replies []redlock.Reply, done string) error {
	text := done
	silent := 0
	for i, r := range replies {
		if r.Err == nil {
			continue
		}
		text += fmt.Sprintf("; %s: %s", word(p.nodes[i].String()), harmless(r.Err.Error()))
		if !errors.Is(r.Err, redlock.ErrWrongType) {
			silent++
		}
	}
	if len(p.nodes)-silent >= p.quorum() {
		return errors.New(text)
	}
	return &exitError{code: exitNoQuorum, err: fmt.Errorf("no quorum: %s", text)}
}
