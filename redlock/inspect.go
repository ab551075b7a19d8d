package redlock

import (
	"context"
	"slices"
	"time"

	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/ballot"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// An Inspection is what the nodes hold for one name.
type Inspection struct {
	Name  string
	Nodes []NodeState // in the order of the Locker's nodes
}

// A NodeState is one node's part of an Inspection.
type NodeState struct {
	Node   string
	Value  string        // of the lock's key; empty if the node holds none
	TTL    time.Duration // what is left of it; NoTTL if it never expires
	Stuck  bool          // there is a key and it has no TTL: only a DEL frees it
	Holder Holder        // what Value tells of who holds it
	Err    error         // a *NodeError: why the node did not say; nil if it did
}

// Holder returns the value that a quorum of nodes holds, and how long a quorum
// will go on doing so if the holder does not extend it (NoTTL: for ever). ok
// is false if there is none; single nodes may still hold something, as while a
// vote is under way. HolderOf tells whose value it is, if that has a label.
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
		// The q longest-lived are the last quorum, and it ends with its first.
		left := ttls[len(ttls)-q]
		if left == never {
			left = protocol.NoTTL
		}
		return value, left, true
	}
	return "", 0, false
}

// Inspect asks every node what it holds for name, and changes nothing. It
// waits for all of them, at most for the node timeout.
//
// If fewer than a quorum answered, the error is a *QuorumError that matches
// ErrNoQuorum, or ctx's error if that ended; what the others said is returned
// with it.
func (l *Locker) Inspect(ctx context.Context, name string) (*Inspection, error) {
	if ctx == nil {
		return nil, nilContext(protocol.OpInspect, name)
	}
	if _, err := l.settings.key(name); err != nil {
		return nil, err
	}
	if isDone(l.closed) {
		return nil, closedError(protocol.OpInspect, name)
	}
	return inspectIn(l.places(name), func(g *group) (*Inspection, bool, error) {
		in, err := g.inspection(ctx, g.askForState(ctx, name, g.settings.prefix+name))
		return in, err == nil && in.isHeld(), err
	})
}

// inspectIn asks the group that has a name. While its group changes it is the one where a
// quorum holds the name, if there is one.
func inspectIn[T any](places []*group, ask func(*group) (found T, held bool, err error)) (found T, err error) {
	for _, g := range places {
		var held bool
		if found, held, err = ask(g); held || err != nil {
			return found, err
		}
	}
	return found, nil
}

// isHeld reports whether a quorum holds the name.
func (i *Inspection) isHeld() bool { _, _, ok := i.Holder(); return ok }

// askForState asks all nodes what they hold.
func (g *group) askForState(ctx context.Context, name, key string) *round {
	r := g.newRound(ctx, name, protocol.Request{Op: protocol.OpInspect, Key: key, Timeout: g.settings.timeout()})
	r.ask()
	return r
}

// inspection waits for the answers to askForState.
func (g *group) inspection(ctx context.Context, r *round) (*Inspection, error) {
	s := &g.settings
	r.Wait(ctx, s.timeout(), ballot.Complete)

	seen := r.State()
	now := s.clock.Now()
	in := &Inspection{Name: r.name, Nodes: make([]NodeState, len(g.nodes))}
	for i := range in.Nodes {
		reply := seen.Reply(i)
		state := NodeState{Node: g.nodes[i].String()}
		if cause := r.cause(&seen, i, now); cause != nil {
			state.Err = cause
		} else {
			state.Value, state.TTL, state.Stuck = reply.Value, reply.TTL, reply.TTL == protocol.NoTTL
			state.Holder = HolderOf(state.Value)
		}
		in.Nodes[i] = state
	}
	if ballot.IsWon(&seen) {
		return in, nil
	}
	kind := ErrNoQuorum
	if ctx.Err() != nil {
		kind = ctx.Err()
	}
	return in, r.fail(&seen, kind)
}

// InspectPermits asks every node what it holds for each of the k permits of name, and changes
// nothing: as Inspect, with an Inspection for each, in order. k is from 1 to 1,000; locks that
// clients with a higher k hold beyond that are not seen. It returns within the node timeout. If
// fewer than a quorum answered about some permit, the error is that of Inspect.
func (l *Locker) InspectPermits(ctx context.Context, name string, k int) ([]*Inspection, error) {
	if ctx == nil {
		return nil, nilContext(protocol.OpInspect, name)
	}
	s, err := l.settings.with([]Option{Permits(k)})
	if err != nil {
		return nil, err
	}
	if _, err := s.key(name); err != nil {
		return nil, err
	}
	if isDone(l.closed) {
		return nil, closedError(protocol.OpInspect, name)
	}
	return inspectIn(l.places(name), func(g *group) ([]*Inspection, bool, error) {
		all, err := g.inspectPermits(ctx, name, k)
		return all, err == nil && slices.ContainsFunc(all, (*Inspection).isHeld), err
	})
}

func (g *group) inspectPermits(ctx context.Context, name string, k int) (_ []*Inspection, err error) {
	key := g.settings.prefix + name
	rounds := make([]*round, k)
	for slot := range rounds { // all at once
		rounds[slot] = g.askForState(ctx, name, keys.Slot(key, slot))
	}
	all := make([]*Inspection, k)
	for slot, r := range rounds {
		in, failed := g.inspection(ctx, r)
		if all[slot] = in; err == nil {
			err = failed
		}
	}
	return all, err
}
