package redlock

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/engine"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// An Inspection is the state of one name on the nodes.
type Inspection struct {
	Name  string
	Nodes []NodeState // in the order of the Locker's nodes
}

// A NodeState is the state of a name on one node.
type NodeState struct {
	Node   string
	Value  string        // value of the lock's key; empty without a key
	TTL    time.Duration // remaining TTL; NoTTL if the key never expires
	Stuck  bool          // the key has no TTL: only a DEL frees it
	Holder Holder        // from the label in Value
	Err    error         // a *NodeError if the node did not report its state
}

// Holder returns the value that a quorum of nodes holds, and the time for which a quorum will hold
// it unless it is extended (NoTTL means without limit). HolderOf reads its label. If ok is false
// there is no such value; single nodes may still hold a value, for example during an attempt.
func (i *Inspection) Holder() (value string, left time.Duration, ok bool) {
	const never = time.Duration(1<<63 - 1)
	ttls := map[string][]time.Duration{}
	for _, n := range i.Nodes {
		switch {
		case n.Err != nil || n.TTL == 0: // no answer, or no key
		case n.Stuck:
			ttls[n.Value] = append(ttls[n.Value], never)
		default:
			ttls[n.Value] = append(ttls[n.Value], n.TTL)
		}
	}
	q := quorum.Tally{Nodes: len(i.Nodes)}.Quorum()
	for value, ttls := range ttls {
		if len(ttls) < q {
			continue
		}
		slices.Sort(ttls)
		// The q keys that live longest are the last quorum, which ends when the first of them
		// expires.
		left := ttls[len(ttls)-q]
		if left == never {
			left = protocol.NoTTL
		}
		return value, left, true
	}
	return "", 0, false
}

// Inspect asks every node for the state of name, and changes nothing. It waits for all of them, for
// at most the node timeout.
//
// If less than a quorum answered, the error is a *QuorumError that matches ErrNoQuorum, or ctx's
// error if ctx ended. The received answers are returned in any case.
func (l *Locker) Inspect(ctx context.Context, name string) (*Inspection, error) {
	c, err := l.about(ctx, protocol.OpInspect, name)
	if err != nil {
		return nil, err
	}
	all, err := c.inspect(1)
	return all[0], err
}

// InspectPermits asks every node for the state of each of the k permits of name, and returns an
// Inspection for each, in order. k is from 1 to 1,000; permits beyond k are not included.
func (l *Locker) InspectPermits(ctx context.Context, name string, k int) ([]*Inspection, error) {
	if _, err := l.settings.with([]Option{Permits(k)}); err != nil {
		return nil, err
	}
	c, err := l.about(ctx, protocol.OpInspect, name)
	if err != nil {
		return nil, err
	}
	return c.inspect(k)
}

// inspect asks for each of k slots of a name.
func (c *call) inspect(k int) (all []*Inspection, err error) {
	p, of := c.locker.placeOf(c.name), &c.locker.settings
	req := protocol.Request{Op: protocol.OpInspect, Key: of.prefix + c.name, Timeout: of.Timeout}
	for _, poll := range p.engine.AskSlots(req, k, c) {
		poll.Wait(c.ctx, engine.All)
		in := &Inspection{Name: c.name, Nodes: make([]NodeState, len(p.nodes))}
		for i, r := range poll.Replies {
			state := NodeState{Node: p.nodes[i].String()}
			if r.Outcome == protocol.Granted {
				state.Value, state.TTL, state.Stuck, state.Holder = r.Value, r.TTL, r.TTL == protocol.NoTTL, HolderOf(r.Value)
			} else {
				state.Err = p.cause(poll.Op(), poll.Answer(i))
			}
			in.Nodes[i] = state
		}
		all = append(all, in)
		err = cmp.Or(err, p.unmet(c.ctx, c.name, poll, ErrNoQuorum))
	}
	return all, err
}
