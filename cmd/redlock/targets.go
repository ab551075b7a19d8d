package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/redquorum/redquorum/cmd/redlock/internal/plain"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/pool"
)

// targets are the servers of a command: one set, or groups.
type targets struct {
	cli      *cli
	config   string
	nodes    []string
	groups   []string    // as the user wrote them
	embedded bool        // a flag of commands that take locks
	sets     []serverSet // of groups
}

func (t *targets) addFlags(c *cli) {
	t.addNodes(c)
	c.flags.StringArrayVar(&t.groups, "group", nil, "`NAME=URL,URL,...`: a group of servers, which has a part of the locks; repeat the flag for each group, instead of --node")
}

// addNodes adds the flags that name one set.
func (t *targets) addNodes(c *cli) {
	t.cli = c
	c.flags.StringVar(&t.config, "config", "", "configuration `FILE`; see \"redlock help config\"")
	c.flags.StringArrayVar(&t.nodes, "node", nil, "`URL` of a server: redis://, rediss:// or unix://, with ?standby=HOST:PORT if it fails over; repeat the flag for each server, or separate URLs by commas (also --nodes)")
}

// embeddedFlag adds the flag for a trial without servers.
func (t *targets) embeddedFlag() {
	t.cli.flags.BoolVar(&t.embedded, "embedded", false, "use five servers inside this process, for a trial; no other process can reach them")
}

// settle reads the lists of servers, and refuses a command without servers.
func (t *targets) settle() error {
	if err := t.readGroups(); err != nil {
		return err
	}
	if err := t.checkURLs(); err != nil {
		return err
	}
	f := t.cli.flags
	switch {
	case t.embedded && (f.Changed("node") || f.Changed("group")):
		return usageErrorf("--embedded and --%s exclude each other", t.namedBy())
	case !t.embedded && len(t.nodes) == 0 && len(t.sets) == 0:
		words := `no servers are configured: pass --node redis://HOST:PORT for each, set $REDLOCK_NODES (or --group and $REDLOCK_GROUPS), or write a configuration file ("redlock help config")`
		if f.Lookup("embedded") != nil {
			words += `; for a trial, use --embedded, or "redlock nodes"`
		}
		return usageErrorf("%s", words)
	}
	return nil
}

// all returns the sets of servers: one, or one for each group.
func (t *targets) all() []serverSet {
	if t.sets == nil {
		return []serverSet{{urls: t.nodes}}
	}
	return t.sets
}

// urls returns the URLs of all sets.
func (t *targets) urls() (all []string) {
	for _, set := range t.all() {
		all = append(all, set.urls...)
	}
	return all
}

// namedBy is the flag that names the servers.
func (t *targets) namedBy() string {
	if t.sets != nil {
		return "group"
	}
	return "node"
}

// checkURLs refuses invalid URLs. Its error has the number of the URL instead of the URL, which may
// contain a password.
func (t *targets) checkURLs() error {
	for _, set := range append(t.sets, serverSet{urls: t.nodes}) {
		for i, u := range set.urls {
			if _, _, err := pool.Dialer(u); err != nil {
				return wrong(t.cli.flags, t.namedBy(), "%w", set.blame(fmt.Errorf("server %d: %s", i+1, strings.TrimPrefix(err.Error(), "pool: URL: "))))
			}
		}
	}
	return nil
}

// bothSpellings makes --nodes an alias of --node.
func bothSpellings(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	if name == "nodes" {
		name = "node"
	}
	return pflag.NormalizedName(name)
}

// nextURL finds the comma or semicolon before a URL, or before the name of its group. It ignores
// others, which may be part of a password.
var nextURL = regexp.MustCompile(`[,;]+\s*(?:((?:[^\s=:/@,;]+=)?[a-z]+://)|$)`)

// splitURLs returns the URLs of a list with commas, semicolons or spaces between them.
func splitURLs(list string) []string {
	return strings.Fields(nextURL.ReplaceAllString(list, " $1"))
}

// A serverSet has servers that vote together: all servers of --node, or one group of --group.
type serverSet struct {
	group string // empty for --node
	urls  []string
}

func (set serverSet) quorum() int { return len(set.urls)/2 + 1 }

// names returns the display names of the servers. Invalid URLs have no name, and are reported
// later.
func (set serverSet) names() (names []string) {
	for _, u := range set.urls {
		if name, _, err := pool.Dialer(u); err == nil {
			names = append(names, name)
		}
	}
	return names
}

// groupName finds the name before the first URL of a group.
var groupName = regexp.MustCompile(`^([^\s=:/@,]+)=(.*)$`)

// parseGroups reads NAME=URL,URL for each group, with commas or spaces between all of them. Its
// error does not contain a URL, because a URL may contain a password.
func parseGroups(text string) (sets []serverSet, err error) {
	for _, field := range splitURLs(text) {
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

// readGroups creates the sets that the flags define.
func (t *targets) readGroups() (err error) {
	if t.sets, err = parseGroups(strings.Join(t.groups, " ")); err != nil {
		return wrong(t.cli.flags, "group", "%w", err)
	}
	for i, a := range t.sets {
		for _, b := range t.sets[:i] {
			of := b.names()
			for _, server := range a.names() {
				if slices.Contains(of, server) {
					return wrong(t.cli.flags, "group", "groups %s and %s have the same server, %s: a server belongs to one group",
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

// setOf returns the set that has the key of a lock.
func (t *targets) setOf(key string) serverSet {
	all := t.all()
	return all[keys.GroupOf(groupsOf(all), key)]
}

// hashOf returns the hash of all groups that clients write into the records of a set's servers;
// nothing if there are no groups.
func (t *targets) hashOf(set serverSet) string {
	if set.group == "" {
		return ""
	}
	m := keys.Groups{}
	for _, each := range t.sets {
		m[each.group] = each.names()
	}
	return m.Hash(set.group)
}

// grouped reports whether the sets are groups.
func grouped(sets []serverSet) bool { return sets[0].group != "" }

// blame adds the name of the group to an error.
func (set serverSet) blame(err error) error {
	if set.group == "" || err == nil {
		return err
	}
	return fmt.Errorf("%v: %w", set, err)
}

// String returns the set's name for people.
func (set serverSet) String() string {
	if set.group == "" {
		return "the servers"
	}
	return "group " + plain.Word(set.group)
}
