package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/internal/protocol"
)

func newRelease() *cobra.Command {
	r := &releaseCommand{}
	c := &cobra.Command{
		Use:   "release NAME",
		Short: "Delete a lock's key: by its value, or by force",
		Long: `With --value it deletes the key on every server where it holds that value, and
nowhere else: what the holder's own release does. It is for holders that died. Of
a value that redlock made its first 8 digits or more are enough, and "redlock
status" shows 12; values of other clients are wanted whole.

With --force it deletes what the servers hold, whoever holds it, stuck keys
without a TTL included. It shows what that is, asks, and then deletes that and
nothing else: a lock that somebody takes meanwhile stays. The holder, if it
lives, learns of it at its next renewal, and may work on until then or, where it
does not renew, until its TTL ends, while another has the lock: two at once. The
counters of fencing tokens stay, so the next holder's token is greater, and a
resource that checks tokens refuses the old one's as soon as it has seen it.

A server that does not answer keeps the key until its TTL ends. Keys of other
types than a lock's are reported and left alone.

With groups of servers it is done in the group that has the lock. While a change
of the map moves it that can be two: --force frees both, and of values each has
its own.

Of a lock with permits (redlock run --permits) or readers (--shared), --value
frees the permit or reader that has it and leaves the others, and --force frees
all that it shows. A reader that comes later stays.

Exit codes:
  0    a quorum of servers is free of it now
  1    nothing to delete; or not confirmed; or somebody else has taken the lock
       in between
  69   no quorum of servers answered (what could be deleted is)
  64   the command line is wrong
  78   the configuration is wrong`,
		Example: `  redlock release nightly --value 4be2f09a1c77
  redlock release nightly --force
  redlock release nightly --force --yes      # where nobody can be asked`,
		Args: oneArgument("the name of the lock"),
		RunE: func(c *cobra.Command, args []string) error {
			r.name, r.byValue = args[0], c.Flags().Changed("value")
			return r.run(c)
		},
	}
	r.servers = serverFlags(c)
	r.servers.explainTimeout()
	c.ValidArgsFunction = r.servers.lockNames(1)
	f := c.Flags()
	f.StringVar(&r.value, "value", "", "delete it where it holds this `VALUE`, or one of redlock's that begins so")
	f.BoolVar(&r.force, "force", false, "delete it whoever holds it")
	f.BoolVar(&r.yes, "yes", false, "with --force: do not ask")
	return c
}

// A releaseCommand is one run of "redlock release".
type releaseCommand struct {
	servers *servers
	name    string
	value   string
	byValue bool
	force   bool
	yes     bool

	unwanted bool // it was not confirmed
}

func (r *releaseCommand) check() error {
	switch {
	case r.byValue == r.force:
		return usageErrorf("release by --value, or by --force: give one of them; %q shows the value", advice("status", r.name))
	case r.byValue && strings.HasSuffix(r.value, "…"):
		return usageErrorf("--value ends in …, so it is not the whole value; %q has it", advice("status", r.name, "--json"))
	case r.byValue && r.value == "":
		return usageErrorf("--value is empty: no lock has such a value")
	case r.byValue && r.value == protocol.ReadersValue:
		return usageErrorf("--value %s: stands for all readers of the lock; give the value of one: %q shows them", r.value, advice("status", r.name))
	case r.yes && !r.force:
		return usageErrorf("--yes belongs to --force")
	}
	return r.servers.checkName(r.name)
}

func (r *releaseCommand) run(c *cobra.Command) error {
	if err := r.check(); err != nil {
		return err
	}
	sets := r.servers.setsOf(r.servers.all(), r.name)
	nodes, err := r.servers.openSets(sets)
	if err != nil {
		return err
	}
	var errs []error
	for i, of := range sets {
		set, err := r.servers.nodeSet(of, nodes[i], r.name)
		defer set.close()
		switch {
		case err != nil:
			errs = append(errs, of.blame(err))
		case !r.unwanted:
			errs = append(errs, of.blame(r.runOn(c, set)))
		}
	}
	return r.outcome(errs)
}

// An absence is the error of a release of what no server holds.
type absence string

func (a absence) Error() string { return string(a) }

// outcome returns the outcome for the groups that a lock is in. A change of the map moves a lock
// that is in two: it may be held in one of them, and if in both, with a value of its own in each.
func (r *releaseCommand) outcome(errs []error) error {
	var absent absence
	isAbsent := func(err error) bool { return errors.As(err, &absent) }
	rest := slices.DeleteFunc(slices.Clone(errs), isAbsent)
	switch {
	case len(rest) == 0:
		return errs[0]
	case r.byValue && slices.Contains(rest, nil):
		return nil
	}
	return cmp.Or(rest...)
}

// runOn releases the lock on one set of servers.
func (r *releaseCommand) runOn(c *cobra.Command, set *nodeSet) error {
	found, err := r.look(c, set)
	if err != nil {
		return err
	}
	if r.force && !r.yes {
		if err := newPrompt(c).confirm(c.Context(), r.question(), r.name, word(r.name)); err != nil {
			r.unwanted = true
			return err
		}
	}
	return r.deleteAll(c, set, found)
}

// look asks the servers what they hold, shows it for --force, and returns the parts of the lock that
// are meant, or an error if there are none.
func (r *releaseCommand) look(c *cobra.Command, set *nodeSet) ([]part, error) {
	parts, err := set.inspect(c.Context())
	if err != nil {
		return nil, err
	}
	var meant []part
	values := map[string]bool{}
	for _, p := range parts {
		if !slices.ContainsFunc(p.found, r.means) {
			continue
		}
		meant = append(meant, p)
		for _, reply := range p.found {
			if r.means(reply) {
				values[reply.Value] = true
			}
		}
	}
	if r.force {
		if err := output(c.OutOrStdout(), r.tables(set, meant, parts[0])); err != nil {
			return nil, err
		}
	}
	answers := 0
	for _, reply := range parts[0].found {
		if reply.Outcome == protocol.Granted {
			answers++
		}
	}
	with := "with that value: nothing was deleted"
	switch {
	case len(values) > 1 && r.byValue:
		return nil, fmt.Errorf("%d values that servers hold for %s begin so: nothing was deleted; give more of the one that is meant", len(values), word(r.name))
	case len(meant) > 0:
		return meant, nil
	case answers < set.quorum():
		return nil, set.failure(parts[0].found, "nothing was deleted")
	case r.force:
		return nil, absence(fmt.Sprintf("no server that answered holds %s: nothing to release", word(r.name)))
	case isBeginning.MatchString(r.value):
		with = "with a value that begins so: nothing was deleted"
	case isTooShort.MatchString(r.value):
		with += fmt.Sprintf("; of a value that redlock made at least %d digits are wanted", leastDigits)
	}
	return nil, absence(fmt.Sprintf("no server that answered holds %s %s", word(r.name), with))
}

// tables shows the parts of the lock that somebody holds, or that there is none.
func (r *releaseCommand) tables(set *nodeSet, held []part, lock part) string {
	var b strings.Builder
	if set.of.group != "" {
		b.WriteString(set.of.String() + "\n")
	}
	if len(held) == 0 {
		held = []part{lock}
	}
	for _, p := range held {
		if p.title != word(r.name) {
			b.WriteString(p.title + "\n")
		}
		b.WriteString(set.table(p))
	}
	return b.String()
}

// means reports whether a server holds what is to be deleted.
func (r *releaseCommand) means(reply protocol.Reply) bool {
	return reply.Outcome == protocol.Granted && reply.TTL != 0 &&
		(r.force || reply.Value == r.value || isBeginning.MatchString(r.value) && begins(reply.Value, r.value))
}

// deleteAll deletes all parts that were found, and prints what became of them. Its error is that of
// the first which could not be deleted.
func (r *releaseCommand) deleteAll(c *cobra.Command, set *nodeSet, found []part) error {
	texts := make([]string, len(found))
	err := atOnce(len(found), func(i int) (err error) {
		texts[i], err = r.delete(c, set, found[i])
		if err != nil && found[i].title != word(r.name) {
			err = fmt.Errorf("%s: %w", found[i].title, err)
		}
		return err
	})
	return cmp.Or(output(c.OutOrStdout(), strings.Join(texts, "")), err)
}

// delete deletes what was found. With --force that is on each server the value that was shown: the
// answer may take minutes, and a value that a server gets meanwhile is the lock of another client.
// A value that was given is deleted on all servers, because one may answer now that did not before.
func (r *releaseCommand) delete(c *cobra.Command, set *nodeSet, p part) (text string, err error) {
	values := make([]*string, len(p.found))
	for i := range p.found {
		if r.means(p.found[i]) {
			values[i] = &p.found[i].Value
		}
	}
	if r.byValue {
		values = slices.Repeat([]*string{cmp.Or(values...)}, len(p.found))
	}
	replies := set.release(c.Context(), p, func(i int) *string { return values[i] })
	for i := range p.found {
		if values[i] == nil && p.found[i].Err != nil { // what it holds is not known, and was left alone
			replies[i] = p.found[i]
		}
	}
	return r.conclude(c.Context(), set, p, replies)
}

func (r *releaseCommand) question() string {
	return fmt.Sprintf("Whoever holds it may go on working for a while as if it did. Type the name (%s) to delete it: ", word(r.name))
}

// conclude returns the result, as a text or an error.
func (r *releaseCommand) conclude(ctx context.Context, set *nodeSet, p part, replies []protocol.Reply) (string, error) {
	deleted, free := 0, 0
	var others []string
	for i, reply := range replies {
		switch {
		case reply.Outcome == protocol.Granted:
			deleted++
			free++
		case reply.Outcome == protocol.Refused && (reply.TTL == 0 || r.byValue):
			free++
		case reply.Outcome == protocol.Refused:
			others = append(others, word(set.nodes[i].String()))
		}
	}
	done := fmt.Sprintf("deleted on %d of %d servers", deleted, len(replies))
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case len(others) > 0:
		return "", fmt.Errorf("%s, but somebody else has taken the lock meanwhile on %s, and keeps it there; look again, %q", done, strings.Join(others, ", "), advice("status", r.name))
	case free < set.quorum():
		return "", set.failure(replies, done)
	case deleted == 0 && r.byValue: // it has gone since it was looked for
		return "", absence(fmt.Sprintf("no server that answered holds %s with that value: nothing was deleted", word(r.name)))
	}
	var b strings.Builder
	title := p.title
	if set.of.group != "" {
		title += ", " + set.of.String()
	}
	fmt.Fprintf(&b, "%s: %s\n", title, done)
	for i, reply := range replies {
		if reply.Err != nil {
			fmt.Fprintf(&b, "  %s may hold it until its TTL ends: %s\n", word(set.nodes[i].String()), harmless(reply.Err.Error()))
		}
	}
	return b.String(), nil
}
