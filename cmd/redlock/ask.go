package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redquorum/redquorum/cmd/redlock/internal/inspect"
	"github.com/redquorum/redquorum/cmd/redlock/internal/plain"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/pool"
)

// answerTimeout returns the time for which the tools wait for one server's answer. No lock depends
// on these answers, so it is as long as the timeout for a connection.
func (s *servers) answerTimeout() time.Duration { return max(s.locking.nodeTimeout, s.reach.timeout) }

// explainTimeout states this timeout in the help of such a tool.
func (s *servers) explainTimeout() {
	s.flags.Lookup("node-timeout").Usage = "how long to wait for a server's answer (default, and at least: --dial-timeout)"
}

// reader returns a Reader of the servers of a set.
func (s *servers) reader(set serverSet) (*inspect.Reader, error) {
	opts, err := s.poolOptions()
	if err != nil {
		return nil, err
	}
	r := &inspect.Reader{Prefix: s.locking.prefix, Timeout: s.answerTimeout()}
	for _, u := range set.urls {
		name, dial, err := pool.Dialer(u, opts...)
		if err != nil {
			return nil, err
		}
		if twin := slices.IndexFunc(r.Servers, func(other inspect.Dialer) bool { return other.Name == name }); twin >= 0 {
			return nil, wrong(s.flags, s.targets.namedBy(), "URLs %d and %d name the same server, %s", twin+1, len(r.Servers)+1, name)
		}
		r.Servers = append(r.Servers, inspect.Dialer{Name: name, Dial: dial})
	}
	return r, nil
}

// read reads the locks on the servers of a set. Faults of servers are in the Holdings.
func (s *servers) read(ctx context.Context, set serverSet, q inspect.Question) (*inspect.Holdings, error) {
	r, err := s.reader(set)
	if err != nil {
		return nil, err
	}
	return r.Read(ctx, q)
}

// readAll reads the locks on the servers of all sets at once.
func (s *servers) readAll(ctx context.Context, sets []serverSet, of func(serverSet) inspect.Question) ([]*inspect.Holdings, error) {
	found := make([]*inspect.Holdings, len(sets))
	return found, atOnce(len(sets), func(i int) (err error) {
		found[i], err = s.read(ctx, sets[i], of(sets[i]))
		return sets[i].blame(err)
	})
}

// A nodeSet sends requests to all servers of a set, outside of any lock.
type nodeSet struct {
	nodes   []protocol.Node
	names   []string
	timeout time.Duration
}

func (s *servers) nodeSet(urls []string) (*nodeSet, error) {
	nodes, err := s.openNodes(urls)
	n := &nodeSet{nodes: nodes, timeout: s.answerTimeout()}
	for _, node := range nodes {
		n.names = append(n.names, node.String())
	}
	return n, err
}

func (s *nodeSet) close() {
	for _, n := range s.nodes {
		n.Close()
	}
}

var errNoAnswer = errors.New("no answer")

// ask submits the request about a key that request returns for each node, and waits at most
// s.timeout for the replies. Nodes without a request (nil) count as refused.
func (s *nodeSet) ask(ctx context.Context, key string, request func(node int) *protocol.Request) []protocol.Reply {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	replies := make([]protocol.Reply, len(s.nodes))
	received := make(nodeReplies, len(s.nodes))
	open := 0
	for i, n := range s.nodes {
		r := request(i)
		if r == nil {
			replies[i].Outcome = protocol.Refused
			continue
		}
		r.Key, r.Timeout = key, s.timeout
		if err := n.Submit(r, i, received); err != nil {
			replies[i] = protocol.Reply{Outcome: protocol.Failed, Err: err}
			continue
		}
		replies[i] = protocol.Reply{Outcome: protocol.Unknown, Err: errNoAnswer}
		open++
	}
	for ; open > 0; open-- {
		select {
		case r := <-received:
			replies[r.node] = r.reply
		case <-ctx.Done():
			return replies
		}
	}
	return replies
}

// nodeReplies receives the replies. Its buffer has room for one reply from each node.
type nodeReplies chan nodeReply

type nodeReply struct {
	node  int
	reply protocol.Reply
}

// Receive implements protocol.Receiver.
func (c nodeReplies) Receive(node int, reply protocol.Reply) { c <- nodeReply{node, reply} }

// failure returns an error that begins with done and names the servers that failed, and why. Its
// kind is a missing quorum, unless enough servers answered.
func failure(names []string, errs []error, done string) error {
	silent := 0
	done = because(done, len(errs), func(i int) (node, why string) {
		if errs[i] == nil {
			return "", ""
		}
		if !errors.Is(errs[i], protocol.ErrWrongType) {
			silent++
		}
		return names[i], plain.Harmless(errs[i].Error())
	})
	if len(errs)-silent > len(errs)/2 {
		return errors.New(done)
	}
	return &exitError{code: exitNoQuorum, err: fmt.Errorf("no quorum: %s", done)}
}

// because adds to a text the servers of n that failed, if any, and their errors.
func because(text string, n int, of func(i int) (node, why string)) string {
	if failed := together(n, of); failed != "" {
		text += "; " + failed
	}
	return text
}

// together lists the servers of n that failed, and groups them by error. of returns the name and
// the error of a server, or nothing if it did not fail.
func together(n int, of func(i int) (node, why string)) string {
	var nodes, says []string
	for i := range n {
		if node, why := of(i); why != "" {
			nodes, says = append(nodes, plain.Word(node)), append(says, why)
		}
	}
	return protocol.Together(nodes, says)
}
