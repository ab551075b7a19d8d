package engine

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/guard"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// servers distinguishes the processes behind the nodes. A server with two addresses or databases
// has one vote in each ballot. No mutex is taken while a node stays at its server, which is nearly
// always.
type servers struct {
	nodes []protocol.Node
	mu    sync.Mutex
	of    []atomic.Pointer[server] // last server of each node; changed under mu
}

type server struct {
	run, process string
	number       int // equal for nodes with the same process
}

// answers records that the server run has answered for a node, and returns the number of the
// server.
func (s *servers) answers(node int, run string) (number int) {
	if of := s.of[node].Load(); of != nil && of.run == run {
		return of.number
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	of := &server{run: run}
	of.process, _, _ = strings.Cut(run, "/") // a data set may have two names
	if other := s.duplicateOf(node, of.process); other >= 0 {
		of.number = s.of[other].Load().number
	} else {
		var taken quorum.Set
		for i := range s.of {
			if o := s.of[i].Load(); i != node && o != nil {
				taken.Add(o.number)
			}
		}
		for taken.Has(of.number) {
			of.number++
		}
	}
	s.of[node].Store(of)
	return of.number
}

// duplicateOf returns another node that reaches the same server process, or -1.
func (s *servers) duplicateOf(node int, process string) int {
	for i := range s.of {
		if o := s.of[i].Load(); i != node && o != nil && o.process == process {
			return i
		}
	}
	return -1
}

// recordServer records with note that the server has replied, and reports whether this reply is the
// first. It changes a second reply, because a server with several nodes has one vote.
func (s *servers) recordServer(node int, reply *protocol.Reply, note func(server int) bool) bool {
	if reply.Run == "" || reply.Outcome != protocol.Granted && reply.Outcome != protocol.Refused || note(s.answers(node, reply.Run)) {
		return true
	}
	process, _, _ := strings.Cut(reply.Run, "/")
	other := "another node" // without a duplicate, two nodes have swapped their servers during the ballot
	if twin := s.duplicateOf(node, process); twin >= 0 {
		other = s.nodes[twin].String()
	}
	guard.Disown(reply, other)
	return false
}
