package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock"
)

func newStatus() *cobra.Command {
	w := &statusCommand{}
	c := &cobra.Command{
		Use:   "status [NAME...]",
		Short: "See who holds a lock on which server, and for how long",
		Long: `Asks all servers what they hold for each NAME, and changes nothing. Without a
NAME it looks for all locks (SCAN). On servers that others use as well, every
key with a string looks like a lock: use a --prefix.

States:
  held      a quorum of servers holds one value
  free      no server that answered has the key
  partial   some have it, but no quorum: a vote is under way, or what is left of
            a lost lock will expire
  split     the same, with several values
  stuck     a key has no TTL and stays until somebody deletes it; see "redlock
            release --force"
  unknown   too few servers answered to tell

VOTES is how many servers hold the value, TTL how long a quorum of them will,
unless the holder renews it. VALUE is what "redlock release --value" wants: of a
value that redlock made, the first 12 digits. Of a lock with several permits
(redlock run --permits) those that are held are shown. Where readers hold a lock
(--shared) VALUE is how many, and each has a line with its own if the NAME is
given. With groups of servers GROUP is the one that has the lock; while a change
of the map moves it, it is shown for both, and clients hold it in one of them or
in both.

Exit codes:
  0    a quorum of servers answered; with -q: every NAME is held, or a permit of
       it, or each of so many as --permits says
  1    with -q: that is not so
  69   no quorum of servers answered (what the others said is printed), in some
       group that was asked; with -q, also: it cannot be told
  64   the command line is wrong
  78   the configuration is wrong`,
		Example: `  redlock status
  redlock status nightly --watch 500ms
  redlock status convert --permits 3
  redlock status --json | jq -r '.locks[] | select(.state == "stuck").name'
  redlock status -q nightly && echo "it runs"`,
		RunE: func(c *cobra.Command, args []string) error {
			w.names, w.watch = args, c.Flags().Changed("watch")
			return w.run(c)
		},
	}
	w.servers = serverFlags(c)
	w.servers.explainTimeout()
	c.ValidArgsFunction = w.servers.lockNames(math.MaxInt)
	f := c.Flags()
	f.BoolVar(&w.json, "json", false, "print one JSON document; with --watch one a line")
	f.BoolVarP(&w.quiet, "quiet", "q", false, "print nothing; the exit code tells whether every NAME is held")
	f.DurationVar(&w.interval, "watch", time.Second, "show it anew every `INTERVAL`, as in --watch 500ms, until interrupted")
	f.Lookup("watch").NoOptDefVal = "1s"
	f.Lookup("watch").DefValue = "0s" // for the help: without it there is none
	f.IntVar(&w.permits, "permits", 1, "show so many permits of every NAME, also free ones, as in redlock run --permits")
	f.IntVar(&w.limit, "limit", 1000, "without a NAME: show at most so many `LOCKS`")
	return c
}

// withInterval joins "status --watch 1s" to --watch=1s. A flag whose value may be left out takes none
// from the next word, which would be the name of a lock.
func withInterval(args []string) []string {
	i := slices.Index(args, "--watch")
	if i < 1 || i+1 == len(args) || args[0] != "status" || slices.Contains(args[:i], "--") {
		return args
	}
	if _, err := time.ParseDuration(args[i+1]); err != nil {
		return args
	}
	return slices.Concat(args[:i], []string{"--watch=" + args[i+1]}, args[i+2:])
}

// A statusCommand is one run of "redlock status".
type statusCommand struct {
	servers  *servers
	names    []string
	json     bool
	quiet    bool
	watch    bool
	interval time.Duration
	limit    int
	permits  int

	views []*view
}

// A view is one set of servers, as status looks at it.
type view struct {
	set     serverSet
	prefix  string // of its keys
	names   []string
	finder  *finder
	permits int // of each name, at least
	locker  *redlock.Locker
}

// shortestWatch keeps a mistyped interval from keeping the servers busy.
const shortestWatch = 10 * time.Millisecond

func (w *statusCommand) check() error {
	switch {
	case w.quiet && len(w.names) == 0:
		return usageErrorf("-q tells whether every NAME is held; give one")
	case w.quiet && (w.json || w.watch):
		return usageErrorf("-q prints nothing; --json and --watch make no sense with it")
	case w.interval < shortestWatch:
		return usageErrorf("--watch=%v: at least %v", w.interval, shortestWatch)
	case w.permits > 1 && len(w.names) == 0:
		return usageErrorf("--permits shows the permits of a NAME; give one")
	}
	for _, name := range w.names {
		if err := w.servers.checkName(name); err != nil {
			return err
		}
	}
	return nil
}

func (w *statusCommand) run(c *cobra.Command) error {
	if err := w.check(); err != nil {
		return err
	}
	ctx := c.Context()
	sets := w.servers.all()
	defer w.close()
	if err := w.open(sets); err != nil {
		return err
	}
	return w.show(ctx, c.OutOrStdout())
}

// open makes the command ready to look, at all sets or at those of the names. The caller closes it.
func (w *statusCommand) open(sets []serverSet) error {
	for _, set := range sets {
		v := &view{set: set, prefix: w.servers.prefixOf(set), permits: max(1, w.permits)}
		for _, name := range w.names {
			if slices.ContainsFunc(w.servers.setsOf(sets, name), func(of serverSet) bool { return of.group == set.group }) {
				v.names = append(v.names, name)
			}
		}
		if len(w.names) == 0 || len(v.names) > 0 {
			w.views = append(w.views, v)
		}
	}
	return atOnce(len(w.views), func(i int) error { return w.views[i].set.blame(w.openView(w.views[i])) })
}

func (w *statusCommand) openView(v *view) (err error) {
	if v.finder, err = w.servers.newFinder(v.set, w.limit); err != nil {
		return err
	}
	// Each set has a Locker of its own, because in a change of the map a name can be held in two.
	v.locker, err = w.servers.open([]serverSet{{urls: v.set.urls, prefix: v.set.prefix}}, w.servers.lookingOnly()...)
	return err
}

// lookingOnly returns the options of a Locker that locks nothing. Its TTL only has to be one that
// allows such a timeout.
func (s *servers) lookingOnly() []redlock.LockerOption {
	timeout := s.answerTimeout()
	ttl := 3*timeout + usualTTL
	return []redlock.LockerOption{redlock.NodeTimeout(timeout), redlock.TTL(ttl), redlock.MaxTTL(max(ttl, s.maxTTL))}
}

func (w *statusCommand) close() {
	for _, v := range w.views {
		if v.locker != nil {
			v.locker.Close()
		}
	}
}

// show shows the locks, with --watch until ctx ends, which is how that is meant to end.
func (w *statusCommand) show(ctx context.Context, out io.Writer) error {
	tick := time.NewTicker(w.interval)
	defer tick.Stop()
	for {
		st, err := w.look(ctx)
		switch {
		case w.watch && ctx.Err() != nil:
			return interrupted(ctx)
		case err != nil:
			return err
		case w.quiet:
			return cmp.Or(st.noQuorum(true), st.allHeld(w.permits))
		}
		text := st.text(len(w.names) > 0)
		if w.watch {
			text = frame(text, screenOf(out))
		}
		if err := outputEither(out, w.json, st, text); err != nil {
			return err
		}
		if !w.watch {
			return st.noQuorum(false)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return interrupted(ctx)
		}
	}
}

// interrupted returns the exit code of an end that was wanted, of which there is nothing to say.
func interrupted(ctx context.Context) error { return &exitError{code: exitCode(ctx, ctx.Err())} }

// look asks all sets for their names. Servers' errors are in the status; the error is of another
// kind.
func (w *statusCommand) look(ctx context.Context) (*status, error) {
	parts := make([]*status, len(w.views))
	err := atOnce(len(w.views), func(i int) (err error) {
		parts[i], err = w.views[i].look(ctx)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case w.views[0].set.group == "":
		return parts[0], nil
	}
	st := &status{Time: time.Now(), Locks: []lockStatus{}}
	for i, part := range parts {
		st.add(w.views[i].set.group, part)
	}
	slices.SortStableFunc(st.Locks, func(a, b lockStatus) int {
		return cmp.Or(cmp.Compare(slices.Index(w.names, a.Name), slices.Index(w.names, b.Name)), strings.Compare(a.Name, b.Name))
	})
	if len(w.names) == 0 && len(st.Locks) > w.limit {
		st.Locks, st.CutOff = st.Locks[:w.limit], true
	}
	return st, nil
}

// look asks one set.
func (v *view) look(ctx context.Context) (*status, error) {
	st := &status{Time: time.Now(), Locks: []lockStatus{}}
	names := v.names
	var permits map[string]int
	if len(names) > 0 {
		permits = v.finder.count(ctx, names)
	} else {
		names, permits, st.Nodes, st.CutOff = v.finder.find(ctx)
	}
	found := make([][]*redlock.Inspection, len(names)) // of each, its permits
	err := atOnce(len(names), func(i int) (err error) {
		found[i], err = v.locker.InspectPermits(ctx, names[i], max(permits[names[i]], v.permits))
		if found[i] == nil && len(v.names) > 0 {
			return &exitError{code: exitUsage, err: err}
		}
		return nil // what a server did not say is with what was found
	})
	if err := cmp.Or(ctx.Err(), err); err != nil {
		return nil, err
	}
	for _, permits := range found { // none where a name is too long for a lock's
		locks := make([]lockStatus, len(permits))
		for permit, in := range permits {
			st.heardOf(in)
			if locks[permit] = judge(in); len(permits) > 1 {
				locks[permit].Permit = &permit
			}
		}
		st.Locks = append(st.Locks, v.shown(locks)...)
	}
	v.addReaders(ctx, st, found)
	st.Quorum = len(st.Nodes)/2 + 1
	for _, n := range st.Nodes {
		if n.Error == "" {
			st.Answered++
		}
	}
	return st, nil
}

// shown returns those of the permits of one name that are shown: all that are asked for. Of those that
// were found the free ones are not known to exist.
func (v *view) shown(permits []lockStatus) []lockStatus {
	isFree := func(l lockStatus) bool { return l.State == stateFree }
	switch {
	case v.permits > 1:
		return append(permits[:v.permits:v.permits], slices.DeleteFunc(slices.Clone(permits[v.permits:]), isFree)...)
	case len(permits) < 2:
		return permits
	}
	held := slices.DeleteFunc(slices.Clone(permits), isFree)
	if len(held) == 0 { // they have expired in between
		permits[0].Permit = nil
		return permits[:1]
	}
	return held
}

// addReaders sets who reads the locks that are read.
func (v *view) addReaders(ctx context.Context, st *status, found [][]*redlock.Inspection) {
	read := map[string]*redlock.Inspection{}
	for _, permits := range found {
		for _, in := range permits[:min(1, len(permits))] {
			if slices.ContainsFunc(in.Nodes, func(n redlock.NodeState) bool { return n.Value == protocol.ReadersValue }) {
				read[in.Name] = in
			}
		}
	}
	if len(read) == 0 {
		return
	}
	readers := v.finder.readers(ctx, slices.Sorted(maps.Keys(read)))
	for i, l := range st.Locks {
		if in := read[l.Name]; in != nil && (l.Permit == nil || *l.Permit == 0) {
			st.Locks[i].readBy(in, readers[l.Name])
		}
	}
}

// heardOf notes which nodes have answered.
func (st *status) heardOf(in *redlock.Inspection) {
	if st.Nodes == nil {
		st.Nodes = make([]nodeStatus, len(in.Nodes))
	}
	for j, n := range in.Nodes {
		st.Nodes[j].Node = n.Node
		if n.Err != nil && !errors.Is(n.Err, protocol.ErrWrongType) {
			st.Nodes[j].Error = nodeError(n.Err)
		}
	}
}

// add adds what a group has.
func (st *status) add(group string, part *status) {
	for i := range part.Nodes {
		part.Nodes[i].Group = group
	}
	for i := range part.Locks {
		part.Locks[i].Group = group
	}
	st.Groups = append(st.Groups, groupStatus{group, part.Quorum, part.Answered, len(part.Nodes)})
	st.Answered += part.Answered
	st.Nodes = append(st.Nodes, part.Nodes...)
	st.Locks = append(st.Locks, part.Locks...)
	st.CutOff = st.CutOff || part.CutOff
}

// noQuorum returns the one line about servers that did not answer, if there was no quorum of a set.
// It has their reasons only if nothing was printed.
func (st *status) noQuorum(reasons bool) error {
	groups := st.Groups
	if groups == nil {
		groups = []groupStatus{{Quorum: st.Quorum, Answered: st.Answered, Servers: len(st.Nodes)}}
	}
	text := ""
	for _, g := range groups {
		if g.Answered >= g.Quorum {
			continue
		}
		if text != "" {
			text += "; "
		}
		if text += "no quorum"; g.Group != "" {
			text += " in group " + word(g.Group)
		}
		text += fmt.Sprintf(": %d of %d servers answered, and %d are needed", g.Answered, g.Servers, g.Quorum)
	}
	if text == "" {
		return nil
	}
	if silent := st.silent(); silent != "" && reasons {
		text += "; " + silent
	}
	return &exitError{code: exitNoQuorum, err: errors.New(text)}
}
