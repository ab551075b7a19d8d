package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/cmd/redlock/internal/plain"
	"github.com/redquorum/redquorum/internal/alike"
	"github.com/redquorum/redquorum/internal/groups"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/pool"
)

// A serverSet is servers that vote together: all that --node names, or one group of --group.
type serverSet struct {
	group string // empty for --node
	urls  []string
}

func (set serverSet) quorum() int { return len(set.urls)/2 + 1 }

// names returns the servers as they are called. What is no URL has none, and is reported later.
func (set serverSet) names() (names []string) {
	for _, u := range set.urls {
		if name, _, err := pool.Dialer(u); err == nil {
			names = append(names, name)
		}
	}
	return names
}

// nextGroupURL is nextURL for URLs of which some have the name of a group before them.
var nextGroupURL = regexp.MustCompile(`[,;]+\s*(?:((?:[^\s=:/@,;]+=)?[a-z]+://)|$)`)

// groupName finds the name before the URL that is the first of a group.
var groupName = regexp.MustCompile(`^([^\s=:/@,]+)=(.*)$`)

// parseGroups reads NAME=URL,URL for each group, with commas or spaces between all of them. Its
// error does not repeat a URL, which may have a password.
func parseGroups(text string) (sets []serverSet, err error) {
	for _, field := range strings.Fields(nextGroupURL.ReplaceAllString(text, " $1")) {
		if named := groupName.FindStringSubmatch(field); named != nil {
			if slices.Contains(groupsOf(sets), named[1]) {
				return nil, fmt.Errorf("group %s is duplicated: list all its URLs after one name", plain.Word(named[1]))
			}
			sets = append(sets, serverSet{group: named[1]})
			field = named[2]
		}
		if len(sets) == 0 {
			return nil, errors.New("a group has no name: write NAME=URL,URL, as in a=redis://10.0.0.1:6379,redis://10.0.0.2:6379; a NAME contains none of : / @")
		}
		if of := &sets[len(sets)-1]; field != "" {
			of.urls = append(of.urls, field)
		}
	}
	for _, set := range sets {
		if len(set.urls) == 0 {
			return nil, fmt.Errorf("group %s has no servers: write %s=URL,URL", plain.Word(set.group), plain.Word(set.group))
		}
	}
	return sets, nil
}

// readGroups makes the sets of the flags.
func (s *servers) readGroups() (err error) {
	if s.sets, err = parseGroups(strings.Join(s.groups, " ")); err != nil {
		return wrong(s.flags, "group", "%w", err)
	}
	for i, a := range s.sets {
		for _, b := range s.sets[:i] {
			of := b.names()
			for _, server := range a.names() {
				if slices.Contains(of, server) {
					return wrong(s.flags, "group", "groups %s and %s have the same server, %s: a server belongs to one group",
						plain.Word(b.group), plain.Word(a.group), plain.Word(server))
				}
			}
		}
	}
	return nil
}

func groupsOf(sets []serverSet) (names []string) {
	for _, set := range sets {
		names = append(names, set.group)
	}
	return names
}

// setOf returns the set that has a lock.
func (s *servers) setOf(sets []serverSet, name string) serverSet {
	return sets[groups.Of(groupsOf(sets), s.prefix+name)]
}

// hashOf returns the hash of all groups that clients write into the records of a set's servers;
// nothing if there are no groups.
func (s *servers) hashOf(set serverSet) string {
	if set.group == "" {
		return ""
	}
	m := groups.Map{}
	for _, each := range s.sets {
		m[each.group] = each.names()
	}
	return m.Hash(set.group)
}

// grouped reports whether the sets are groups.
func grouped(sets []serverSet) bool { return sets[0].group != "" }

// openSets returns the servers of each set as nodes, which the caller closes. It connects to all at
// once.
func (s *servers) openSets(sets []serverSet) ([][]protocol.Node, error) {
	nodes := make([][]protocol.Node, len(sets))
	err := atOnce(len(sets), func(i int) (err error) {
		nodes[i], err = s.openNodes(sets[i].urls)
		return sets[i].blame(err)
	})
	if err == nil {
		return nodes, nil
	}
	for _, n := range slices.Concat(nodes...) {
		n.Close()
	}
	return nil, err
}

// blame says which group an error is about.
func (set serverSet) blame(err error) error {
	if set.group == "" || err == nil {
		return err
	}
	return fmt.Errorf("%v: %w", set, err)
}

// String returns what the set is called.
func (set serverSet) String() string {
	if set.group == "" {
		return "the servers"
	}
	return "group " + plain.Word(set.group)
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

// because adds to a text which of n servers failed, and why, if any did.
func because(text string, n int, of func(i int) (node, why string)) string {
	if failed := together(n, of); failed != "" {
		text += "; " + failed
	}
	return text
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
