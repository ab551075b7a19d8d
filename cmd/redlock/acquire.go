package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/cmd/redlock/internal/job"
	"github.com/redquorum/redquorum/cmd/redlock/internal/plain"
	"github.com/redquorum/redquorum/cmd/redlock/internal/report"
	"github.com/redquorum/redquorum/internal/slots"
	"github.com/redquorum/redquorum/redlock"
)

// An acquisition is how "redlock run" and "redlock hold" take a lock: the flags that they share.
type acquisition struct {
	*servers
	ttl, wait, interval  time.Duration
	noWait, quiet        bool
	fenced, fair, shared bool
	retries, heldCode    int
	permits, weight      int
	owner                string
	and                  []string
	grace                time.Duration // from the report of a loss to the latest end of the work
	graceName            string        // of the flag

	forTick bool             // the command runs once per tick, on one machine: see slots.Acquire
	told    *report.Reporter // from take on
	warned  chan struct{}    // gets a warning when half of the TTL is left; nil: no warning
}

// patience is the wait for servers without --wait: the library's default.
const patience = 3 * time.Second

// acquisitionFlags adds the flags to a command. The last flag sets how long the work may take to
// end when its lock is lost.
func acquisitionFlags(c *cobra.Command, graceName, grace string) *acquisition {
	a := &acquisition{servers: serverFlags(c), graceName: graceName}
	a.logging.states = true
	f := c.Flags()
	a.targets.embeddedFlag()
	f.DurationVar(&a.ttl, "ttl", 10*time.Second, "how long the lock outlives a redlock that died; it is renewed every third of that time; at least 500ms")
	f.DurationVar(&a.wait, "wait", 0, "wait at most this long, for a holder and for servers together (default: without limit for a holder, "+patience.String()+" for servers)")
	f.BoolVar(&a.noWait, "no-wait", false, "do not wait for a holder; wait for servers for "+patience.String()+", or as --retries says")
	f.IntVar(&a.retries, "retries", 0, "retry up to this many times, whether the lock is held or too few servers answer (default: see --wait)")
	f.DurationVar(&a.interval, "retry-interval", 0, "time between tries (default: chosen by redlock)")
	f.BoolVar(&a.fenced, "fenced", false, "also get a fencing token")
	f.BoolVar(&a.fair, "fair", false, "wait in order of arrival")
	f.StringVar(&a.owner, "owner", "", "`LABEL` that shows others who holds the lock; at most 128 bytes (default: USER@HOST:PID)")
	f.StringArrayVar(&a.and, "and", nil, "also hold `NAME`, all names or none; repeat the flag for more, in any order")
	f.BoolVar(&a.shared, "shared", false, "be a reader: other readers may hold the lock at the same time, a holder without --shared may not")
	f.IntVar(&a.permits, "permits", 1, "how many holders may have the lock at the same time; use the same number for a NAME everywhere, because another is refused")
	f.IntVar(&a.weight, "weight", 1, "how many of the permits to take, all or none")
	f.IntVarP(&a.heldCode, "conflict-exit-code", "E", exitHeld, "exit with `CODE` if another client holds the lock")
	f.BoolVarP(&a.quiet, "quiet", "q", false, "do not report that another client holds the lock, or that redlock waits for it: see the exit code")
	f.DurationVar(&a.grace, graceName, 0, grace)
	f.Lookup("verbose").Usage = "log events to stderr; -vv: also each vote"
	return a
}

// check completes the flags, and refuses invalid names and conflicting flags.
func (a *acquisition) check(names []string) error {
	for _, name := range names {
		if !utf8.ValidString(name) { // programs could not request this name over HTTP
			return usageErrorf("the name %q must be text in UTF-8", name)
		}
		if why := plain.Untidy(name); why != "" { // for example, from a crontab with CRLF
			return usageErrorf("the name %q %s: it is another lock than %q", name, why, plain.Tidy(name))
		}
		if err := a.locking.checkName(name); err != nil {
			return err
		}
	}
	set := a.flags.Changed
	switch {
	case a.locking.maxTTL != 0 && a.locking.maxTTL < a.ttl:
		return wrong(a.flags, "max-ttl", "must be at least the TTL of this lock, %v", a.ttl)
	case a.locking.nodeTimeout >= a.ttl:
		return wrong(a.flags, "node-timeout", "must be below the TTL, %v", a.ttl)
	case a.noWait && set("wait"):
		return usageErrorf("--no-wait excludes --wait: use --retries to wait for servers only")
	case set("wait") && a.wait <= 0:
		return usageErrorf("--wait %v: must be above zero: use --no-wait to wait for no holder", a.wait)
	case a.shared && (a.fenced || a.permits > 1 || len(a.and) > 0):
		return usageErrorf("--shared excludes --fenced, --permits and --and: a reader locks one name, and has no token")
	case a.permits > 1 && len(a.and) > 0:
		return usageErrorf("--permits excludes --and: permits are of one name")
	case a.fenced && len(a.and) > 0:
		return usageErrorf("--fenced excludes --and: a fencing token is of one name")
	case a.weight > a.permits:
		return usageErrorf("--weight %d: must be between 1 and the number of --permits, %d", a.weight, a.permits)
	case a.weight > 1 && a.fenced:
		return usageErrorf("--weight above 1 excludes --fenced: a fencing token is of one permit")
	case a.fair && a.permits > 1:
		return usageErrorf("--fair excludes --permits: it orders the waiters of one key")
	case a.quiet && a.logging.verbose > 0:
		return usageErrorf("--quiet excludes --verbose: omit one")
	}
	if a.owner == "" && !set("owner") {
		a.owner = thisProcess()
	}
	if !set(a.graceName) {
		a.grace = a.ttl / 4
	}
	if limit := a.ttl/2 - job.Margin(a.ttl); a.grace < 0 || a.grace > limit {
		return usageErrorf("--%s %v: must be between 0 and %v with a TTL of %v, or a single lost message would end the command", a.graceName, a.grace, limit, a.ttl)
	}
	return nil
}

// warn reports a failure that does not change the exit code.
func (a *acquisition) warn(text string) { fmt.Fprintln(a.stderr, "redlock: "+plain.OneLine(text)) }

// take takes the lock. Its error has an exit code. The caller releases the lock, and then calls
// stop.
func (a *acquisition) take(ctx context.Context, names []string, observers ...redlock.LockerOption) (lock *redlock.Lock, stop func(), err error) {
	sets, stopServers, err := a.start(ctx)
	if err != nil {
		return nil, nil, err
	}
	told := report.New(a.stderr, names, a.logging.verbose > 0, a.quiet)
	told.Permits, told.Weight, told.Logged = a.permits, a.weight, a.logging.verbose > 1
	a.told = told
	locker, err := a.open(sets, append(observers, redlock.TTL(a.ttl), redlock.Owner(a.owner), redlock.Observe(told))...)
	if err != nil {
		told.Waited()
		stopServers()
		return nil, nil, err
	}
	stop = func() {
		locker.Close()
		stopServers()
	}
	lock, err = a.acquire(ctx, locker, names)
	told.Waited()
	if err != nil {
		stop()
		return nil, nil, a.refused(ctx, err, names)
	}
	return lock, stop, nil
}

// acquire takes the lock with the options that the flags select.
func (a *acquisition) acquire(ctx context.Context, l *redlock.Locker, names []string) (*redlock.Lock, error) {
	opts := []redlock.Option{redlock.Permits(a.permits), redlock.Weight(a.weight)}
	if a.shared {
		opts = append(opts, redlock.Shared())
	}
	if a.fenced {
		opts = append(opts, redlock.Fenced())
	}
	if a.fair {
		opts = append(opts, redlock.Fair())
	}
	if a.warned != nil { // when half of the TTL is left, or less if a healthy lock can have so little
		opts = append(opts, redlock.WarnBefore(min(a.ttl/2, l.MostWarning()), func(*redlock.Lock) {
			select {
			case a.warned <- struct{}{}:
			default:
			}
		}))
	}
	if a.noWait || a.isNested(names) {
		ask := func() (*redlock.Lock, error) { return a.tryAcquire(ctx, l, names, opts) }
		if a.forTick {
			return slots.Acquire(ctx, l, names, ask)
		}
		return ask()
	}
	if a.flags.Changed("retries") {
		opts = append(opts, redlock.Retries(a.retries))
	}
	if a.flags.Changed("retry-interval") {
		opts = append(opts, redlock.RetryInterval(a.interval))
	}
	if a.wait > 0 {
		opts = append(opts, redlock.Wait(a.wait), redlock.Patience(a.wait))
	}
	if len(names) > 1 {
		return l.AcquireAll(ctx, names, opts...)
	}
	return l.Acquire(ctx, names[0], opts...)
}

// isNested reports whether this process runs under a lock of these names, by redlock run. It must
// then not wait for the lock, because the wait would never end.
func (a *acquisition) isNested(names []string) bool {
	outer := strings.Split(os.Getenv("REDLOCK_NAME"), "\n")
	return a.permits <= 1 && slices.ContainsFunc(names, func(name string) bool { return slices.Contains(outer, name) })
}

// tryAcquire does not wait for a holder. It tries again if too few servers answer, because a short
// outage must not cost a run.
func (a *acquisition) tryAcquire(ctx context.Context, l *redlock.Locker, names []string, opts []redlock.Option) (*redlock.Lock, error) {
	ask := func() (*redlock.Lock, error) { return l.TryAcquire(ctx, names[0], opts...) }
	if len(names) > 1 {
		ask = func() (*redlock.Lock, error) { return l.TryAcquireAll(ctx, names, opts...) }
	}
	began := time.Now()
	for try := 1; ; try++ {
		lock, err := ask()
		var vote *redlock.QuorumError
		if !errors.As(err, &vote) || !errors.Is(err, redlock.ErrNoQuorum) && !errors.Is(err, redlock.ErrMap) {
			return lock, err
		}
		outage := time.Since(began)
		goOn := vote.Remaining < patience-outage && !vote.Permanent() // as the library would
		if a.flags.Changed("retries") {
			goOn = try <= a.retries
		}
		of := *vote
		if of.Outage, err = outage, &of; !goOn {
			return nil, err
		}
		pause := max(rand.N(min(time.Duration(try)*20*time.Millisecond, 200*time.Millisecond)), a.interval)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// refused adds the exit code to the error of an acquisition, and a message for people.
func (a *acquisition) refused(ctx context.Context, err error, names []string) error {
	waited := ""
	var vote *redlock.QuorumError
	if errors.As(err, &vote) && vote.Waited > 0 {
		waited = fmt.Sprintf("waited %v: ", a.wait)
		last := *vote
		last.Waited, err = 0, &last
	}
	switch isVote := errors.As(err, &vote); {
	case ctx.Err() != nil || errors.Is(err, redlock.ErrMap):
		return err
	case errors.Is(err, redlock.ErrHeld) && isVote:
		text, never := a.told.Refusal(err)
		text = fmt.Sprintf("%s: %s%s", plain.Words(names), waited, text)
		nested := !a.noWait && a.isNested(names)
		if nested {
			text += "; this command runs under the lock already ($REDLOCK_NAME), and locks are not re-entrant"
		}
		if never {
			text += "; see " + plain.Advice("status", names[0])
		}
		return a.conflict(errors.New(text), waited != "" || never || nested || a.flags.Changed("retries"))
	case errors.Is(err, redlock.ErrHeld):
		return a.conflict(err, true)
	case waited != "":
		return &exitError{code: exitNoQuorum, err: fmt.Errorf("%s%s", waited, plain.OneLine(err.Error()))}
	case isVote:
		return err
	}
	return &exitError{code: exitUsage, err: err} // the name or an option is invalid; no server was asked
}

// conflict returns the error, with its exit code, of a command that another process runs, or has
// run for the tick. The error has a message only at a terminal or if it is notable: in a crontab
// each line is a mail from each machine that was refused. With --verbose the reporter has printed
// the message already.
func (a *acquisition) conflict(err error, notable bool) error {
	if a.quiet || !notable && (!plain.IsTerminal(a.stderr) || a.logging.verbose > 0) {
		err = nil
	}
	return &exitError{code: a.heldCode, err: err}
}

// thisProcess returns the default label of locks. Unprintable characters are replaced.
func thisProcess() string {
	name := cmp.Or(os.Getenv("USER"), strconv.Itoa(os.Getuid()))
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, _ := os.Hostname()
	shown := func(s string) string {
		s = plain.Harmless(s)
		return strings.ToValidUTF8(s[:min(len(s), 48)], "")
	}
	return fmt.Sprintf("%s@%s:%d", shown(name), shown(host), os.Getpid())
}
