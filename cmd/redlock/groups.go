package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/redquorum/redquorum/internal/alike"
	"github.com/redquorum/redquorum/internal/plain"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// A serverSet is servers that vote together: all that --node names, or one group of --group.
type serverSet struct {
	group            string // empty for --node
	urls             []string
	prefix           string // of the group's keys, behind that of all
	joining, leaving bool
}

func (set serverSet) quorum() int { return len(set.urls)/2 + 1 }

// prefixOf returns what stands before the names of locks on the servers of the set.
func (s *servers) prefixOf(set serverSet) string { return s.prefix + set.prefix }

// names returns the servers as they are called. What is no URL has none, and is reported later.
func (set serverSet) names() (names []string) {
	for _, u := range set.urls {
		if name, _, err := pool.Dialer(u); err == nil {
			names = append(names, name)
		}
	}
	return names
}

// groupFlags adds the flags that say which groups of servers there are.
func (s *servers) groupFlags(f *pflag.FlagSet) {
	f.StringArrayVar(&s.groups, "group", nil, "`NAME=URL,URL,...`: a group of servers, which has its part of the locks; repeat it for each, instead of --node")
	f.IntVar(&s.mapVersion, "map-version", 1, "version of the map of the groups, one above that of the map before")
	f.StringArrayVar(&s.joining, "joining", nil, "`NAME` of a group that is new in this version, while the map is being changed; repeat it for each")
	f.StringArrayVar(&s.leaving, "leaving", nil, "`NAME` of a group that the next version will not have, while the map is being changed; repeat it for each")
	f.StringArrayVar(&s.groupPrefixes, "group-prefix", nil, "`NAME=TEXT`: what stands before the keys of a group, behind --prefix, so that it can share servers with another group; repeat it for each")
}

// mapFlags are those that belong to --group.
var mapFlags = []string{"map-version", "joining", "leaving", "group-prefix"}

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
				return nil, fmt.Errorf("there are two groups %s; give all URLs of a group behind one name", plain.Word(named[1]))
			}
			sets = append(sets, serverSet{group: named[1]})
			field = named[2]
		}
		if len(sets) == 0 {
			return nil, errors.New("a group has no name; write NAME=URL,URL, as in a=redis://10.0.0.1:6379,redis://10.0.0.2:6379, with a NAME without any of : / @")
		}
		if of := &sets[len(sets)-1]; field != "" {
			of.urls = append(of.urls, field)
		}
	}
	for _, set := range sets {
		if len(set.urls) == 0 {
			return nil, fmt.Errorf("group %s has no servers; write %s=URL,URL", plain.Word(set.group), plain.Word(set.group))
		}
	}
	return sets, nil
}

// readGroups makes the sets of the flags.
func (s *servers) readGroups() (err error) {
	if s.sets, err = parseGroups(strings.Join(s.groups, " ")); err != nil {
		return wrong(s.flags, "group", "%w", err)
	}
	if len(s.sets) == 0 {
		if i := slices.IndexFunc(mapFlags, s.flags.Changed); i >= 0 {
			return usageErrorf("--%s belongs to --group, and there are no groups; give --group NAME=URL,URL for each", mapFlags[i])
		}
		return nil
	}
	if err := s.readPrefixes(); err != nil {
		return err
	}
	for flag, names := range map[string]*[]string{"joining": &s.joining, "leaving": &s.leaving} {
		*names = splitNames(*names)
		for _, name := range *names {
			if !slices.Contains(groupsOf(s.sets), name) {
				return wrong(s.flags, flag, "there is no group %s; there is: %s. While the map is being changed, give the groups of both versions",
					plain.Word(name), plain.Words(groupsOf(s.sets)))
			}
		}
	}
	stays, before := false, false
	for i := range s.sets {
		set := &s.sets[i]
		set.joining, set.leaving = slices.Contains(s.joining, set.group), slices.Contains(s.leaving, set.group)
		if set.joining && set.leaving {
			return wrong(s.flags, "leaving", "group %s cannot be joining and leaving; leave one out", plain.Word(set.group))
		}
		stays, before = stays || !set.leaving, before || !set.joining
	}
	switch changing := len(s.joining)+len(s.leaving) > 0; {
	case !stays:
		return wrong(s.flags, "leaving", "all groups are leaving; give the groups that stay or join, too")
	case !before:
		return wrong(s.flags, "joining", "all groups are joining; where there was no map before, leave --joining out")
	case changing && s.mapVersion == 1:
		return wrong(s.flags, "map-version", "groups are joining or leaving, and the map's version is 1; give one that is one above that of the map before")
	}
	return nil
}

// readPrefixes gives the groups their prefixes. Groups that have a server in common need different
// ones.
func (s *servers) readPrefixes() error {
	given := map[string]bool{}
	for _, field := range splitNames(s.groupPrefixes) {
		name, text, ok := strings.Cut(field, "=")
		if !ok {
			return wrong(s.flags, "group-prefix", "%s: write NAME=TEXT, as in b=b:, with a TEXT without commas and spaces", plain.Word(field))
		}
		i := slices.Index(groupsOf(s.sets), name)
		switch {
		case i < 0:
			return wrong(s.flags, "group-prefix", "there is no group %s to have a prefix; there is: %s. Give its servers with --group, or leave its --group-prefix out",
				plain.Word(name), plain.Words(groupsOf(s.sets)))
		case given[name]:
			return wrong(s.flags, "group-prefix", "there are two prefixes of group %s; give one", plain.Word(name))
		}
		given[name], s.sets[i].prefix = true, text
	}
	for i, a := range s.sets {
		for _, b := range s.sets[:i] {
			of := b.names()
			for _, server := range a.names() {
				if a.prefix == b.prefix && slices.Contains(of, server) {
					return wrong(s.flags, "group", "groups %s and %s have the same server, %s; give one of them keys of its own by --group-prefix, as in %s=%s:",
						plain.Word(b.group), plain.Word(a.group), plain.Word(server), plain.Word(a.group), plain.Word(a.group))
				}
			}
		}
	}
	return nil
}

// foreign returns the prefixes of other groups on a server of the set whose keys look like those of
// the set's locks.
func (s *servers) foreign(set serverSet, server string) (prefixes []string) {
	if set.group == "" {
		return nil
	}
	for _, other := range s.sets {
		longer, isPrefix := strings.CutPrefix(other.prefix, set.prefix)
		if isPrefix && longer != "" && slices.Contains(other.names(), server) {
			prefixes = append(prefixes, s.prefixOf(other))
		}
	}
	return prefixes
}

// splitNames returns the names of a list with commas or spaces between them.
func splitNames(lists []string) []string {
	return strings.Fields(strings.ReplaceAll(strings.Join(lists, " "), ",", " "))
}

func groupsOf(sets []serverSet) (names []string) {
	for _, set := range sets {
		names = append(names, set.group)
	}
	return names
}

// groupMap returns the map of the sets. Without nodes, it tells where a name is.
func (s *servers) groupMap(sets []serverSet, nodes [][]protocol.Node) redlock.Map {
	m := redlock.Map{Version: s.mapVersion}
	for i, set := range sets {
		g := redlock.Group{Name: set.group, Prefix: set.prefix, Joining: set.joining, Leaving: set.leaving}
		if nodes != nil {
			g.Nodes = nodes[i]
		}
		m.Groups = append(m.Groups, g)
	}
	return m
}

// setsOf returns the sets on which a lock is: one, or two while a change of the map moves it.
func (s *servers) setsOf(sets []serverSet, name string) (of []serverSet) {
	if !grouped(sets) {
		return sets
	}
	groups := s.groupMap(sets, nil).GroupsOf(s.prefix + name)
	return slices.DeleteFunc(slices.Clone(sets), func(set serverSet) bool { return !slices.Contains(groups, set.group) })
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
	text := "group " + plain.Word(set.group)
	switch {
	case set.group == "":
		return "the servers"
	case set.joining:
		text += ", joining"
	case set.leaving:
		text += ", leaving"
	}
	return text
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
