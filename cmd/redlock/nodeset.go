package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redquorum/redquorum/internal/alike"
	"github.com/redquorum/redquorum/internal/protocol"
)

// A nodeSet asks all nodes about one key, outside of any lock.
type nodeSet struct {
	of      serverSet
	nodes   []protocol.Node
	key     string
	timeout time.Duration
}

func (s *nodeSet) quorum() int { return len(s.nodes)/2 + 1 }

func (s *nodeSet) close() {
	for _, n := range s.nodes {
		n.Close()
	}
}

// inspect asks what the nodes hold.
func (s *nodeSet) inspect(ctx context.Context) ([]protocol.Reply, error) {
	replies := s.ask(ctx, func(int) *protocol.Request { return &protocol.Request{Op: protocol.OpInspect} })
	return replies, ctx.Err()
}

// release deletes the key on each node where it holds the value given for that node. Nodes
// without one (nil) are not asked, and count as refused. It is the plain release, also for fenced
// locks, because the other one is against acquisitions that are under way: only their own client
// knows of those, and it would need their token. The counters stay as they are.
func (s *nodeSet) release(ctx context.Context, value func(node int) *string) []protocol.Reply {
	return s.ask(ctx, func(node int) *protocol.Request {
		if v := value(node); v != nil {
			return &protocol.Request{Op: protocol.OpRelease, Value: *v}
		}
		return nil
	})
}

var errNoAnswer = errors.New("no answer")

// ask submits a request about the key to each node that has one, and waits for the replies: for no
// longer than s.timeout.
func (s *nodeSet) ask(ctx context.Context, request func(node int) *protocol.Request) []protocol.Reply {
	replies := make([]protocol.Reply, len(s.nodes))
	received := make(nodeReplies, len(s.nodes))
	open := 0
	for i, n := range s.nodes {
		r := request(i)
		if r == nil {
			replies[i].Outcome = protocol.Refused
			continue
		}
		r.Key, r.Timeout = s.key, s.timeout
		if err := n.Submit(r, i, received); err != nil {
			replies[i] = protocol.Reply{Outcome: protocol.Failed, Err: err}
			continue
		}
		replies[i] = protocol.Reply{Outcome: protocol.Unknown, Err: errNoAnswer}
		open++
	}
	late := time.NewTimer(s.timeout)
	defer late.Stop()
	for ; open > 0; open-- {
		select {
		case r := <-received:
			replies[r.node] = r.reply
		case <-late.C:
			return replies
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

// failure returns an error that begins with done and names the nodes that failed, and why. It is
// that there is no quorum, unless enough nodes did answer.
func (s *nodeSet) failure(replies []protocol.Reply, done string) error {
	text := done
	silent := 0
	if failed := together(len(replies), func(i int) (node, why string) {
		r := replies[i]
		if r.Err == nil {
			return "", ""
		}
		if !errors.Is(r.Err, protocol.ErrWrongType) {
			silent++
		}
		return s.nodes[i].String(), harmless(r.Err.Error())
	}); failed != "" {
		text += "; " + failed
	}
	if len(s.nodes)-silent >= s.quorum() {
		return errors.New(text)
	}
	return &exitError{code: exitNoQuorum, err: fmt.Errorf("no quorum: %s", text)}
}

// together tells which of n servers failed and why, those together that failed alike: of gives the
// name of each, and why, or nothing if it did not fail.
func together(n int, of func(i int) (node, why string)) string {
	var nodes, says []string
	for i := range n {
		if node, why := of(i); why != "" {
			nodes, says = append(nodes, word(node)), append(says, why)
		}
	}
	return alike.Together(nodes, says)
}

// table shows what each node holds.
func (s *nodeSet) table(found []protocol.Reply) string {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SERVER\tTTL\tVALUE")
	for i, reply := range found {
		node := word(s.nodes[i].String())
		value := word(reply.Value)
		if reply.Value == protocol.ReadersValue {
			value = readersText
		}
		switch {
		case reply.Err != nil:
			fmt.Fprintf(table, "%s\t\t%s\n", node, harmless(reply.Err.Error()))
		case reply.TTL == 0:
			fmt.Fprintf(table, "%s\t-\t-\n", node)
		default:
			fmt.Fprintf(table, "%s\t%s\t%s\n", node, ttlText(millis(reply.TTL)), value)
		}
	}
	table.Flush()
	return b.String()
}
