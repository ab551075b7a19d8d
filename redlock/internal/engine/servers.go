package engine

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/guard"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// servers tell apart the processes behind the nodes. A server that is given by two addresses or databases has one
// vote in each ballot. Where a node stays at its server, which is nearly always, no mutex is taken.
type servers struct {
	nodes []protocol.Node
	mu    sync.Mutex
	of    []atomic.Pointer[server] // by node: the one that has answered last; changed under mu
}

type server struct {
	run, process string
	number       int // nodes with the same process have the same
}

// answers notes that a node has answered by run, and returns the number of the server.
func (s *servers) answers(node int, run string) (number int) {
	if of := s.of[node].Load(); of != nil && of.run == run {
		return of.number
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	of := &server{run: run}
	of.process, _, _ = strings.Cut(run, "/") // a data set may have two names
	if other := s.twin(node, of.process); other >= 0 {
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

// twin returns another node with the process, or -1.
func (s *servers) twin(node int, process string) int {
	for i := range s.of {
		if o := s.of[i].Load(); i != node && o != nil && o.process == process {
			return i
		}
	}
	return -1
}

// isFirst reports whether the server has not replied yet, which note tells and notes. If it has, its reply is
// changed: a server has one vote, by however many nodes.
func (s *servers) isFirst(node int, reply *protocol.Reply, note func(server int) bool) bool {
	if reply.Run == "" || reply.Outcome != protocol.Granted && reply.Outcome != protocol.Refused || note(s.answers(node, reply.Run)) {
		return true
	}
	process, _, _ := strings.Cut(reply.Run, "/")
	other := "another node" // without a twin, two nodes have swapped their servers within the ballot
	if twin := s.twin(node, process); twin >= 0 {
		other = s.nodes[twin].String()
	}
	guard.Disown(reply, other)
	return false
}
