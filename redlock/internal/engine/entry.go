package engine

import (
	"sync"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/core"
)

// An entry is a Key in the table. It stays while its Key has a caller, a claim, or an outstanding
// answer, so that late answers find it and a release precedes the next attempt. If other processes
// wanted the key, it stays for another second.
type entry struct {
	engine *Engine
	mu     sync.Mutex
	key    core.Key      // guarded by mu, like all fields up to gone
	at     clock.Instant // time of the timer; zero for none
	gone   bool          // dropped from the table
	index  int32         // in the heap of the timers, plus one; guarded by the timers
}

// apply applies an event to the key of a locked entry, and unlocks the entry.
func (n *entry) apply(do func(*core.Key, clock.Instant)) {
	now, r := n.engine.clock.Now(), n.lend()
	do(&n.key, now)
	n.finish(now, r)
}

// lend lends the key a buffer for the effects of one call.
func (n *entry) lend() *[]core.Effect {
	buffer := n.engine.buffers.Get().(*[]core.Effect)
	n.key.Lend(buffer)
	return buffer
}

// carried takes the buffer back after its effects were carried out.
func (n *entry) carried(buffer *[]core.Effect) {
	n.key.Carried()
	clear(*buffer)
	*buffer = (*buffer)[:0]
	n.engine.buffers.Put(buffer)
}

// carry carries out the effects of the last call that need the locked entry.
func (n *entry) carry() {
	for i := 0; i < len(n.key.Effects()); i++ { // a node that fails at once adds effects
		switch f := n.key.Effects()[i]; f.Kind {
		case core.Send:
			n.send(f)
		case core.Listen:
			n.engine.hints.add()
		case core.Unlisten:
			n.engine.hints.remove()
		case core.End:
			if o, ok := f.Hold.Ref.(Owner); ok {
				o.Ended(Lock{Hold: f.Hold, entry: n})
			}
		case core.Extended:
			if o, ok := f.Hold.Ref.(Owner); ok {
				o.Extended(Lock{Hold: f.Hold, entry: n})
			}
		case core.Voted:
			n.engine.events.Voted(f.Ballot, f.Failure)
		}
	}
}

// finish carries out the effects of the last call, and unlocks the entry.
func (n *entry) finish(now clock.Instant, buffer *[]core.Effect) {
	n.carry()
	var few [4]core.Effect // on the stack
	later := few[:0]
	for _, f := range n.key.Effects() {
		if f.Kind >= core.Grant {
			later = append(later, f)
		}
	}
	n.carried(buffer)
	switch due := n.key.Due(); {
	case n.gone: // a late holder used the dropped entry
	case n.key.Idle(now):
		n.engine.forget(n)
	case due > 0 && (n.at == 0 || due < n.at): // an early timer costs less than moving it
		n.at = due
		n.engine.timers.put(n)
	}
	n.mu.Unlock()
	for _, f := range later {
		if f.Kind != core.Lost {
			f.Caller.Ref.(*waiter).woken <- struct{}{} // the channel has room for its only message
		} else if t, ok := f.Ballot.Ref.(*trial); ok {
			n.engine.judge.closes(t)
		}
	}
}

// send submits a request.
func (n *entry) send(f core.Effect) {
	if f.Ballot.Ref == nil {
		if f.Ballot.Ref = n; n.engine.judge != nil && f.Ballot.IsVote() {
			f.Ballot.Ref = n.engine.judge.begin(f.Ballot, n)
		}
	}
	to := protocol.Receiver((*receiver)(f.Ballot))
	if t, ok := f.Ballot.Ref.(*trial); ok {
		to = t
	}
	var failed []int // nodes that fail at once; their failures are applied after all requests were submitted
	for i, node := range n.engine.nodes {
		if !f.To.Has(i) {
			continue
		}
		if err := node.Submit(f.Request, i, to); err != nil {
			reply := &protocol.Reply{Outcome: protocol.Failed, Err: err}
			n.engine.tell(f.Ballot, i, reply)
			if n.key.Count(f.Ballot, i, reply) {
				failed = append(failed, i)
			}
		}
	}
	for _, i := range failed {
		n.key.Weigh(f.Ballot, i, n.engine.clock.Now())
	}
}

// handleReply takes a node's answer to a ballot.
func (n *entry) handleReply(b *core.Ballot, node int, reply *protocol.Reply) {
	n.mu.Lock()
	n.engine.servers.recordServer(node, reply, b.IsFirst)
	n.engine.tell(b, node, reply)
	if !n.key.Count(b, node, reply) {
		n.mu.Unlock()
		return
	}
	now, r := n.engine.clock.Now(), n.lend()
	n.key.Weigh(b, node, now)
	n.finish(now, r)
}

// tell reports an answer to Events.
func (e *Engine) tell(b *core.Ballot, node int, reply *protocol.Reply) {
	if e.events != nil {
		copied := *reply // without observers, replies stay on the stack
		e.events.Answered(Answer{b.Tag, b.IsOfHeld(), &b.Req, node, &copied, e.clock.Now().Sub(b.Start)})
	}
}

// A receiver is the Ballot that nodes reply to.
type receiver core.Ballot

// Receive implements protocol.Receiver.
func (r *receiver) Receive(node int, reply protocol.Reply) {
	b := (*core.Ballot)(r)
	b.Ref.(*entry).handleReply(b, node, &reply)
}

// Receive implements protocol.Receiver.
func (t *trial) Receive(node int, reply protocol.Reply) {
	t.entry.engine.judge.handleReply(t, node, &reply)
}
