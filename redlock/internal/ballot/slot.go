package ballot

import (
	"sync/atomic"

	"github.com/redquorum/redquorum/internal/protocol"
)

// A plainGrant is the reply that a node gives most: granted, by the server that it is, and no word
// more. Ballots share it, because five replies of their own would be most of a ballot's memory.
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
	return r.Outcome == protocol.Granted && r.Err == nil && r.Value == "" && r.Owner == "" && r.TTL == 0 &&
		r.Floor == 0 && !r.Readers && r.Epoch == nil && r.Free == nil && r.Others == 0
}
