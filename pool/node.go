package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/pool/internal/link"
)

var (
	_ protocol.Watchable = (*node)(nil)
	_ protocol.Forgetful = (*node)(nil)
)

// A node is one Redis server, or several of which one is the primary. It says where its Link's server
// is, and logs what the Link doubts.
type node struct {
	*link.Link
	name    string
	members members
	doubts  doubtLog // of the server

	met     []string  // the servers so far; the Link's, as all below
	several error     // it leads to more than one
	at      string    // the server that it has led to
	since   time.Time // since when

	longest atomic.Int64 // the longest TTL of a lock that this node was asked for, or has on record
}

// newNode returns a node that is about to connect.
func newNode(name string, m members, s *settings) *node {
	n := &node{name: name, members: m, doubts: doubtLog{log: s.log, node: name, known: map[string]time.Time{}}}
	n.Link = link.New(link.Config{Times: s.Times, Reach: n.reach, Doubt: n.doubts.enter})
	return n
}

// String implements protocol.Node.
func (n *node) String() string { return n.name }

// Forgets implements protocol.Forgetful: a standby that is promoted lacks the last locks.
func (n *node) Forgets() bool { return len(n.members) > 1 }

// Close implements protocol.Node. It may be called twice.
func (n *node) Close() error {
	err := n.Link.Close()
	n.doubts.await(logPatience)
	return err
}

// reach connects to the server that has the node's vote.
func (n *node) reach(ctx context.Context) link.Greeting {
	g := n.members.reach(ctx)
	if g.Err == nil && n.meet(g.Server, time.Now()) != nil {
		g.Conn.Close()
		g.Err = n.several
	}
	if errors.Is(g.Err, errSeveral) {
		n.doubts.enter(aboutSeveral(g.Err))
	}
	return g
}

// aboutSeveral is the doubt of which an error tells.
func aboutSeveral(err error) string { return "it " + err.Error() }

// maxMet bounds how many servers a node remembers. Each restart makes another.
const maxMet = 100

// settleFor is the least time for which a node must have led to one server, at one look a second, to have its vote
// again: behind a balancer that takes one of two at random it practically never does.
const settleFor = time.Minute

// meet takes down which server the node is connected to. It returns errSeveral if the node had left
// that one for another before.
//
// An address that leads to another server for a while, and back, is noticed, too. In the meantime others may
// have got locks by the vote of the other one. So the node votes again when it has led to one server for the
// longest TTL that it knows of: those locks have expired, or their holders have come back with it.
func (n *node) meet(s link.Server, now time.Time) error {
	is := s.Generation()
	last := len(n.met) - 1
	switch {
	case n.several != nil && is != n.at:
		n.at, n.since = is, now
	case n.several != nil && now.Sub(n.since) >= max(settleFor, time.Duration(n.longest.Load())):
		n.doubts.forget(aboutSeveral(n.several))
		n.several = nil
		n.met = append(slices.DeleteFunc(n.met, func(before string) bool { return before == is }), is)
	case n.several != nil:
	case s.RunID == "", last >= 0 && n.met[last] == is:
	case slices.Contains(n.met, is):
		n.at, n.since = is, now
		n.several = fmt.Errorf("%w (this client has met another server there in the meantime: the node has no vote "+
			"until its address has led to one server for %v)", errSeveral, max(settleFor, time.Duration(n.longest.Load())))
	default:
		n.met = append(n.met, is)
		n.met = n.met[max(0, len(n.met)-maxMet):]
	}
	return n.several
}

// Submit implements protocol.Node, and notes which TTLs locks have: those of this client, and of others that are
// on record.
func (n *node) Submit(r *protocol.Request, slot int, to protocol.Receiver) error {
	switch {
	case r.Op.Acquires(), r.Op.Extends():
		n.knows(r.TTL)
	case r.Op == protocol.OpAdmit:
		to = recordReceiver{n, to}
	}
	return n.Link.Submit(r, slot, to)
}

// A recordReceiver notes the TTLs of a record that was read, before it passes the reply on.
type recordReceiver struct {
	node *node
	to   protocol.Receiver
}

// Receive implements protocol.Receiver.
func (r recordReceiver) Receive(slot int, reply protocol.Reply) {
	if reply.Epoch != nil {
		if known, err := record.Parse(reply.Epoch.Record); err == nil {
			for _, step := range known.Steps {
				r.node.knows(step.TTL)
			}
		}
	}
	r.to.Receive(slot, reply)
}

// knows notes that locks have a TTL.
func (n *node) knows(longest time.Duration) {
	for before := n.longest.Load(); int64(longest) > before && !n.longest.CompareAndSwap(before, int64(longest)); before = n.longest.Load() {
	}
}
