package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/cmd/redlock/internal/inspect"
	"github.com/redquorum/redquorum/cmd/redlock/internal/plain"
	"github.com/redquorum/redquorum/cmd/redlock/internal/survey"
)

// A status is the state of the locks at one moment. With --json it is printed with these fields.
type status struct {
	Time     time.Time     `json:"time"`
	Quorum   int           `json:"quorum,omitempty"` // each of Groups has its own
	Answered int           `json:"answered"`         // nodes
	Nodes    []nodeStatus  `json:"nodes"`
	Groups   []groupStatus `json:"groups,omitempty"` // the groups that were asked; empty without groups
	Locks    []survey.Lock `json:"locks"`
	CutOff   bool          `json:"cut_off,omitempty"` // there may be more locks
}

// A groupStatus is one group of servers.
type groupStatus struct {
	Group    string `json:"group"`
	Quorum   int    `json:"quorum"`
	Answered int    `json:"answered"` // servers
	Servers  int    `json:"servers"`
}

type nodeStatus struct {
	Node  string `json:"node"`
	Group string `json:"group,omitempty"`
	Error string `json:"error,omitempty"` // reason it did not answer
}

// allHeld returns the answer to -q: whether each name is held, or each of its permits with
// --permits. If one is not held, the answer is certain even if the state of another is unknown.
func (st *status) allHeld(permits int) error {
	const free, unknown, held = 0, 1, 2
	states := map[string]int{}
	for _, l := range st.Locks {
		of, state := plain.Word(l.Name), free
		switch {
		case l.Votes >= len(l.Nodes)/2+1:
			state = held
		case l.State == inspect.Unknown:
			state = unknown
		}
		if permits > 1 {
			of = l.Title()
		}
		if permits == 1 || *l.Permit < permits {
			states[of] = max(states[of], state)
		}
	}
	switch slices.Min(slices.Collect(maps.Values(states))) {
	case free:
		return &exitError{code: exitFailed}
	case unknown:
		return &exitError{code: exitNoQuorum}
	}
	return nil
}

// text returns the status for people: a line for each lock and, with names, for each reader and
// each node.
func (st *status) text(named bool) string {
	var rows [][]string
	row := func(group string, cells ...string) {
		if st.Groups != nil {
			cells = slices.Insert(cells, 1, group)
		}
		rows = append(rows, cells)
	}
	claimed := func(group, title string, c survey.Claim, by string, nodes int) {
		votes, owner := "-", "-"
		if c.Votes > 0 {
			votes = fmt.Sprintf("%d of %d", c.Votes, nodes)
		}
		if c.Owner != "" {
			owner = c.Owner + " since " + c.Since.Local().Format(time.DateTime)
		}
		row(group, title, c.State, votes, ttlText(c.TTL), by, owner)
	}
	if len(st.Locks) > 0 {
		row("GROUP", "LOCK", "STATE", "VOTES", "TTL", "VALUE", "OWNER")
	}
	for _, l := range st.Locks {
		claimed(plain.Word(l.Group), l.Title(), l.Claim, l.Holder(), len(l.Nodes))
		if !named {
			continue
		}
		for _, r := range l.ReadBy {
			claimed("", "  reader", r, r.Shown(), len(l.Nodes))
		}
		for _, n := range l.Nodes {
			value := "-"
			if n.Held {
				value = n.Shown()
			}
			row("", "  "+plain.Word(n.Node), n.State(), "", ttlText(n.TTL), value, "")
		}
	}
	return plain.Table(rows) + strings.Join(st.notes(named), "")
}

// notes returns the notes below the table.
func (st *status) notes(named bool) (notes []string) {
	note := func(format string, args ...any) {
		notes = append(notes, plain.Wrap(fmt.Sprintf(format, args...), 0)+"\n")
	}
	release := func(l survey.Lock, flags ...string) {
		notes = append(notes, "  "+plain.Advice("release", l.Name, flags...)+"\n")
	}
	stuck := func(l survey.Lock, flags ...string) {
		note("%s is stuck: its key has no TTL and never expires. If no process holds it, free it:", l.Title())
		release(l, flags...)
	}
	if len(st.Locks) == 0 && st.Answered > 0 {
		note("no locks")
	}
	odd, cut := false, false
	for _, l := range st.Locks {
		cut = cut || strings.HasSuffix(l.Shown(), "…")
		odd = odd || l.State == inspect.Partial || l.State == inspect.Split || l.State == inspect.Unknown
		if l.State == inspect.Stuck && l.Permit == nil {
			stuck(l, "--force")
		}
		told := map[string]bool{}
		for _, n := range l.Nodes {
			cut = cut || strings.HasSuffix(n.Shown(), "…")
			switch {
			case n.NoLock():
				note("%s: %s: %s", plain.Word(l.Name), plain.Word(n.Node), n.Error)
			case !n.Stuck() || l.State == inspect.Stuck && l.Permit == nil || told[n.Value]:
			case n.Readers:
				note("%s: %s has readers without a TTL. If no process reads, delete the key there", l.Title(), plain.Word(n.Node))
			case l.State == inspect.Stuck: // one permit is stuck; it is freed without the others
				told[n.Value] = true
				stuck(l, "--value", n.Value)
			case n.Value != l.Value:
				note("%s: %s holds another value, which has no TTL and never expires. Free it there:", l.Title(), plain.Word(n.Node))
				release(l, "--value", n.Value)
			}
		}
	}
	if !named {
		if odd {
			note("To see what each server holds: redlock status NAME")
		}
		if st.CutOff {
			note("There are more keys than --limit, so locks may be missing: pass their names, a --prefix, or a higher --limit.")
		}
		if len(st.Locks) > 0 {
			note("On servers that others use as well, any key with a string looks like a lock.")
		}
	}
	if cut {
		note("A value that ends in … is cut; --json shows it whole.")
	}
	if silent := st.silent(); silent != "" {
		note("No answer from %s", silent)
	}
	return notes
}

// silent lists the servers that did not answer, and their errors.
func (st *status) silent() string {
	return together(len(st.Nodes), func(i int) (node, why string) { return st.Nodes[i].Node, st.Nodes[i].Error })
}

func ttlText(ms *int64) string {
	switch {
	case ms == nil:
		return "-"
	case *ms < 0:
		return "none"
	}
	ttl := time.Duration(*ms) * time.Millisecond
	if ttl > 10*time.Second {
		ttl = ttl.Round(100 * time.Millisecond)
	}
	return ttl.String()
}
