package engine

import (
	"sync"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/core"
)

// An entry is a Key in the table. It stays there while its Key has a caller, a claim, or an answer to come,
// so a late answer finds it, and a release is always before the next vote. It stays for another second
// where other processes wanted the key.
type entry struct {
	engine *Engine
	mu     sync.Mutex
	key    core.Key      // guarded by mu, as all that follow
	at     clock.Instant // the timer fires; zero: it does not
	gone   bool          // from the table
	index  int32         // in the heap of the timers, plus one; guarded by these
}

// happen has something happen to the key of an entry, which is locked, and unlocks it.
func (n *entry) happen(do func(*core.Key, clock.Instant)) {
	now, r := n.engine.clock.Now(), n.lend()
	do(&n.key, now)
	n.finish(now, r)
}

// lend lends the key room for the effects of one call.
func (n *entry) lend() *[]core.Effect {
	room := n.engine.rooms.Get().(*[]core.Effect)
	n.key.Lend(room)
	return room
}

// carried gives back the room for effects, which are carried out.
func (n *entry) carried(room *[]core.Effect) {
	n.key.Carried()
	clear(*room)
	*room = (*room)[:0]
	n.engine.rooms.Put(room)
}

// carry carries out the effects of the last call, but those that come after the entry is unlocked.
func (n *entry) carry() {
	for i := 0; i < len(n.key.Effects()); i++ { // there can be more while a node fails at once
		switch f := n.key.Effects()[i]; f.Kind {
		case core.Send:
			n.send(f)
		case core.Listen:
			n.engine.hints.add()
		case core.Unlisten:
			n.engine.hints.remove()
		case core.End:
			if o, ok := f.Hold.Shell.(Owner); ok {
				o.Ended(Lock{Hold: f.Hold, entry: n})
			}
		case core.Extended:
			if o, ok := f.Hold.Shell.(Owner); ok {
				o.Extended(Lock{Hold: f.Hold, entry: n})
			}
		case core.Voted:
			n.engine.events.Voted(f.Ballot, f.Failure)
		}
	}
}

// finish carries out the effects of the last call, and unlocks the entry.
func (n *entry) finish(now clock.Instant, room *[]core.Effect) {
	n.carry()
	var few [4]core.Effect // on the stack
	later := few[:0]
	for _, f := range n.key.Effects() {
		if f.Kind >= core.Grant {
			later = append(later, f)
		}
	}
	n.carried(room)
	switch due := n.key.Due(); {
	case n.gone: // a holder that came back late has asked it
	case n.key.Idle(now):
		n.engine.forget(n)
	case due > 0 && (n.at == 0 || due < n.at): // a timer that fires for nothing costs less than to move it
		n.at = due
		n.engine.timers.put(n)
	}
	n.mu.Unlock()
	for _, f := range later {
		if f.Kind != core.Lost {
			f.Caller.Shell.(*waiter).woken <- struct{}{} // it has room for the one that is sent
		} else if t, ok := f.Ballot.Shell.(*trial); ok {
			n.engine.judge.closes(t)
		}
	}
}

// send submits a request.
func (n *entry) send(f core.Effect) {
	if f.Ballot.Shell == nil {
		if f.Ballot.Shell = n; n.engine.judge != nil && f.Ballot.IsVote() {
			f.Ballot.Shell = n.engine.judge.begin(f.Ballot, n)
		}
	}
	to := protocol.Receiver((*receiver)(f.Ballot))
	if t, ok := f.Ballot.Shell.(*trial); ok {
		to = t
	}
	var failed []int // at once; all of them, before one decides
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

// hear takes a node's answer.
func (n *entry) hear(b *core.Ballot, node int, reply *protocol.Reply) {
	n.mu.Lock()
	n.engine.servers.isFirst(node, reply, b.IsFirst)
	n.engine.tell(b, node, reply)
	if !n.key.Count(b, node, reply) {
		n.mu.Unlock()
		return
	}
	now, r := n.engine.clock.Now(), n.lend()
	n.key.Weigh(b, node, now)
	n.finish(now, r)
}

// tell tells Events of an answer.
func (e *Engine) tell(b *core.Ballot, node int, reply *protocol.Reply) {
	if e.events != nil {
		copied := *reply // so that replies stay on the stack where nobody wants to know
		e.events.Answered(Answer{b.Tag, b.IsOfHeld(), &b.Req, node, &copied, e.clock.Now().Sub(b.Start)})
	}
}

// A receiver is a Ballot as nodes see it.
type receiver core.Ballot

// Receive implements protocol.Receiver.
func (r *receiver) Receive(node int, reply protocol.Reply) {
	b := (*core.Ballot)(r)
	b.Shell.(*entry).hear(b, node, &reply)
}

// Receive implements protocol.Receiver.
func (t *trial) Receive(node int, reply protocol.Reply) { t.entry.engine.judge.hear(t, node, &reply) }
