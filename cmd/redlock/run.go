package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/internal/job"
	"github.com/redquorum/redquorum/once"
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

With --once-per 5m the command runs at most once in five minutes, on all machines
together, though their clocks differ and it takes less than they differ by: the
tick is marked on the servers before the command runs. Where it is marked already
the exit code is that for a lock that is held by another.

What the command leaves running in its process group when it ends is ended, too.
A lock that nobody releases, as that of a redlock which was killed, is free one TTL
later.

The command finds in its environment
  REDLOCK_NAME         the name
                       (with --and all of them, sorted, each on a line)
  REDLOCK_FENCE        the fencing token, with --fenced
  REDLOCK_PERMIT       which permit it has, from 0 on, with --permits
  REDLOCK_UNTIL        until when the lock is held unless it is renewed, as it is
                       every third of the TTL: RFC 3339, as of the start

`

// A runCommand is one run of "redlock run": its flags, and where it reports.
type runCommand struct {
	*servers
	ttl       time.Duration
	wait      time.Duration
	noWait    bool
	minHold   time.Duration
	oncePer   time.Duration
	retries   int
	interval  time.Duration
	fenced    bool
	fair      bool
	owner     string
	and       []string
	permits   int
	shared    bool
	killAfter time.Duration
	heldCode  int

	log  *slog.Logger
	warn func(text string)
}

func newRun() *cobra.Command {
	c := &cobra.Command{
		Use:   "run [flags] NAME -- COMMAND [ARGUMENT...]",
		Short: "Run a command while holding a lock",
		Long:  runHelp + exitCodesHelp,
		Example: `  # waits for the lock
  redlock run nightly -- /usr/local/bin/report
  # in the crontabs of several machines: one of them does it, the others exit with 75
  redlock run --no-wait --once-per 1h nightly -- /usr/local/bin/report
  redlock run --wait 30s --fenced migrate -- sh -c 'migrate --fence "$REDLOCK_FENCE"'
  # holds both names, whoever wants them in whatever order
  redlock run --and account:7 account:3 -- transfer 3 7
  # at most three of these at a time, on all machines together
  redlock run --permits 3 convert -- /usr/local/bin/convert`,
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
	r := &runCommand{servers: serverFlags(c)}
	f := c.Flags()
	f.DurationVar(&r.ttl, "ttl", 10*time.Second, "how long the lock outlives a redlock that vanished; it is renewed every third of it; at least 500ms")
	f.DurationVar(&r.wait, "wait", 0, "how long to wait for the lock (default: for ever)")
	f.BoolVar(&r.noWait, "no-wait", false, "do not wait for a holder")
	f.DurationVar(&r.minHold, "min-hold", 0, "hold the lock for at least so long, for short jobs that several machines start when their clocks say so")
	f.DurationVar(&r.oncePer, "once-per", 0, "run the command at most once in each tick of this `LENGTH`, on all machines together; a tick is a multiple of it, and the nearest counts; at least 1s")
	f.IntVar(&r.retries, "retries", 0, "try so many times more, be it that the lock is held or that servers do not answer (default: wait for a holder, and report an outage at once)")
	f.DurationVar(&r.interval, "retry-interval", 0, "try at this interval (default: when it makes sense)")
	f.BoolVar(&r.fenced, "fenced", false, "give the command a fencing token")
	f.BoolVar(&r.fair, "fair", false, "wait in order of arrival")
	f.StringVar(&r.owner, "owner", "", "`LABEL` of the lock, which tells others who holds it; at most 128 bytes (default: USER@HOST:PID)")
	f.StringArrayVar(&r.and, "and", nil, "hold `NAME` as well, all names or none; may be given several times, in any order")
	f.BoolVar(&r.shared, "shared", false, "be a reader: run beside others that are, and beside no command without --shared")
	f.IntVar(&r.permits, "permits", 1, "let so many run at the same time, each with a permit; the same number for all commands of a NAME")
	f.DurationVar(&r.killAfter, "kill-after", 0, "how long after SIGTERM a command is killed whose lock is lost (default: TTL/4)")
	f.IntVarP(&r.heldCode, "conflict-exit-code", "E", exitHeld, "exit `CODE` if the lock is held by another")
	share(f, "ttl", "ttl")
	share(f, "owner", "owner")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := r.settle(); err != nil {
			return err
		}
		if err := r.check(); err != nil {
			return err
		}
		r.log = r.logger(c)
		r.warn = func(text string) { fmt.Fprintln(c.ErrOrStderr(), "redlock: "+oneLine(text)) }
		return r.run(c.Context(), append([]string{args[0]}, r.and...), args[1:])
	}
	return c
}

// check completes the flags and refuses what contradicts itself.
func (r *runCommand) check() error {
	set := r.flags.Changed
	switch {
	case r.ttl < 500*time.Millisecond:
		return usageErrorf("--ttl %v: at least 500ms, since ending a command in time takes time", r.ttl)
	case r.noWait && (set("wait") || set("retries") || set("retry-interval")):
		return usageErrorf("--no-wait excludes --wait, --retries and --retry-interval")
	case set("wait") && r.wait <= 0:
		return usageErrorf("--wait %v: must be above zero; --no-wait tries once", r.wait)
	case r.shared && (r.fenced || r.permits > 1 || len(r.and) > 0):
		return usageErrorf("--shared excludes --fenced, --permits and --and: a reader locks one name, and has no token")
	case r.permits > 1 && len(r.and) > 0:
		return usageErrorf("--permits excludes --and: permits are of one name")
	case r.fenced && len(r.and) > 0:
		return usageErrorf("--fenced excludes --and: a fencing token is of one name")
	case r.minHold < 0:
		return usageErrorf("--min-hold %v: must not be negative", r.minHold)
	case set("once-per") && (r.oncePer < time.Second || r.oncePer > 365*24*time.Hour):
		return usageErrorf("--once-per %v: must be between 1s and a year", r.oncePer)
	case set("retries") && r.retries < 0:
		return usageErrorf("--retries %d: must not be negative", r.retries)
	case r.permits < 1 || r.permits > mostPermits:
		return usageErrorf("--permits %d: must be between 1 and %d", r.permits, mostPermits)
	case r.fair && r.permits > 1:
		return usageErrorf("--fair orders those who wait for one lock and excludes --permits; leave one out")
	case r.heldCode < 0 || r.heldCode > 255:
		return usageErrorf("--conflict-exit-code %d: must be between 0 and 255", r.heldCode)
	}
	if r.owner == "" && !set("owner") {
		r.owner = thisProcess()
	}
	if !set("kill-after") {
		r.killAfter = r.ttl / 4
	}
	if limit := r.ttl/2 - job.Margin(r.ttl); r.killAfter < 0 || r.killAfter > limit {
		return usageErrorf("--kill-after %v: must be between 0 and %v with a TTL of %v, or a single lost message would end the command", r.killAfter, limit, r.ttl)
	}
	return nil
}

// run takes the lock, runs the command and releases the lock. It calls r.warn for what does not
// change the exit code.
func (r *runCommand) run(ctx context.Context, names, argv []string) error {
	path, err := findCommand(argv[0])
	if err != nil {
		return err
	}
	j, err := job.New(job.Command{Path: path, Argv: argv, KillAfter: r.killAfter, Margin: job.Margin(r.ttl)})
	if err != nil {
		return err
	}
	defer j.Close()
	urls, stop, err := r.start(ctx)
	if err != nil {
		return err
	}
	defer stop()
	tries := &tries{}
	locker, err := r.open(urls, r.log, redlock.TTL(r.ttl), redlock.Owner(r.owner), redlock.Observe(tries))
	if err != nil {
		return err
	}
	defer locker.Close()

	lock, err := r.acquire(ctx, locker, names)
	if err != nil {
		return r.refused(ctx, err, tries)
	}
	if err := r.claim(ctx, lock); err != nil {
		lock.Release(context.WithoutCancel(ctx))
		return err
	}
	return r.hold(ctx, lock, j)
}

// claim marks the tick of --once-per, if there is one. Its error says why the command must not run.
func (r *runCommand) claim(ctx context.Context, lock *redlock.Lock) error {
	if r.oncePer == 0 {
		return nil
	}
	tick := once.Tick(time.Now(), r.oncePer)
	first, err := once.Claim(ctx, lock, tick, r.oncePer)
	if err == nil && !first {
		text := fmt.Sprintf("%s is done for its tick, %s", word(lock.Name()), tick.Local().Format(time.DateTime))
		return &exitError{code: r.heldCode, err: errors.New(text)}
	}
	return err
}

// hold runs the job while the lock is held, and releases the lock.
func (r *runCommand) hold(ctx context.Context, lock *redlock.Lock, j *job.Job) error {
	began := time.Now()
	end, failed := j.Run(lock, environment(lock, r.fenced, r.permits > 1))
	if !end.Swept {
		r.warn("processes that the command has left behind cannot be ended; the lock is released")
	}
	lingered := failed == nil && end.Lost == nil && time.Since(began) < r.minHold
	if lingered && !j.Linger(lock, r.minHold-time.Since(began)) {
		r.warn("the lock was lost, after the command had ended and before --min-hold was over")
	}
	// Not bounded by ctx, which a signal that was meant for the command has ended.
	switch released := lock.Release(context.WithoutCancel(ctx)); {
	case failed != nil:
		return notStarted(failed)
	case end.Lost != nil:
		return &exitError{code: exitLost, err: fmt.Errorf("%w; the command was ended", end.Lost)}
	case errors.Is(released, redlock.ErrLost) && !lingered:
		return &exitError{code: exitLost, err: fmt.Errorf("%w; the command had not ended by then", released)}
	case released != nil && !errors.Is(released, redlock.ErrLost):
		r.warn(fmt.Sprintf("%v; the lock expires within %v", released, r.ttl))
	}
	if end.Code != 0 {
		return &exitError{code: end.Code}
	}
	return nil
}

// notStarted returns the error of a job that did not run its command, with its exit code.
func notStarted(err error) error {
	var start *job.StartError
	var by job.SignalError
	switch {
	case errors.As(err, &start):
		return cannotRun(start.Name, start.Err)
	case errors.As(err, &by):
		return &exitError{code: job.SignalCode(by.Signal), err: by}
	}
	return err
}

// thisProcess returns the label of locks that are given no other. What cannot be shown of it is
// replaced.
func thisProcess() string {
	name := cmp.Or(os.Getenv("USER"), strconv.Itoa(os.Getuid()))
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, _ := os.Hostname()
	shown := func(s string) string {
		const most = 48 // bytes
		s = strings.Map(func(r rune) rune {
			if !unicode.IsPrint(r) {
				return '?'
			}
			return r
		}, s)
		return strings.ToValidUTF8(s[:min(len(s), most)], "")
	}
	return fmt.Sprintf("%s@%s:%d", shown(name), shown(host), os.Getpid())
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

// environment returns the command's environment: ours, with its own lock's name, end and token.
// Those of a lock under which we run ourselves are removed, because the command must not write
// with the token of another lock.
func environment(lock *redlock.Lock, fenced, permits bool) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return name == "REDLOCK_NAME" || name == "REDLOCK_FENCE" || name == "REDLOCK_UNTIL" || name == "REDLOCK_PERMIT"
	})
	env = append(env,
		"REDLOCK_NAME="+strings.Join(lock.Names(), "\n"),
		"REDLOCK_UNTIL="+lock.Until().UTC().Format(time.RFC3339Nano))
	if fenced {
		env = append(env, "REDLOCK_FENCE="+strconv.FormatInt(lock.Fence(), 10))
	}
	if permits {
		env = append(env, "REDLOCK_PERMIT="+strconv.Itoa(lock.Permit()))
	}
	return env
}

// acquire takes the lock as the flags say.
func (r *runCommand) acquire(ctx context.Context, l *redlock.Locker, names []string) (*redlock.Lock, error) {
	opts := []redlock.Option{redlock.Permits(r.permits)}
	if r.shared {
		opts = append(opts, redlock.Shared())
	}
	if r.fenced {
		opts = append(opts, redlock.Fenced())
	}
	if r.fair {
		opts = append(opts, redlock.Fair())
	}
	if r.noWait {
		return r.tryAcquire(ctx, l, names, opts)
	}
	if r.flags.Changed("retries") {
		opts = append(opts, redlock.Retries(r.retries))
	}
	if r.flags.Changed("retry-interval") {
		opts = append(opts, redlock.RetryInterval(r.interval))
	}
	if r.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.wait)
		defer cancel()
	}
	if len(names) > 1 {
		return l.AcquireAll(ctx, names, opts...)
	}
	return l.Acquire(ctx, names[0], opts...)
}

// tryAcquire does not wait for a holder. It tries again if there is none, because where several
// processes try at the same moment, as cron has them do, each may get some votes and none enough,
// and one of them must get the lock.
func (r *runCommand) tryAcquire(ctx context.Context, l *redlock.Locker, names []string, opts []redlock.Option) (*redlock.Lock, error) {
	const most = 10
	ask := func() (*redlock.Lock, error) { return l.TryAcquire(ctx, names[0], opts...) }
	if len(names) > 1 {
		ask = func() (*redlock.Lock, error) { return l.TryAcquireAll(ctx, names, opts...) }
	}
	for try := 1; ; try++ {
		lock, err := ask()
		if try == most || !errors.Is(err, redlock.ErrHeld) {
			return lock, err
		}
		for _, name := range names {
			if all, e := l.InspectPermits(ctx, name, r.permits); e != nil || allHeld(all) {
				return nil, err
			}
		}
		select {
		case <-time.After(rand.N(time.Duration(try) * 20 * time.Millisecond)):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// allHeld reports whether each of the permits has a holder.
func allHeld(permits []*redlock.Inspection) bool {
	return !slices.ContainsFunc(permits, func(in *redlock.Inspection) bool {
		_, _, held := in.Holder()
		return !held
	})
}

// refused gives the error of an acquisition its exit code. If it is the end of --wait, the
// outcome of the last try decides.
func (r *runCommand) refused(ctx context.Context, err error, t *tries) error {
	held := errors.Is(err, redlock.ErrHeld)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		kind := redlock.ErrNoQuorum
		if held = errors.Is(t.last(), redlock.ErrHeld); held {
			kind = redlock.ErrHeld
		}
		err = fmt.Errorf("waited %v: %w: %w", r.wait, kind, err)
	}
	var vote *redlock.QuorumError
	switch {
	case ctx.Err() != nil:
		return err
	case held:
		return &exitError{code: r.heldCode, err: err}
	case errors.As(err, &vote):
		return err
	}
	return &exitError{code: exitUsage, err: err} // a name or an option that is refused before a server is asked
}

// tries keeps the error of the last try to acquire.
type tries struct {
	mu  sync.Mutex
	err error
}

// Observe implements redlock.Observer.
func (t *tries) Observe(e redlock.Event) {
	if e.Kind != redlock.EventAttempt || errors.Is(e.Err, context.DeadlineExceeded) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = e.Err
}

func (t *tries) last() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}
