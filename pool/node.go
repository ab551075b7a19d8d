package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redquorum/redquorum/internal/protocol"
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
	met     []string // the servers so far; the Link's, as several
	several error    // it leads to more than one
	doubts  doubtLog // of the server
}

// newNode returns a node that is about to connect.
func newNode(name string, m members, s *settings) *node {
	n := &node{name: name, members: m, doubts: doubtLog{log: s.log, node: name, known: map[string]bool{}}}
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
	if n.several != nil {
		return link.Greeting{Err: n.several}
	}
	g := n.members.reach(ctx)
	if g.Err == nil && n.meet(g.Server) != nil {
		g.Conn.Close()
		g.Err = n.several
	}
	if errors.Is(g.Err, errSeveral) {
		n.doubts.enter("it " + g.Err.Error())
	}
	return g
}

// maxMet bounds how many servers a node remembers. Each restart makes another.
const maxMet = 100

// meet takes down which server the node is connected to. It returns errSeveral if the node had left
// that one for another before.
func (n *node) meet(s link.Server) error {
	is := s.Generation()
	switch last := len(n.met) - 1; {
	case s.RunID == "", last >= 0 && n.met[last] == is:
	case slices.Contains(n.met, is):
		n.several = fmt.Errorf("%w (this client has been at another one since it was here; start it anew when that is mended)", errSeveral)
	default:
		n.met = append(n.met, is)
		n.met = n.met[max(0, len(n.met)-maxMet):]
	}
	return n.several
}
