package redlock

import (
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/protocol"
)

// A slot is one node's part of a round.
type slot struct {
	reply *protocol.Reply // never nil, and never changed, because rounds share it; noReply until the node has replied
	after time.Duration   // from start to the reply
}

// noReply is that of a node which has not replied. Its Outcome is zero.
var noReply = &protocol.Reply{}

// A plainGrant is the reply that a node gives most: granted, by the server that it is, and no word
// more. Rounds share it, because five replies of their own would be most of a round's memory.
type plainGrant struct {
	last atomic.Pointer[protocol.Reply]
}

// share returns reply as a slot has it, without its Life, which is only for the guard.
func (g *plainGrant) share(reply *protocol.Reply) *protocol.Reply {
	if !isPlain(reply) {
		own := *reply // or each reply that is passed would be an allocation
		return &own
	}
	if p := g.last.Load(); p != nil && p.Run == reply.Run {
		return p
	}
	p := &protocol.Reply{Outcome: protocol.Granted, Run: reply.Run}
	g.last.Store(p)
	return p
}

// isPlain reports whether a grant says nothing but that, Run and Life.
func isPlain(r *protocol.Reply) bool {
	return r.Outcome == protocol.Granted && r.Err == nil && r.Value == "" && r.Owner == "" && r.TTL == 0 && r.Which == 0 &&
		r.Floor == 0 && !r.Readers && r.Epoch == nil && r.Free == nil && r.Others == 0
}
