package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redquorum/redquorum/internal/alike"
	"github.com/redquorum/redquorum/internal/plain"
	"github.com/redquorum/redquorum/internal/protocol"
)

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

// ask submits a request about a key to each node that has one, and waits for the replies: for no
// longer than s.timeout. Nodes without a request (nil) count as refused.
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

// nodeReplies takes the replies. There is room for all, one of each node.
type nodeReplies chan nodeReply

type nodeReply struct {
	node  int
	reply protocol.Reply
}

// Receive implements protocol.Receiver.
func (c nodeReplies) Receive(node int, reply protocol.Reply) { c <- nodeReply{node, reply} }

// failure returns an error that begins with done and names the servers that failed, and why. It is
// that there is no quorum, unless enough servers did answer.
func failure(names []string, errs []error, done string) error {
	silent := 0
	failed := together(len(errs), func(i int) (node, why string) {
		if errs[i] == nil {
			return "", ""
		}
		if !errors.Is(errs[i], protocol.ErrWrongType) {
			silent++
		}
		return names[i], plain.Harmless(errs[i].Error())
	})
	if failed != "" {
		done += "; " + failed
	}
	if len(errs)-silent > len(errs)/2 {
		return errors.New(done)
	}
	return &exitError{code: exitNoQuorum, err: fmt.Errorf("no quorum: %s", done)}
}

// together tells which of n servers failed and why, those together that failed alike: of gives the
// name of each, and why, or nothing if it did not fail.
func together(n int, of func(i int) (node, why string)) string {
	var nodes, says []string
	for i := range n {
		if node, why := of(i); why != "" {
			nodes, says = append(nodes, plain.Word(node)), append(says, why)
		}
	}
	return alike.Together(nodes, says)
}
