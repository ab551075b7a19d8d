package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/redlock"
)

const runHelp = `Runs COMMAND while holding the lock NAME, and releases it when the command has
ended, in whatever way. No shell is put in between. The command has our standard
input and output, and a process group of its own; signals that we get go there.

A lock can be lost: too few servers may answer for too long, or somebody may have
released it by force. The command then gets SIGTERM, and --kill-after later
SIGKILL, so early that it is gone before anybody else can have the lock. If redlock
itself is stopped the command is killed in time, too, and if it is killed, at once:
a second process of it watches over the command. Out of reach are processes that
the command starts in other process groups (setsid), or as another user (sudo); for
what must never be written by two, use --fenced and have the resource refuse a
lower $REDLOCK_FENCE than it has seen.

What the command leaves running in its process group when it ends is ended, too.
A lock that nobody releases, as that of a redlock which was killed, is free one TTL
later.

The command finds in its environment
  REDLOCK_NAME         the name
  REDLOCK_FENCE        the fencing token, with --fenced
  REDLOCK_UNTIL        until when the lock is held unless it is renewed, as it is
                       every third of the TTL: RFC 3339, as of the start

`

// runFlags are those of "redlock run".
type runFlags struct {
	*servers
	ttl       time.Duration
	wait      time.Duration
	noWait    bool
	minHold   time.Duration
	retries   int
	interval  time.Duration
	fenced    bool
	fair      bool
	killAfter time.Duration
	heldCode  int
}

func newRun() *cobra.Command {
	c := &cobra.Command{
		Use:   "run [flags] NAME -- COMMAND [ARGUMENT...]",
		Short: "Run a command while holding a lock",
		Long:  runHelp + exitCodesHelp,
		Example: `  # waits for the lock
  redlock run nightly -- /usr/local/bin/report
  # in the crontabs of several machines: one of them does it, the others exit with 75
  redlock run --no-wait --min-hold 1m nightly -- /usr/local/bin/report
  redlock run --wait 30s --fenced migrate -- sh -c 'migrate --fence "$REDLOCK_FENCE"'`,
		Args: func(c *cobra.Command, args []string) error {
			switch dash := c.ArgsLenAtDash(); {
			case dash < 0 || dash == len(args):
				return usageErrorf("no command is given; write: redlock run NAME -- COMMAND")
			case dash != 1:
				return usageErrorf("one name must be given before the --, not %d", dash)
			}
			return nil
		},
	}
	r := &runFlags{servers: serverFlags(c)}
	f := c.Flags()
	f.DurationVar(&r.ttl, "ttl", 10*time.Second, "how long the lock outlives a redlock that vanished; it is renewed every third of it; at least 500ms")
	f.DurationVar(&r.wait, "wait", 0, "how long to wait for the lock (default: for ever)")
	f.BoolVar(&r.noWait, "no-wait", false, "do not wait for a holder")
	f.DurationVar(&r.minHold, "min-hold", 0, "hold the lock for at least so long, for short jobs that several machines start when their clocks say so")
	f.IntVar(&r.retries, "retries", 0, "try so many times more, be it that the lock is held or that servers do not answer (default: wait for a holder, and report an outage at once)")
	f.DurationVar(&r.interval, "retry-interval", 0, "try at this interval (default: when it makes sense)")
	f.BoolVar(&r.fenced, "fenced", false, "give the command a fencing token")
	f.BoolVar(&r.fair, "fair", false, "wait in order of arrival")
	f.DurationVar(&r.killAfter, "kill-after", 0, "how long after SIGTERM a command is killed whose lock is lost (default: TTL/4)")
	f.IntVarP(&r.heldCode, "conflict-exit-code", "E", exitHeld, "exit `CODE` if the lock is held by another")
	share(f, "ttl", "ttl")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := r.settle(); err != nil {
			return err
		}
		if err := r.check(); err != nil {
			return err
		}
		warn := func(text string) { fmt.Fprintln(c.ErrOrStderr(), "redlock: "+oneLine(text)) }
		return r.run(c.Context(), args[0], args[1:], r.logger(c), warn)
	}
	return c
}

// check completes the flags and refuses what contradicts itself.
func (r *runFlags) check() error {
	set := r.flags.Changed
	switch {
	case r.ttl < 500*time.Millisecond:
		return usageErrorf("--ttl %v: at least 500ms, since ending a command in time takes time", r.ttl)
	case r.noWait && (set("wait") || set("retries") || set("retry-interval")):
		return usageErrorf("--no-wait excludes --wait, --retries and --retry-interval")
	case set("wait") && r.wait <= 0:
		return usageErrorf("--wait %v: must be above zero; --no-wait tries once", r.wait)
	case r.minHold < 0:
		return usageErrorf("--min-hold %v: must not be negative", r.minHold)
	case set("retries") && r.retries < 0:
		return usageErrorf("--retries %d: must not be negative", r.retries)
	case r.heldCode < 0 || r.heldCode > 255:
		return usageErrorf("--conflict-exit-code %d: must be between 0 and 255", r.heldCode)
	}
	if !set("kill-after") {
		r.killAfter = r.ttl / 4
	}
	if limit := r.ttl/2 - margin(r.ttl); r.killAfter < 0 || r.killAfter > limit {
		return usageErrorf("--kill-after %v: must be between 0 and %v with a TTL of %v, or a single lost message would end the command", r.killAfter, limit, r.ttl)
	}
	return nil
}

// margin is how long before the end of the validity the last process must have been
// sent SIGKILL: dying takes a moment, too, on a machine that is busy.
func margin(ttl time.Duration) time.Duration { return max(ttl/10, 100*time.Millisecond) }

// run does it all; warn is for what does not change the exit code.
func (r *runFlags) run(ctx context.Context, name string, argv []string, log *slog.Logger, warn func(string)) error {
	path, err := findCommand(argv[0])
	if err != nil {
		return err
	}
	j, err := newJob(path, argv)
	if err != nil {
		return err
	}
	defer j.close()
	urls, stop, err := r.start(ctx)
	if err != nil {
		return err
	}
	defer stop()
	tries := &tries{}
	locker, err := r.open(urls, log, redlock.TTL(r.ttl), redlock.Observe(tries))
	if err != nil {
		return err
	}
	defer locker.Close()

	lock, err := r.acquire(ctx, locker, name)
	if err != nil {
		return r.refused(ctx, err, tries)
	}
	began := time.Now()
	end, lost, failed := j.run(lock, r.killAfter, margin(r.ttl), environment(lock, r.fenced))
	if !end.swept {
		warn("processes that the command has left behind cannot be ended; the lock is released")
	}
	lingered := failed == nil && lost == nil && time.Since(began) < r.minHold
	if lingered && !j.linger(lock, r.minHold-time.Since(began)) {
		warn("the lock was lost, after the command had ended and before --min-hold was over")
	}
	// Not bounded by ctx, which a signal that was meant for the command has ended.
	switch released := lock.Release(context.WithoutCancel(ctx)); {
	case failed != nil:
		return failed
	case lost != nil:
		return &exitError{code: exitLost, err: fmt.Errorf("%w; the command was ended", lost)}
	case errors.Is(released, redlock.ErrLost) && !lingered:
		return &exitError{code: exitLost, err: fmt.Errorf("%w; the command had not ended by then", released)}
	case released != nil && !errors.Is(released, redlock.ErrLost):
		warn(fmt.Sprintf("%v; the lock expires within %v", released, r.ttl))
	}
	if end.code != 0 {
		return &exitError{code: end.code}
	}
	return nil
}

// findCommand looks for the command as a shell would, before anything is locked.
func findCommand(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", cannotRun(name, err)
	}
	return path, nil
}

func cannotRun(name string, err error) error {
	code := exitCannotRun
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		code = exitNotFound
	}
	var reason *exec.Error
	if errors.As(err, &reason) {
		err = reason.Err
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return &exitError{code: code, err: fmt.Errorf("%s: %w", name, err)}
}
