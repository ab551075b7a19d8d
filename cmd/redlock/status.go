package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/cmd/redlock/internal/inspect"
	"github.com/redquorum/redquorum/cmd/redlock/internal/plain"
	"github.com/redquorum/redquorum/cmd/redlock/internal/survey"
)

func newStatus() *cobra.Command {
	w := &statusCommand{}
	c := &cobra.Command{
		Use:   "status [NAME...]",
		Short: "See who holds a lock on which server, and for how long",
		Long: `Shows who holds each NAME on which server, and for how long. Without a NAME it looks for all
locks, by SCAN. It changes nothing. On servers that others use as well, every key with a string
looks like a lock: use a --prefix.

States:
  held      a quorum of servers holds one value
  free      no server that answered has the key
  partial   some have it, but no quorum: a vote is under way, or the rest of a
            lost lock expires
  split     the same, with several values
  stuck     a key has no TTL and never expires; see "redlock release --force"
  unknown   too few servers answered to tell

VOTES is how many servers hold the value. TTL is the time until a quorum of them drops it,
unless the holder renews it. VALUE is for "redlock release --value". Readers (--shared) are
counted; with a NAME each has a line. Of permits (--permits) only those that are held are shown.
GROUP is the group of servers that has the lock.

Exit codes:
  0      a quorum of servers answered; with -q: every NAME is held, or a permit of
         it, or each of its --permits
  1      with -q: otherwise
  69     no quorum of servers answered (what the others said is printed), in some
         group that was asked; with -q, also: the state is unknown
` + wrongCodes,
		Example: `  redlock status
  redlock status nightly --watch 500ms
  redlock status convert --permits 3
  redlock status --json | jq -r '.locks[] | select(.state == "stuck").name'
  redlock status -q nightly && echo "it runs"`,
		RunE: func(c *cobra.Command, args []string) error {
			w.names, w.watch = args, c.Flags().Changed("watch")
			if err := w.check(); err != nil {
				return err
			}
			return w.show(c.Context(), c.OutOrStdout())
		},
	}
	w.servers = serverFlags(c)
	w.servers.explainTimeout()
	c.ValidArgsFunction = w.servers.lockNames(math.MaxInt)
	f := c.Flags()
	f.BoolVar(&w.json, "json", false, "print one JSON document; with --watch one a line")
	f.BoolVarP(&w.quiet, "quiet", "q", false, "print nothing: the exit code reports whether every NAME is held")
	f.DurationVar(&w.interval, "watch", time.Second, "repeat every `INTERVAL`, as in --watch 500ms, until interrupted")
	f.Lookup("watch").NoOptDefVal = "1s"
	f.Lookup("watch").DefValue = "0s" // for the help: without the flag status does not watch
	f.IntVar(&w.permits, "permits", 1, "show this many permits of each NAME, also free ones")
	f.IntVar(&w.limit, "limit", 1000, "without a NAME: show at most this many `LOCKS`")
	return c
}

// withInterval joins "status --watch 1s" to --watch=1s. A flag with an optional value does not take
// the next word, because that could be the name of a lock.
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
	servers            *servers
	names              []string
	interval           time.Duration
	json, quiet, watch bool
	limit, permits     int
}

// shortestWatch keeps a mistyped interval from keeping the servers busy.
const shortestWatch = 10 * time.Millisecond

func (w *statusCommand) check() error {
	switch {
	case w.quiet && len(w.names) == 0:
		return usageErrorf("-q needs a NAME: the exit code reports whether every NAME is held")
	case w.quiet && (w.json || w.watch):
		return usageErrorf("-q excludes --json and --watch: it prints nothing")
	case w.interval < shortestWatch:
		return usageErrorf("--watch=%v: must be at least %v", w.interval, shortestWatch)
	case w.permits > 1 && len(w.names) == 0:
		return usageErrorf("--permits needs a NAME: it shows the permits of a lock")
	}
	for _, name := range w.names {
		if err := w.servers.locking.checkName(name); err != nil {
			return err
		}
		if len(w.servers.locking.prefix)+len(name) > inspect.LongestName {
			return usageErrorf("the name of a lock is too long: %d bytes with its prefix, at most %d", len(w.servers.locking.prefix)+len(name), inspect.LongestName)
		}
	}
	return nil
}

// show shows the locks. With --watch it repeats that until ctx ends, which is the regular end.
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
			text = plain.Frame(text, plain.ScreenOf(out))
		}
		if err := plain.OutputEither(out, w.json, st, text); err != nil {
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

// interrupted returns the exit code of a regular end, without a message.
func interrupted(ctx context.Context) error { return &exitError{code: exitCode(ctx, ctx.Err())} }

// look asks all sets, or only the sets of the names. Errors of servers are in the status, not in
// the returned error.
func (w *statusCommand) look(ctx context.Context) (*status, error) {
	all := w.servers.targets.all()
	namesIn := func(set serverSet) []string {
		return slices.DeleteFunc(slices.Clone(w.names), func(name string) bool {
			return w.servers.targets.setOf(w.servers.locking.prefix+name).group != set.group
		})
	}
	sets := slices.DeleteFunc(slices.Clone(all), func(set serverSet) bool { return len(w.names) > 0 && len(namesIn(set)) == 0 })
	found, err := w.servers.readAll(ctx, sets, func(set serverSet) inspect.Question {
		return inspect.Question{Names: namesIn(set), Limit: w.limit, Permits: w.permits, Members: inspect.MostReaders}
	})
	if err != nil {
		return nil, err
	}
	st := &status{Time: time.Now(), Locks: []survey.Lock{}}
	for i, h := range found {
		st.add(sets[i].group, h, w)
	}
	if st.Groups == nil {
		st.Quorum = len(st.Nodes)/2 + 1
	}
	slices.SortStableFunc(st.Locks, func(a, b survey.Lock) int {
		return cmp.Or(cmp.Compare(slices.Index(w.names, a.Name), slices.Index(w.names, b.Name)), strings.Compare(a.Name, b.Name))
	})
	if len(w.names) == 0 && len(st.Locks) > w.limit && st.Groups != nil {
		st.Locks, st.CutOff = st.Locks[:w.limit], true
	}
	return st, nil
}

func (st *status) add(group string, h *inspect.Holdings, w *statusCommand) {
	answered := len(h.Servers)
	for _, s := range h.Servers {
		n := nodeStatus{Node: s.Name, Group: group}
		if s.Err != nil {
			answered--
			n.Error = plain.Harmless(s.Err.Error())
		}
		st.Nodes = append(st.Nodes, n)
	}
	st.Answered += answered
	if group != "" {
		st.Groups = append(st.Groups, groupStatus{group, len(h.Servers)/2 + 1, answered, len(h.Servers)})
	}
	for rest := h.Locks; len(rest) > 0; {
		permits := 1
		for permits < len(rest) && rest[permits].Permit > 0 {
			permits++
		}
		for _, l := range w.shown(h, rest[:permits]) {
			l.Group = group
			st.Locks = append(st.Locks, l)
		}
		rest = rest[permits:]
	}
	st.CutOff = st.CutOff || h.CutOff
}

// shown returns the permits of one name that status shows: all with --permits, otherwise the held ones, because a
// free one is not known to exist.
func (w *statusCommand) shown(h *inspect.Holdings, permits []inspect.Lock) (shown []survey.Lock) {
	for i := range permits {
		if l := survey.LockOf(h, &permits[i]); l.State != inspect.Free || w.permits > 1 && i < w.permits {
			shown = append(shown, l)
		}
	}
	if shown == nil { // the lock has no permits, or they have expired in between
		shown = []survey.Lock{survey.LockOf(h, &permits[0])}
		shown[0].Permit = nil
	}
	return shown
}

// noQuorum returns one line about servers that did not answer, if a set has no quorum. The line has
// their errors only if nothing was printed.
func (st *status) noQuorum(reasons bool) error {
	groups := st.Groups
	if groups == nil {
		groups = []groupStatus{{Quorum: st.Quorum, Answered: st.Answered, Servers: len(st.Nodes)}}
	}
	var lacks []string
	for _, g := range groups {
		in := ""
		if g.Group != "" {
			in = " in group " + plain.Word(g.Group)
		}
		if g.Answered < g.Quorum {
			lacks = append(lacks, fmt.Sprintf("no quorum%s: %d of %d servers answered, and %d are needed", in, g.Answered, g.Servers, g.Quorum))
		}
	}
	if lacks == nil {
		return nil
	}
	if silent := st.silent(); silent != "" && reasons {
		lacks = append(lacks, silent)
	}
	return &exitError{code: exitNoQuorum, err: errors.New(strings.Join(lacks, "; "))}
}
