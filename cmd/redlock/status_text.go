package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// text is the status for people: a line for each lock, and, if names were asked
// for, one for each node.
func (st *status) text(named bool) string {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	if len(st.Locks) > 0 {
		fmt.Fprintln(table, "LOCK\tSTATE\tVOTES\tTTL\tVALUE")
	}
	for _, l := range st.Locks {
		votes, value := "-", "-"
		if l.Votes > 0 {
			votes, value = fmt.Sprintf("%d of %d", l.Votes, len(l.Nodes)), brief(l.Value)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", word(l.Name), l.State, votes, ttlText(l.TTL), value)
		if !named {
			continue
		}
		for _, n := range l.Nodes {
			value := "-"
			if n.Held {
				value = brief(n.Value)
			}
			fmt.Fprintf(table, "  %s\t%s\t\t%s\t%s\n", word(n.Node), n.state(), ttlText(n.TTL), value)
		}
	}
	table.Flush()
	for _, note := range st.notes(named) {
		b.WriteString(note + "\n")
	}
	return b.String()
}

// state is one node's, in a word.
func (k keyTold) state() string {
	switch {
	case k.noLock():
		return "no lock"
	case k.Error != "":
		return "silent"
	case !k.Held:
		return stateFree
	case k.stuck():
		return stateStuck
	}
	return "holds"
}

func (k keyTold) stuck() bool { return k.Held && *k.TTL < 0 }

func (k keyTold) noLock() bool { return strings.Contains(k.Error, redlock.ErrWrongType.Error()) }

// notes are what the table does not say.
func (st *status) notes(named bool) (notes []string) {
	note := func(format string, args ...any) { notes = append(notes, wrap(fmt.Sprintf(format, args...), 0)) }
	if len(st.Locks) == 0 && st.Answered > 0 {
		note("no locks")
	}
	odd := false
	for _, l := range st.Locks {
		odd = odd || l.State == statePartial || l.State == stateSplit || l.State == stateUnknown
		if l.State == stateStuck {
			note("%s is stuck: its key has no TTL and never expires. If nobody holds it, free it: redlock release %s --force", word(l.Name), word(l.Name))
		}
		for _, n := range l.Nodes {
			switch {
			case n.noLock():
				note("%s: %s: %s", word(l.Name), word(n.Node), n.Error)
			case n.stuck() && l.State != stateStuck && n.Value != l.Value:
				note("%s: %s holds another value without a TTL, for ever. Free it there: redlock release %s --value %s", word(l.Name), word(n.Node), word(l.Name), word(n.Value))
			}
		}
	}
	if !named {
		if odd {
			note("Which server holds what: redlock status NAME")
		}
		if st.CutOff {
			note("There are more keys than were looked at, so locks may be missing: give their names, a --prefix, or a higher --limit.")
		}
		if len(st.Locks) > 0 {
			note("On servers that others use as well, any key with a string looks like a lock.")
		}
	}
	for _, n := range st.Nodes {
		if n.Error != "" {
			note("%s did not answer: %s", word(n.Node), n.Error)
		}
	}
	return notes
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
