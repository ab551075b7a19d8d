package redlockgocron

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/redquorum/redquorum/internal/slots"
	"github.com/redquorum/redquorum/once"
	"github.com/redquorum/redquorum/redlock"
)

// A Locker runs each tick of a job at most once, on any one of the machines that share the servers.
// It is for gocron.WithDistributedLocker and WithDistributedJobLocker, and safe for concurrent use.
// If a scheduler has an Elector, gocron ignores its Locker.
type Locker struct {
	locker *redlock.Locker
	ticks  once.Job // defines the ticks
	opts   []redlock.Option

	mu   sync.Mutex
	runs map[string]*run // runs in progress in this process, by name of the job
}

var _ gocron.Locker = (*Locker)(nil)

// NewLocker returns a Locker with ticks of the length every: at least a second, a divisor of a day,
// and no longer than the interval of any of its jobs. For jobs at a time of day, use an hour or
// half an hour: see the package comment. All machines must pass the same value. The options apply
// to the locks; Exclusive is always set.
//
// NewLocker returns an error for an invalid argument, and sends nothing to the servers. The caller
// still owns the redlock.Locker, and closes it after the scheduler's Shutdown.
func NewLocker(locker *redlock.Locker, every time.Duration, opts ...redlock.Option) (*Locker, error) {
	switch wrong := slots.Wrong(every, slots.Text); {
	case locker == nil:
		return nil, errors.New("redlockgocron: the redlock.Locker is nil: make one with redlock.New")
	case every < time.Second:
		return nil, fmt.Errorf("redlockgocron: ticks of %v are too short: use at least %v", every, time.Second)
	case wrong != "":
		return nil, fmt.Errorf("redlockgocron: a tick of %s %s", slots.Text(every), wrong)
	}
	l := &Locker{locker: locker, ticks: once.Job{Every: every}, runs: map[string]*run{}}
	l.opts = append([]redlock.Option{redlock.Retries(tries)}, opts...)
	l.opts = append(l.opts, redlock.Exclusive())
	if err := locker.Check(l.opts...); err != nil {
		return nil, fmt.Errorf("redlockgocron: %w", err)
	}
	return l, nil
}

// tries is the number of tries for a lock without waiting. All machines try at the same moment, so
// without repeats a hiccup of the servers would cost the tick.
const tries = 5

// mostEarly is the longest time from a start to its tick. gocron starts a job at its
// time or later, so a start is early only if the clock was set back.
const mostEarly = time.Minute

// A lateError means that a job started in the second half of a tick.
type lateError struct {
	before time.Duration
	tick   time.Time
}

func (e lateError) Error() string {
	return fmt.Sprintf("the job started %v before the tick of %s, so it is late for the tick before: gocron.LimitModeReschedule skips starts that would have to wait", e.before, e.tick.Format(time.RFC3339))
}

// Is makes the error match once.ErrLate.
func (e lateError) Is(target error) bool { return target == once.ErrLate }

// taskName is the default name that gocron chooses for a job returned by Task.
var taskName = runtime.FuncForPC(reflect.ValueOf((&task{}).run).Pointer()).Name()

// Lock implements gocron.Locker. If it returns nil, the caller, and no other caller on any machine,
// may run the job name for the tick of the current time, by this machine's clock. The caller must
// call Unlock.
//
// The error is
//
//   - redlock.ErrHeld if another machine runs the job, or an earlier run in this process has not
//     ended,
//   - redlock.ErrMarked if the tick was run or started,
//   - once.ErrLate if the start is more than a minute, or a quarter of a tick, before the nearest
//     tick, because it is then a late start of the previous tick, and
//   - once.ErrLate, redlock.ErrNoQuorum, redlock.ErrClosed or the error of ctx if it is unknown who
//     may run the tick. In this case it may not run at all.
func (l *Locker) Lock(ctx context.Context, name string) (gocron.Lock, error) {
	if name == taskName {
		return nil, fmt.Errorf("redlockgocron: the job has the name of its function, %s, which other jobs share: set a name with gocron.WithName", name)
	}
	began := time.Now()
	r := &run{owner: l, name: name, ctx: ctx, began: began, tick: l.ticks.Tick(began)}
	if early := r.tick.Sub(began); early > min(mostEarly, l.ticks.Every/4) {
		return nil, fmt.Errorf("redlockgocron: job %q: %w", name, lateError{early.Round(time.Second), r.tick})
	}
	if !l.enter(r) {
		return nil, fmt.Errorf("redlockgocron: job %q: an earlier run in this process has not ended: %w", name, redlock.ErrHeld)
	}
	if err := l.claim(ctx, r); err != nil {
		l.leave(r)
		return nil, fmt.Errorf("redlockgocron: job %q: %w", name, err)
	}
	return r, nil
}

// claim makes r the only run of its tick.
func (l *Locker) claim(ctx context.Context, r *run) error {
	ask := func() (*redlock.Lock, error) { return l.locker.Acquire(ctx, r.name, l.opts...) }
	lock, err := slots.Acquire(ctx, l.locker, []string{r.name}, ask)
	if err != nil {
		return err
	}
	first, err := l.ticks.Claim(ctx, lock, r.began)
	if err == nil && !first {
		err = fmt.Errorf("the tick of %s is done: %w", r.tick.Format(time.RFC3339), redlock.ErrMarked)
	}
	if err != nil {
		lock.Release(ctx)
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r.lock = lock
	return nil
}

// enter reports whether r is the only run of its job in this process. The servers cannot report
// this if an earlier run lost its lock, because gocron lets that run continue.
func (l *Locker) enter(r *run) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.runs[r.name] != nil {
		return false
	}
	l.runs[r.name] = r
	return true
}

func (l *Locker) leave(r *run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.runs[r.name] == r {
		delete(l.runs, r.name)
	}
}

// of returns the run for which gocron calls a task. gocron passes the same context to Lock and to
// the task, one for each job.
func (l *Locker) of(ctx context.Context) *run {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.runs {
		if r.lock != nil && r.ctx == ctx {
			return r
		}
	}
	return nil
}

// Task returns work as a job for gocron.NewTask. The context of work ends with the context of the
// job, and when the lock is lost; work must then stop. The job returns the error of work, joined
// with an error that matches redlock.ErrLost or redlock.ErrClosed if the lock ended before work
// returned. Ticks increase, so a resource that stores the last tick can reject a late job.
//
// A run without a lock of this Locker does not begin, and returns an error. Possible reasons: the
// scheduler has another Locker, an Elector or none; the job has WithDisabledDistributedJobLocker;
// or NewTask was given a context instead of gocron's. Task panics if work is nil.
func (l *Locker) Task(work func(ctx context.Context, tick time.Time) error) func(context.Context) error {
	if work == nil {
		panic("redlockgocron: Task(nil): pass a function")
	}
	return (&task{l, work}).run
}

// A task is a type and not a closure, because the name of a closure varies with the place where
// Task is inlined.
type task struct {
	owner *Locker
	work  func(context.Context, time.Time) error
}

func (t *task) run(ctx context.Context) error {
	r := t.owner.of(ctx)
	if r == nil {
		return errors.New("redlockgocron: the job has no lock: pass this Locker to the scheduler or the job, and use the context of gocron in the task")
	}
	return under(ctx, r.lock.Context(), r.lock, func(ctx context.Context) error { return t.work(ctx, r.tick) })
}

// A run is one run of a job, from Lock to Unlock.
type run struct {
	owner *Locker
	name  string
	ctx   context.Context // context of the job
	began time.Time       // time at which gocron called Lock
	tick  time.Time       // tick of began
	lock  *redlock.Lock   // guarded by owner.mu until Lock returns, and unchanged from then on
}

// Unlock implements gocron.Lock. ctx is the context of the job. It has ended if the scheduler is
// shutting down, and must not prevent the release. The errors are the errors of
// redlock.Lock.Release, above all redlock.ErrLost; gocron drops them.
func (r *run) Unlock(ctx context.Context) error {
	defer r.owner.leave(r)
	return r.lock.Release(context.WithoutCancel(ctx))
}

// under runs work with a context that ends with ctx and with the context of the lock. It does not
// start work after the end of the lock, and joins the cause of that end with the error of work.
func under(ctx, held context.Context, lock interface{ Remaining() time.Duration }, work func(context.Context) error) error {
	if held.Err() != nil {
		return context.Cause(held)
	}
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	unlink := context.AfterFunc(held, func() { cancel(context.Cause(held)) })
	defer unlink()
	err := work(inner)
	if lock.Remaining() <= 0 {
		<-held.Done() // follows slightly later
	}
	if lost := context.Cause(held); errors.Is(lost, redlock.ErrLost) || errors.Is(lost, redlock.ErrClosed) {
		err = errors.Join(err, lost)
	}
	return err
}
