package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redquorum/redquorum/internal/alike"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
)

// A nodeSet asks all nodes about one name, outside of any lock.
type nodeSet struct {
	of      serverSet
	nodes   []protocol.Node
	name    string
	key     string
	timeout time.Duration
	finder  *finder // of the same servers
}

// nodeSet returns the set for a name on servers that have been opened.
func (s *servers) nodeSet(of serverSet, nodes []protocol.Node, name string) (*nodeSet, error) {
	f, err := s.newFinder(of, 0)
	return &nodeSet{of: of, nodes: nodes, name: name, key: s.prefixOf(of) + name, timeout: s.answerTimeout(), finder: f}, err
}

// A part of a lock is what one client can hold of it: all of it, one of its permits, or a place among
// its readers.
type part struct {
	title  string
	key    string
	reader bool
	found  []protocol.Reply // what each node holds of it
}

func (s *nodeSet) quorum() int { return len(s.nodes)/2 + 1 }

func (s *nodeSet) close() {
	for _, n := range s.nodes {
		n.Close()
	}
}

// inspect asks what the nodes hold, of each permit that any of them knows, and of each reader. The
// first part is the lock, or its permit 0.
func (s *nodeSet) inspect(ctx context.Context) ([]part, error) {
	parts := make([]part, max(1, s.finder.count(ctx, []string{s.name})[s.name]))
	atOnce(len(parts), func(slot int) error {
		p := part{title: word(s.name), key: keys.Slot(s.key, slot)}
		if len(parts) > 1 {
			p.title = permitTitle(s.name, slot)
		}
		p.found = s.ask(ctx, p.key, func(int) *protocol.Request { return &protocol.Request{Op: protocol.OpInspect} })
		parts[slot] = p
		return nil
	})
	return append(parts, s.readers(ctx, &parts[0])...), ctx.Err()
}

// readers takes the readers out of what was found of a lock, and returns a part for each. What is left
// of readers that have gone is a reader without a value.
func (s *nodeSet) readers(ctx context.Context, lock *part) (parts []part) {
	isRead := func(reply protocol.Reply) bool {
		return reply.Outcome == protocol.Granted && reply.Value == protocol.ReadersValue
	}
	if !slices.ContainsFunc(lock.found, isRead) {
		return nil
	}
	readers := s.finder.readers(ctx, []string{s.name})[s.name]
	free := slices.Clone(lock.found)
	for i := range free {
		switch {
		case !isRead(free[i]):
			readers[i] = nil
			continue
		case readers[i] == nil:
			free[i].Outcome, free[i].Err = protocol.Failed, errReaders
		case len(readers[i]) == 0:
			readers[i][""] = free[i].TTL
		}
		free[i].Value, free[i].TTL = "", 0
	}
	lock.found = free
	for _, value := range valuesOf(readers) {
		p := part{title: word(s.name) + ", reader " + valueShown(value), key: s.key, reader: true, found: slices.Clone(free)}
		if value == "" {
			p.title = word(s.name) + ", readers that have gone"
		}
		for i, of := range readers {
			if p.found[i].Outcome == protocol.Granted {
				p.found[i].Value, p.found[i].TTL = value, of[value]
			}
		}
		parts = append(parts, p)
	}
	return parts
}

// release deletes a part of the lock on each node where it holds the value given for that node. Nodes
// without one (nil) are not asked, and count as refused. It is the plain release, also for fenced
// locks, because the other one is against acquisitions that are under way: only their own client
// knows of those, and it would need their token. The counters stay as they are. Other readers stay,
// and the last to leave, known or not, takes the key along.
func (s *nodeSet) release(ctx context.Context, p part, value func(node int) *string) []protocol.Reply {
	return s.ask(ctx, p.key, func(node int) *protocol.Request {
		v := value(node)
		switch {
		case v == nil:
			return nil
		case p.reader:
			return &protocol.Request{Op: protocol.OpReleaseShared, Value: *v,
				Shared: &protocol.Shared{Readers: keys.Readers.Of(p.key), Intent: keys.Intent.Of(p.key)}}
		}
		return &protocol.Request{Op: protocol.OpRelease, Value: *v}
	})
}

var (
	errNoAnswer = errors.New("no answer")
	errReaders  = errors.New("it has readers, and did not tell which")
)

// ask submits a request about a key to each node that has one, and waits for the replies: for no
// longer than s.timeout.
func (s *nodeSet) ask(ctx context.Context, key string, request func(node int) *protocol.Request) []protocol.Reply {
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

// table shows what each node holds of a part.
func (s *nodeSet) table(p part) string {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SERVER\tTTL\tVALUE")
	for i, reply := range p.found {
		node := word(s.nodes[i].String())
		value := word(reply.Value)
		if reply.Value == "" && p.reader {
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
