package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/protocol"
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
value that redlock made, the first 12 digits. Where readers hold a lock (redlock
run --shared) it is (readers).

Exit codes:
  0    a quorum of servers answered; with -q: every NAME is held
  1    with -q: a NAME is not held
  69   no quorum of servers answered (what the others said is printed); with -q,
       also: it cannot be told
  64   the command line is wrong
  78   the configuration is wrong`,
		Example: `  redlock status
  redlock status nightly --watch=500ms
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
	f := c.Flags()
	f.BoolVar(&w.json, "json", false, "print one JSON document; with --watch one a line")
	f.BoolVarP(&w.quiet, "quiet", "q", false, "print nothing; the exit code tells whether every NAME is held")
	f.DurationVar(&w.interval, "watch", time.Second, "show it anew every `INTERVAL`, as in --watch=500ms, until interrupted")
	f.Lookup("watch").NoOptDefVal = "1s"
	f.Lookup("watch").DefValue = "0s" // for the help: without it there is none
	f.IntVar(&w.permits, "permits", 1, "show each of so many permits of every NAME, as in redlock run --permits")
	f.IntVar(&w.limit, "limit", 1000, "without a NAME: show at most so many `LOCKS`")
	return c
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

	finder *finder // without names
	locker *redlock.Locker
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
	case w.permits < 1 || w.permits > mostPermits:
		return usageErrorf("--permits %d: must be between 1 and %d", w.permits, mostPermits)
	case w.permits > 1 && len(w.names) == 0:
		return usageErrorf("--permits shows the permits of a NAME; give one")
	case w.limit < 1:
		return usageErrorf("--limit %d: at least 1", w.limit)
	}
	for _, name := range w.names {
		if err := w.servers.checkName(name); err != nil {
			return err
		}
	}
	return nil
}

func (w *statusCommand) run(c *cobra.Command) error {
	if err := w.servers.settle(); err != nil {
		return err
	}
	if err := w.check(); err != nil {
		return err
	}
	ctx := c.Context()
	urls, stop, err := w.servers.start(ctx)
	if err != nil {
		return err
	}
	defer stop()
	if err := w.open(urls, w.servers.logger(c)); err != nil {
		return err
	}
	defer w.locker.Close()
	if !w.watch {
		return w.once(ctx, c.OutOrStdout())
	}
	return w.again(ctx, c.OutOrStdout())
}

// open makes the command ready to look. The caller closes its locker.
func (w *statusCommand) open(urls []string, log *slog.Logger) (err error) {
	if len(w.names) == 0 {
		if w.finder, err = w.servers.newFinder(urls, log, w.limit); err != nil {
			return err
		}
	}
	timeout := w.servers.answerTimeout()
	// Nothing is locked. The TTL only has to be one that allows such a timeout.
	ttl := 3*timeout + usualTTL
	w.locker, err = w.servers.open(urls, log, redlock.NodeTimeout(timeout), redlock.TTL(ttl), redlock.MaxTTL(max(ttl, w.servers.maxTTL)))
	return err
}

// once shows the locks once.
func (w *statusCommand) once(ctx context.Context, out io.Writer) error {
	st, err := w.look(ctx)
	if err != nil {
		return err
	}
	switch {
	case w.quiet:
	case w.json:
		err = json.NewEncoder(out).Encode(st)
	default:
		_, err = io.WriteString(out, st.text(len(w.names) > 0))
	}
	if err != nil {
		return fmt.Errorf("output: %w", err)
	}
	if st.Answered < st.Quorum {
		return noQuorum(st, w.quiet)
	}
	if w.quiet {
		return st.allHeld()
	}
	return nil
}

// again shows them until ctx ends, which is how it is meant to end.
func (w *statusCommand) again(ctx context.Context, out io.Writer) error {
	show := newScreen(out)
	tick := time.NewTicker(w.interval)
	defer tick.Stop()
	for {
		st, err := w.look(ctx)
		switch {
		case ctx.Err() != nil:
			return interrupted(ctx)
		case err != nil:
			return err
		case w.json:
			err = json.NewEncoder(out).Encode(st)
		default:
			err = show.show(st.text(len(w.names) > 0))
		}
		if err != nil {
			return fmt.Errorf("output: %w", err)
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

// atATime is how many names are asked for at the same time.
const atATime = 64

// look asks for all names. Servers' errors are in the status; the error is of another kind.
func (w *statusCommand) look(ctx context.Context) (*status, error) {
	st := &status{Time: time.Now(), Locks: []lockStatus{}}
	names := w.names
	if w.finder != nil {
		names, st.Nodes, st.CutOff = w.finder.find(ctx)
	}
	found := make([][]*redlock.Inspection, len(names)) // of each, its permits
	errs := make([]error, len(names))
	var wg sync.WaitGroup
	slots := make(chan struct{}, atATime)
	for i, name := range names {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			found[i], errs[i] = w.locker.InspectPermits(ctx, name, w.permitsOf(name))
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	for i, permits := range found {
		switch {
		case permits == nil && w.finder != nil: // too long for a lock's name
			continue
		case permits == nil:
			return nil, &exitError{code: exitUsage, err: errs[i]}
		}
		for permit, in := range permits {
			st.heardOf(in)
			l := judge(in)
			if len(permits) > 1 {
				if l.Permit = &permit; w.finder != nil && l.State == stateFree {
					continue
				}
			}
			st.Locks = append(st.Locks, l)
		}
	}
	st.Quorum = len(st.Nodes)/2 + 1
	for _, n := range st.Nodes {
		if n.Error == "" {
			st.Answered++
		}
	}
	return st, nil
}

// permitsOf returns how many permits of a name are looked at.
func (w *statusCommand) permitsOf(name string) int {
	if w.finder != nil {
		return w.finder.permits[name]
	}
	return max(1, w.permits)
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

// noQuorum returns the one line about servers that did not answer. It has their reasons only if
// nothing was printed.
func noQuorum(st *status, reasons bool) error {
	text := fmt.Sprintf("no quorum: %d of %d servers answered, and %d are needed", st.Answered, len(st.Nodes), st.Quorum)
	for _, n := range st.Nodes {
		if n.Error != "" && reasons {
			text += "; " + n.Node + ": " + n.Error
		}
	}
	return &exitError{code: exitNoQuorum, err: errors.New(text)}
}
