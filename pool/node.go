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

// A node is one Redis server, or several with one primary. It finds the server for its Link, and
// logs the doubts of the Link.
type node struct {
	*link.Link
	name    string
	members members
	doubts  doubtLog // doubts about the server

	servers []string  // known servers; used by the Link only, like the fields below
	several error     // error if the node leads to more than one server
	at      string    // current server
	since   time.Time // time when the node began to lead to that server

	longest atomic.Int64 // longest TTL in a request to this node, or on its record
}

// newNode returns a node before its first connection.
func newNode(name string, m members, s *settings) *node {
	n := &node{name: name, members: m, doubts: doubtLog{log: s.log, node: name, known: map[string]time.Time{}}}
	n.Link = link.New(link.Config{Times: s.Times, Reach: n.reach, Doubt: n.doubts.enter})
	return n
}

// String implements protocol.Node.
func (n *node) String() string { return n.name }

// Forgets implements protocol.Forgetful: a promoted standby lacks the last locks.
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
	if g.Err == nil && n.rememberServer(g.Server, time.Now()) != nil {
		g.Conn.Close()
		g.Err = n.several
	}
	if errors.Is(g.Err, errSeveral) {
		n.doubts.enter(aboutSeveral(g.Err))
	}
	return g
}

// aboutSeveral returns the doubt for an error of several servers.
func aboutSeveral(err error) string { return "it " + err.Error() }

// maxServers limits the number of servers that a node remembers. Each restart adds one.
const maxServers = 100

// settleFor is the minimum time for which a node must lead to one server, checked once a second, to
// regain its vote. With a balancer that chooses one of two servers at random this practically never
// happens.
const settleFor = time.Minute

// rememberServer records the server to which the node is connected. It returns errSeveral if the
// node has already left that server for another.
//
// It also notices an address that leads to another server for a while, and back. In the meantime
// other clients may have acquired locks with the vote of the other server. Therefore the node votes
// again when it has led to one server for the longest TTL that it knows: those locks have expired,
// or their holders have returned together with it.
func (n *node) rememberServer(s link.Server, now time.Time) error {
	is := s.Generation()
	last := len(n.servers) - 1
	switch {
	case n.several != nil && is != n.at:
		n.at, n.since = is, now
	case n.several != nil && now.Sub(n.since) >= max(settleFor, time.Duration(n.longest.Load())):
		n.doubts.forget(aboutSeveral(n.several))
		n.several = nil
		n.servers = append(slices.DeleteFunc(n.servers, func(before string) bool { return before == is }), is)
	case n.several != nil:
	case s.RunID == "", last >= 0 && n.servers[last] == is:
	case slices.Contains(n.servers, is):
		n.at, n.since = is, now
		n.several = fmt.Errorf("%w (this client has met another server there in the meantime: the node has no vote "+
			"until its address has led to one server for %v)", errSeveral, max(settleFor, time.Duration(n.longest.Load())))
	default:
		n.servers = append(n.servers, is)
		n.servers = n.servers[max(0, len(n.servers)-maxServers):]
	}
	return n.several
}

// Submit implements protocol.Node, and records the TTLs of locks, of this client and of other
// clients on record.
func (n *node) Submit(r *protocol.Request, slot int, to protocol.Receiver) error {
	switch {
	case r.Op.Acquires(), r.Op.Extends():
		n.knows(r.TTL)
	case r.Op == protocol.OpAdmit:
		to = recordReceiver{n, to}
	}
	return n.Link.Submit(r, slot, to)
}

// A recordReceiver records the TTLs of a record that was read, before it forwards the reply.
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

// knows records a TTL of locks.
func (n *node) knows(longest time.Duration) {
	for before := n.longest.Load(); int64(longest) > before && !n.longest.CompareAndSwap(before, int64(longest)); before = n.longest.Load() {
	}
}
