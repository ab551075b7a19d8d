package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/cmd/redlock/internal/inspect"
	"github.com/redquorum/redquorum/cmd/redlock/internal/plain"
	"github.com/redquorum/redquorum/cmd/redlock/internal/survey"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
)

func newRelease() *cobra.Command {
	r := &releaseCommand{}
	c := &cobra.Command{
		Use:   "release NAME",
		Short: "Delete a lock's key: by its value, or by force",

		SuggestFor: []string{"unlock"},

		Long: `Deletes what a dead holder has left. With --value it deletes the key on every server that holds
this value, and nothing else. "redlock status" shows the value: of a value that redlock made
the first 8 digits are enough; values of other clients must be complete.

With --force it shows what the servers hold, asks, and deletes those keys, including stuck keys
without a TTL. A lock that is taken in the meantime stays. A living holder notices the loss at its
next renewal, or when its TTL ends: until then two clients may work at once. Fencing tokens keep
rising, so a resource that checks them refuses the old holder once it has seen the next token.

A server that does not answer keeps the key until its TTL ends. Keys of other types are reported
and left alone. --value frees one permit or reader, and --force all that it shows.

Exit codes:
  0      a quorum of servers is free of it now
  1      nothing to delete; or not confirmed; or another client took the lock
         in the meantime
  69     no quorum of servers answered (what could be deleted is)
` + wrongCodes,
		Example: `  redlock release nightly --value 4be2f09a1c77
  redlock release nightly --force
  redlock release nightly --force --yes      # without a terminal`,
		Args: oneArgument("the name of the lock"),
		RunE: func(c *cobra.Command, args []string) error {
			r.name, r.byValue = args[0], c.Flags().Changed("value")
			r.out = c.OutOrStdout()
			r.approve = func() error {
				if r.yes || !r.force {
					return nil
				}
				return confirm(c, fmt.Sprintf(releaseQuestion, plain.Word(r.name)), r.name, plain.Word(r.name))
			}
			if err := r.check(); err != nil {
				return err
			}
			return r.run(c.Context(), r.servers.targets.setOf(r.servers.locking.prefix+r.name))
		},
	}
	r.servers = serverFlags(c)
	r.servers.explainTimeout()
	c.ValidArgsFunction = r.servers.lockNames(1)
	f := c.Flags()
	f.StringVar(&r.value, "value", "", "delete the key where it holds this `VALUE`, or a value of redlock that begins with it")
	f.BoolVar(&r.force, "force", false, "delete the key, even of a living holder")
	f.BoolVar(&r.yes, "yes", false, "with --force: do not ask")
	return c
}

const releaseQuestion = "The holder may continue to work for a while. Type the name (%s) to delete it: "

// A releaseCommand is one run of "redlock release".
type releaseCommand struct {
	servers             *servers
	name, value         string
	byValue, force, yes bool

	out     io.Writer
	approve func() error // if it returns an error, nothing is deleted
}

func (r *releaseCommand) check() error {
	switch {
	case r.byValue == r.force:
		return usageErrorf("pass either --value or --force: %q shows the value", plain.Advice("status", r.name))
	case r.byValue && strings.HasSuffix(r.value, "…"):
		return usageErrorf("--value ends in …, so it is cut: %q shows the whole value", plain.Advice("status", r.name, "--json"))
	case r.byValue && r.value == "":
		return usageErrorf("--value must not be empty")
	case r.byValue && r.value == protocol.ReadersValue:
		return usageErrorf("--value %s: stands for all readers of the lock: pass the value of one reader, which %q shows", r.value, plain.Advice("status", r.name))
	case r.yes && !r.force:
		return usageErrorf("--yes needs --force")
	}
	return r.servers.locking.checkName(r.name)
}

// run releases the lock on the set that has it.
func (r *releaseCommand) run(ctx context.Context, set serverSet) error {
	found, err := r.look(ctx, set)
	if err == nil {
		err = r.approve()
	}
	if err == nil {
		err = r.deleteAll(ctx, set, found)
	}
	return set.blame(err)
}

// A part of a lock is the unit that one client can hold: all of it, one of its permits, or a place among
// its readers.
type part struct {
	title  string
	key    string
	reader bool
	on     []inspect.Contents // what each server holds of it
}

var errReaders = errors.New("has readers, but did not list them")

// partsOf returns the parts of the lock. The first one is the lock or its permit 0. Leftovers of
// readers that have ended count as a reader without a value.
func partsOf(h *inspect.Holdings, prefix string) (parts []part) {
	for _, l := range h.Locks {
		p := part{title: plain.Word(l.Name), key: keys.Slot(prefix+l.Name, l.Permit), on: l.On}
		if l.Several {
			p.title = survey.PermitTitle(l.Name, l.Permit)
		}
		parts = append(parts, p)
	}
	name, lock := h.Locks[0].Name, &parts[0]
	for i := range lock.on {
		switch c := &lock.on[i]; {
		case c.Value != protocol.ReadersValue:
			continue
		case c.Readers.Err != nil:
			c.Err = errReaders
		case len(c.Readers.First) == 0:
			c.Readers.First = []inspect.Member{{Left: c.TTL}}
		}
		lock.on[i].Value, lock.on[i].TTL = "", 0
	}
	for _, value := range inspect.ReadersOf(lock.on) {
		p := part{title: plain.Word(name) + ", reader " + survey.Shown(value), key: lock.key, reader: true, on: inspect.AsReader(lock.on, value)}
		if value == "" {
			p.title = plain.Word(name) + ", readers that are gone"
		}
		parts = append(parts, p)
	}
	return parts
}

// look reads the lock from the servers, shows it with --force, and returns the parts to
// delete, or an error if there are none.
func (r *releaseCommand) look(ctx context.Context, set serverSet) (meant []part, err error) {
	h, err := r.servers.read(ctx, set, inspect.Question{Names: []string{r.name}, Members: inspect.MostReaders})
	if err != nil {
		return nil, err
	}
	parts := partsOf(h, r.servers.locking.prefix)
	values := map[string]bool{}
	for _, p := range parts {
		if slices.ContainsFunc(p.on, r.means) {
			meant = append(meant, p)
		}
		for _, c := range p.on {
			if r.means(c) {
				values[c.Value] = true
			}
		}
	}
	if r.force {
		if err := plain.Output(r.out, r.tables(h, set, meant, parts[0])); err != nil {
			return nil, err
		}
	}
	var names []string
	var errs []error
	answers := 0
	for i, c := range parts[0].on {
		if names, errs = append(names, h.Servers[i].Name), append(errs, c.Err); c.Err == nil {
			answers++
		}
	}
	with := "with that value: nothing was deleted"
	switch {
	case len(values) > 1 && r.byValue:
		return nil, fmt.Errorf("%d values of %s begin with --value: nothing was deleted; pass more digits", len(values), plain.Word(r.name))
	case len(meant) > 0:
		return meant, nil
	case answers < set.quorum():
		return nil, failure(names, errs, "nothing was deleted")
	case r.force:
		return nil, fmt.Errorf("no server that answered holds %s: nothing to release", plain.Word(r.name))
	case survey.IsBeginning.MatchString(r.value):
		with = "with a value that begins with --value: nothing was deleted"
	case survey.IsTooShort.MatchString(r.value):
		with += fmt.Sprintf("; pass at least %d digits of a value that redlock made", survey.LeastDigits)
	}
	return nil, fmt.Errorf("no server that answered holds %s %s", plain.Word(r.name), with)
}

// tables shows the held parts of the lock, or the free lock.
func (r *releaseCommand) tables(h *inspect.Holdings, set serverSet, held []part, lock part) string {
	var b strings.Builder
	if set.group != "" {
		b.WriteString(set.String() + "\n")
	}
	if len(held) == 0 {
		held = []part{lock}
	}
	for _, p := range held {
		if p.title != plain.Word(r.name) {
			b.WriteString(p.title + "\n")
		}
		rows := [][]string{{"SERVER", "TTL", "VALUE"}}
		for i, c := range p.on {
			ttl, value := ttlText(survey.Millis(c.TTL)), plain.Word(c.Value)
			switch {
			case c.Err != nil:
				ttl, value = "", plain.Harmless(c.Err.Error())
			case c.TTL == 0:
				ttl, value = "-", "-"
			case c.Value == "" && p.reader:
				value = survey.ReadersText
			}
			rows = append(rows, []string{plain.Word(h.Servers[i].Name), ttl, value})
		}
		b.WriteString(plain.Table(rows))
	}
	return b.String()
}

// means reports whether a server holds a value to delete.
func (r *releaseCommand) means(c inspect.Contents) bool {
	return c.Err == nil && c.TTL != 0 && (r.force || c.Value == r.value || survey.IsBeginning.MatchString(r.value) && survey.Begins(c.Value, r.value))
}

// deleteAll deletes all found parts, and prints the results. Its error is about the first part that
// could not be deleted.
func (r *releaseCommand) deleteAll(ctx context.Context, set serverSet, found []part) error {
	nodes, err := r.servers.nodeSet(set.urls)
	if err != nil {
		return err
	}
	defer nodes.close()
	// A release that is submitted without a connection may be sent twice, and the second one finds
	// nothing.
	nodes.ask(ctx, found[0].key, func(int) *protocol.Request { return &protocol.Request{Op: protocol.OpInspect} })
	texts := make([]string, len(found))
	err = atOnce(len(found), func(i int) (err error) {
		texts[i], err = r.delete(ctx, set, nodes, found[i])
		if err != nil && found[i].title != plain.Word(r.name) {
			err = fmt.Errorf("%s: %w", found[i].title, err)
		}
		return err
	})
	return cmp.Or(plain.Output(r.out, strings.Join(texts, "")), err)
}

// delete deletes a part of the lock, and returns the result as a text or an error. With --force it
// deletes on each server the value that was shown. The user's answer may take minutes, and a value
// that a server gets in the meantime is the lock of another client. A value from the command line
// is deleted on all servers, because a server that did not answer before may answer now.
//
// It uses the plain release, even for fenced locks. The fenced release blocks acquisitions in
// progress, but only their own client knows them, and it would need their token. The counters do
// not change. Other readers stay, and the last one to leave, known or not, deletes the key.
func (r *releaseCommand) delete(ctx context.Context, set serverSet, nodes *nodeSet, p part) (string, error) {
	values := make([]*string, len(p.on))
	for i := range p.on {
		if r.means(p.on[i]) {
			values[i] = &p.on[i].Value
		}
	}
	if r.byValue {
		values = slices.Repeat([]*string{cmp.Or(values...)}, len(p.on))
	}
	replies := nodes.ask(ctx, p.key, func(i int) *protocol.Request {
		switch {
		case values[i] == nil:
			return nil
		case p.reader:
			return &protocol.Request{Op: protocol.OpReleaseShared, Value: *values[i],
				Shared: &protocol.Shared{Readers: keys.Readers.Of(p.key), Intent: keys.Intent.Of(p.key)}}
		}
		return &protocol.Request{Op: protocol.OpRelease, Value: *values[i]}
	})
	deleted, free := 0, 0
	var others, unclear []string
	errs := make([]error, len(replies))
	for i, reply := range replies {
		server := plain.Word(nodes.names[i])
		errs[i] = reply.Err
		switch {
		case values[i] == nil && p.on[i].Err != nil: // its value is unknown and was not deleted
			errs[i] = p.on[i].Err
		case reply.Outcome == protocol.Granted:
			deleted++
			free++
		case reply.Outcome == protocol.Refused && (reply.TTL == 0 || r.byValue):
			free++
		case reply.Outcome == protocol.Refused:
			others = append(others, server)
		}
		if errs[i] != nil {
			unclear = append(unclear, fmt.Sprintf("  %s may hold it until its TTL ends: %s\n", server, plain.Harmless(errs[i].Error())))
		}
	}
	done := fmt.Sprintf("deleted on %d of %d servers", deleted, len(replies))
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case len(others) > 0:
		return "", fmt.Errorf("%s, but another client has taken the lock on %s in the meantime, and keeps it: see %q", done, strings.Join(others, ", "), plain.Advice("status", r.name))
	case free < set.quorum():
		return "", failure(nodes.names, errs, done)
	case deleted == 0 && r.byValue: // the value was gone before the deletion
		return "", fmt.Errorf("no server that answered holds %s with that value: nothing was deleted", plain.Word(r.name))
	}
	title := p.title
	if set.group != "" {
		title += ", " + set.String()
	}
	return title + ": " + done + "\n" + strings.Join(unclear, ""), nil
}
