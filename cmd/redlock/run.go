package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/cmd/redlock/internal/job"
	"github.com/redquorum/redquorum/cmd/redlock/internal/plain"
	"github.com/redquorum/redquorum/internal/slots"
	"github.com/redquorum/redquorum/once"
	"github.com/redquorum/redquorum/redlock"
)

const runHelp = `Waits for the lock NAME, runs COMMAND while holding it, and releases it when the command has
ended. No shell is put in between. The command has redlock's standard input and output, and gets
the signals that redlock gets.

If the lock is lost, the command gets SIGTERM and, after --kill-after, SIGKILL, before another
client can have the lock. A lock is lost when too few servers answer for too long, or when
an operator releases it by force. A second process watches over the command: if redlock is stopped,
it kills the command in time; if redlock is killed, it kills the command at once, and the lock
expires after one TTL.

Processes that the command leaves running are ended with it, except those in other process groups
(setsid) or of another user (sudo). If the command itself is of another user, redlock says so when
the lock is lost, because it cannot end the command. If two writers would do harm, use
--fenced, and make the resource refuse a lower $REDLOCK_FENCE than it has seen. On Windows no
process can escape the job object, and Ctrl-Break replaces SIGTERM.

For cron, --once-per 5m runs the command once in each slot of 5m, on all machines together; see
"redlock help cron".

The command has the environment of redlock, also $REDLOCK_NODES with its passwords. It finds there
  REDLOCK_NAME         the name
                       (with --and all of them, sorted, each on a line)
  REDLOCK_FENCE        the fencing token, with --fenced
  REDLOCK_PERMIT       its permit, from 0 on, with --permits
                       (with --weight all of them, each on a line)
  REDLOCK_UNTIL        when the lock would end without renewals, which come every
                       third of the TTL (RFC 3339)

`

// A runCommand is one run of "redlock run".
type runCommand struct {
	*acquisition
	minHold time.Duration
	oncePer tickLength
	zone    string // of a day
	apart   time.Duration
	tickAt  tickTime
	ticks   *once.Job // from --once-per or --at-least-apart; nil without
	started time.Time // start of the command, or the time of --tick
}

// A tickLength is the value of --once-per: a time, or a day of the calendar.
type tickLength struct {
	every time.Duration
	isDay bool
}

func (l *tickLength) Set(text string) (err error) {
	if l.isDay = text == "day"; l.isDay {
		return nil
	}
	l.every, err = time.ParseDuration(text)
	return err
}

func (l *tickLength) String() string {
	if l.isDay {
		return "day"
	}
	return slots.Text(l.every)
}

// Type returns the name of the type, for which wanted has a description.
func (l *tickLength) Type() string { return "tick" }

// A tickTime is the value of --tick.
type tickTime struct{ time.Time }

func (t *tickTime) Set(text string) (err error) {
	if seconds, ok := strings.CutPrefix(text, "@"); ok {
		n, err := strconv.ParseInt(seconds, 10, 64)
		t.Time = time.Unix(n, 0)
		return err
	}
	t.Time, err = time.Parse(time.RFC3339, text)
	return err
}

func (t *tickTime) String() string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339)
}

// Type returns the name of the type, for which wanted has a description.
func (t *tickTime) Type() string { return "time" }

func newRun() *cobra.Command {
	c := &cobra.Command{
		Use:   "run [flags] NAME -- COMMAND [ARGUMENT...]",
		Short: "Run a command while holding a lock",

		SuggestFor: []string{"lock", "exec", "with"},
		Long:       runHelp + exitCodesHelp,
		Example: `  redlock run nightly -- /usr/local/bin/report
  # in the crontabs of several machines: one of them does it, the others exit with 75
  redlock run --no-wait --once-per 5m report -- /usr/local/bin/report
  redlock run --no-wait --once-per day --time-zone Europe/Berlin nightly -- /usr/local/bin/report
  # when a program starts, but not more often than once an hour
  redlock run --no-wait --at-least-apart 1h cleanup -- /usr/local/bin/cleanup
  redlock run --wait 30s --fenced migrate -- sh -c 'migrate --fence "$REDLOCK_FENCE"'
  # holds both names; other clients may list them in any order
  redlock run --and account:7 account:3 -- transfer 3 7
  # at most three of these at a time, on all machines together
  redlock run --permits 3 convert -- /usr/local/bin/convert
  redlock run --permits 8 --weight 2 cores -- make -j 2`,
		ValidArgsFunction: commandOf,
		Args: func(c *cobra.Command, args []string) error {
			dash := c.ArgsLenAtDash()
			if dash < 0 && len(args) > 1 {
				return withoutDashes(args, c.Flags().NFlag() > 0)
			}
			_, _, err := nameAndCommand(args, dash)
			if advice := withEquals(c, args[:max(dash, 0)]); err != nil && advice != "" {
				return usageErrorf("%w%s", err, advice)
			}
			return err
		},
	}
	r := &runCommand{acquisition: acquisitionFlags(c, "kill-after", "how long the command has to end after SIGTERM, when its lock is lost (default: TTL/4)")}
	f := c.Flags()
	f.DurationVar(&r.minHold, "min-hold", 0, "hold the lock for at least this long: for short jobs that several machines start by their clocks")
	f.Var(&r.oncePer, "once-per", "run the command once in each slot of this `LENGTH` by the clock, on all machines together: day, or a time that divides a day; the slot nearest to the start counts")
	f.Var(&r.tickAt, "tick", "the scheduled `TIME` of this start, which counts for --once-per in place of the start: RFC 3339, or @ and seconds since 1970")
	f.DurationVar(&r.apart, "at-least-apart", 0, "run the command unless its last start, on any machine, was more recent than this")
	f.StringVar(&r.zone, "time-zone", "", "the time `ZONE` of --once-per day, as in the crontab, such as Europe/Berlin")
	c.RunE = func(c *cobra.Command, args []string) error {
		r.started = time.Now()
		name, argv, err := nameAndCommand(args, c.ArgsLenAtDash())
		if err != nil {
			return err
		}
		names := append([]string{name}, r.and...)
		if err := r.check(names); err != nil {
			return err
		}
		r.forTick = r.ticks != nil
		return r.run(c.Context(), names, argv)
	}
	return c
}

// check completes the flags, and refuses conflicting flags.
func (r *runCommand) check(names []string) error {
	if err := r.acquisition.check(names); err != nil {
		return err
	}
	set := r.flags.Changed
	isOncePer := set("once-per")
	switch hasZone := set("time-zone"); {
	case isOncePer && set("at-least-apart"):
		return usageErrorf("--once-per excludes --at-least-apart: use --once-per for jobs with a schedule, --at-least-apart for others")
	case set("tick") && !isOncePer:
		return usageErrorf("--tick needs --once-per: it names the slot of this start")
	case (isOncePer || set("at-least-apart")) && (len(r.and) > 0 || r.shared || r.permits > 1):
		return usageErrorf("--once-per and --at-least-apart exclude --and, --shared and --permits: they mark one name, for one command")
	case hasZone && !r.oncePer.isDay:
		return usageErrorf("--time-zone needs --once-per day: other slots are the same in all zones")
	case r.oncePer.isDay && !hasZone:
		return usageErrorf("--once-per day needs --time-zone, because a day begins at another time in each zone: pass the zone of the crontab, such as Europe/Berlin, the same on all machines")
	case r.oncePer.isDay:
		zone, err := time.LoadLocation(r.zone)
		if err != nil || r.zone == "" || zone == time.Local || r.zone == "localtime" {
			return usageErrorf("--time-zone: %q must be a name of the time zone database, such as Europe/Berlin, America/New_York or UTC", r.zone)
		}
		r.ticks = &once.Job{Day: zone}
	case isOncePer:
		if why := slots.Wrong(r.oncePer.every, slots.Text); why != "" {
			return wrong(r.flags, "once-per", "%s", why)
		}
		r.ticks = &once.Job{Every: r.oncePer.every}
	case set("at-least-apart"):
		r.ticks = &once.Job{Apart: r.apart}
	}
	if !set("tick") {
		return nil
	}
	slot := cmp.Or(r.oncePer.every, 24*time.Hour)
	ahead := r.tickAt.Sub(r.started)
	if r.tickAt.Unix() <= 0 || ahead > slot {
		return wrong(r.flags, "tick", "must be later than 1970, and at most one slot (%s) from now: the mark of a later tick would block the command until then", slots.Text(slot))
	}
	r.started = r.started.Add(ahead) // keeps the monotonic reading, so later changes of the wall clock do not matter
	return nil
}

// nameAndCommand splits the arguments; dash is the number of arguments before the first --. A name that
// begins with - looks like a flag, so the user puts it between two --.
func nameAndCommand(args []string, dash int) (name string, command []string, err error) {
	if dash == 0 && len(args) > 2 && strings.HasPrefix(args[0], "-") && args[1] == "--" {
		return args[0], args[2:], nil
	}
	switch {
	case dash < 0 || dash == len(args):
		return "", nil, usageErrorf("the command is missing: write redlock run NAME -- COMMAND")
	case dash == 0:
		return "", nil, usageErrorf("the NAME is missing: write redlock run NAME -- COMMAND")
	case dash != 1:
		return "", nil, usageErrorf("one NAME must precede the --, not %d: %q", dash, args[:dash])
	}
	return args[0], args[1:], nil
}

// withoutDashes returns the error of a command without the -- before it. The owner of the flags
// is unknown.
func withoutDashes(args []string, flagged bool) error {
	ours, theirs := "", ""
	if flagged {
		ours, theirs = "[flags] ", " [flags]"
	}
	return usageErrorf("-- is missing before the command: write redlock run %s%s -- %s%s", ours, plain.ShellWord(args[0]), line(args[1:]), theirs)
}

// line returns a command as a shell would take it: unchanged, or with sh in front if it is a shell
// line in one word.
func line(command []string) string {
	if len(command) == 1 && strings.ContainsAny(command[0], " \t\n") {
		command = []string{"sh", "-c", command[0]}
	}
	words := make([]string, len(command))
	for i, w := range command {
		words[i] = plain.ShellWord(w)
	}
	return strings.Join(words, " ")
}

// run takes the lock, runs the command and releases the lock.
func (r *runCommand) run(ctx context.Context, names, argv []string) error {
	path, err := exec.LookPath(argv[0]) // as a shell would, before anything is locked
	switch {
	case err != nil && len(argv) == 1 && strings.ContainsAny(argv[0], " \t\n"):
		return cannotRun(argv[0], fmt.Errorf("%w: redlock starts no shell, so write redlock run %s -- %s", exec.ErrNotFound, plain.ShellWord(names[0]), line(argv)))
	case err != nil:
		return cannotRun(argv[0], err)
	}
	renewed := make(renewals, 1)
	j, err := job.New(job.Command{Path: path, Argv: argv, KillAfter: r.grace, Margin: job.Margin(r.ttl), Renewed: renewed, Foreign: func() {
		r.warn(fmt.Sprintf("%s: the lock is lost, and the command runs as another user, so redlock cannot end it: another client can have the lock now", plain.Words(names)))
	}})
	if err != nil {
		return err
	}
	defer j.Close()
	lock, stop, err := r.take(ctx, names, redlock.Observe(renewed))
	if err != nil {
		return err
	}
	defer stop()
	if err := r.claim(ctx, lock); err != nil {
		lock.Release(context.WithoutCancel(ctx))
		return err
	}
	return r.hold(ctx, lock, j, argv[0])
}

// claim marks the start of --at-least-apart, or the tick of --once-per, if there is one: the tick
// of the start, because a run by another machine during the wait was the run of that tick. The
// error has the reason the command must not run.
func (r *runCommand) claim(ctx context.Context, lock *redlock.Lock) error {
	if r.ticks == nil {
		return nil
	}
	first, err := r.ticks.Claim(ctx, lock, r.started)
	switch {
	case errors.Is(err, once.ErrLate) && !r.tickAt.IsZero():
		return &exitError{code: exitFailed, err: fmt.Errorf("%s: too late for the tick of %s: its mark may have expired, so the command was not run",
			plain.Word(lock.Name()), r.tick())}
	case errors.Is(err, once.ErrLate):
		return &exitError{code: exitFailed, err: fmt.Errorf("%s: the lock was granted %v after the start, too late for the tick of %s: its mark may have expired, so the command was not run",
			plain.Word(lock.Name()), time.Since(r.started).Round(time.Second), r.tick())}
	case errors.Is(err, redlock.ErrMarked):
		return &exitError{code: exitFailed, err: fmt.Errorf("%s has the mark of --once-per, which does not have the time of the last start: use another NAME, or wait until the mark has expired", plain.Word(lock.Name()))}
	case err == nil && !first && r.ticks.Apart != 0:
		return r.conflict(fmt.Errorf("%s was last started less than %s ago", plain.Word(lock.Name()), slots.Text(r.ticks.Apart)), r.logging.verbose > 0)
	case err == nil && !first:
		return r.conflict(fmt.Errorf("%s is done for its tick, %s", plain.Word(lock.Name()), r.tick()), r.logging.verbose > 0)
	}
	return err
}

// tick returns the tick of the start for people.
func (r *runCommand) tick() string {
	tick := r.ticks.Tick(r.started)
	if r.oncePer.isDay {
		return tick.Format(time.DateOnly)
	}
	return tick.Local().Format(time.DateTime)
}

// hold runs the job while the lock is held, and then releases the lock.
func (r *runCommand) hold(ctx context.Context, lock *redlock.Lock, j *job.Job, name string) error {
	began := time.Now()
	end, failed := j.Run(lock, environment(lock, r.fenced, r.permits > 1))
	end.Lost = r.told.Because(end.Lost) // read before the servers answer the release
	if !end.Swept && end.Lost == nil {
		r.warn("processes that the command has left behind cannot be ended; the lock is released")
	}
	lingered := failed == nil && end.Lost == nil && time.Since(began) < r.minHold
	if lingered && !j.Linger(lock, r.minHold-time.Since(began)) {
		r.warn("the lock was lost after the command had ended, before the end of --min-hold")
	}
	// The release is not bounded by ctx, because a signal for the command has ended ctx.
	var cannot *fs.PathError
	switch released := lock.Release(context.WithoutCancel(ctx)); {
	case errors.As(failed, &cannot):
		return cannotRun(name, failed)
	case failed != nil:
		return failed
	case end.Lost != nil:
		return &exitError{code: exitLost, err: fmt.Errorf("%w; %s", end.Lost, fate(end))}
	case errors.Is(released, redlock.ErrLost) && !lingered:
		return &exitError{code: exitLost, err: fmt.Errorf("%w; the command had not ended by then", released)}
	case released != nil && !errors.Is(released, redlock.ErrLost) && !errors.Is(released, redlock.ErrSameServer): // it was reported before
		r.warn(fmt.Sprintf("%v; the lock expires within %v", released, r.ttl))
	}
	if end.Code != 0 {
		return &exitError{code: end.Code}
	}
	return nil
}

// fate describes the end of a command whose lock was lost.
func fate(end job.Result) string {
	switch {
	case !end.Swept:
		return "processes of the command cannot be ended, and keep running"
	case end.Foreign:
		return "the command could not be ended, and has ended by itself"
	}
	return "the command was ended"
}

// cannotRun returns the error of a command that was not started, with its exit code.
func cannotRun(name string, err error) error {
	code := exitCannotRun
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		code = exitNotFound
	}
	if reason, is := errors.AsType[*exec.Error](err); is {
		err = reason.Err
	}
	if path, is := err.(*fs.PathError); is { // the command failed, not one of redlock's own processes
		err = path.Err
	}
	if errors.Is(err, syscall.EAGAIN) {
		err = fmt.Errorf("%w; this user may have no more processes (ulimit -u, TasksMax=)", err)
	}
	return &exitError{code: code, err: fmt.Errorf("%s: %w", plain.Word(name), err)}
}

// environment returns the command's environment: ours, with the name, end and token of its lock. If
// redlock itself runs under a lock, the variables of that lock are removed, because the command
// must not write with the token of another lock.
func environment(lock *redlock.Lock, fenced, permits bool) []string {
	ofLock := []string{"REDLOCK_NAME", "REDLOCK_FENCE", "REDLOCK_UNTIL", "REDLOCK_PERMIT"}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(ofLock, name)
	})
	env = append(env,
		"REDLOCK_NAME="+strings.Join(lock.Names(), "\n"),
		"REDLOCK_UNTIL="+lock.Until().UTC().Format(time.RFC3339Nano))
	if fenced {
		env = append(env, "REDLOCK_FENCE="+strconv.FormatInt(lock.Fence(), 10))
	}
	if permits {
		var all []string
		for _, permit := range lock.Permits() {
			all = append(all, strconv.Itoa(permit))
		}
		env = append(env, "REDLOCK_PERMIT="+strings.Join(all, "\n"))
	}
	return env
}
