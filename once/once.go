package once

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redquorum/redquorum/internal/slots"
	"github.com/redquorum/redquorum/redlock"
)

// A Job runs once per tick, on any one of the machines that try. All machines must use the same
// Name, and the same Every, Day or Apart. A Job is safe for concurrent use as long as its fields do
// not change.
type Job struct {
	Locker *redlock.Locker
	Name   string // name of the lock that is held while the job runs

	// Every is the length of a tick: at least a second, and a divisor of a day.
	Every time.Duration

	// Day makes each day of this time zone a tick, in place of Every. It is for jobs that start at
	// a time of day.
	Day *time.Location

	// Apart is the minimum time between two starts of the job, on any machines. It replaces Every,
	// and is at least a second and at most a year. It is for jobs that run when a program starts.
	// For a schedule use Every or Day, because Apart refuses a start that is slightly early.
	// Excludes TakeOver.
	Apart time.Duration

	// TakeOver lets another machine run a job again within its tick if it failed, or if its machine
	// died or lost the lock. The tick is marked after the job has succeeded. Run waits for the
	// machine that runs the job, until the tick ends. Default: the tick is marked before the job
	// runs, and Run does not wait.
	TakeOver bool

	// Options apply to the lock. They override the options of this package, except Exclusive.
	Options []redlock.Option
}

// An Outcome is the outcome of a tick on one machine.
type Outcome uint8

// The outcomes.
const (
	NotRun Outcome = iota // the returned error has the reason
	Ran                   // this machine ran the job, which returned the error
	Done                  // marked: a machine has run the tick or started to; with Apart, too recently
	Busy                  // another machine holds the lock, and runs this tick or an earlier one
)

var outcomeNames = [...]string{NotRun: "not run", Ran: "ran", Done: "done", Busy: "busy"}

// String returns a word for the outcome, such as "done".
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

// ErrLate means that the lock was acquired too late: the mark of the tick may have expired, so
// whether the tick was run is unknown, and it is not run. A new start has a new tick.
var ErrLate = errors.New("once: the lock was acquired too late: the mark of its tick may have expired, so whether the tick was run is unknown")

// Tick returns the tick at a time: the nearest multiple of every.
func Tick(at time.Time, every time.Duration) time.Time { return at.Round(every) }

// Days begin dayLead before midnight. It is half of a crontab's minute, so jobs at 23:59 and at
// midnight have the largest margin.
const dayLead = 30 * time.Second

// Tick returns the tick of a start. With Day it is midnight UTC of the date in the zone, so all
// machines have the same tick, even if they disagree about when clocks change. With Apart it is the
// start.
func (j Job) Tick(started time.Time) time.Time {
	if j.Apart != 0 {
		return started
	}
	if j.Day == nil {
		return Tick(started, j.Every)
	}
	year, month, day := started.Add(dayLead).In(j.Day).Date()
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
}

// length returns the length of a tick.
func (j Job) length() time.Duration {
	if j.Day != nil {
		return 24 * time.Hour
	}
	return j.Every
}

// over returns the end of a tick.
func (j Job) over(tick time.Time) time.Time {
	if j.Day == nil {
		return tick.Add(j.Every / 2)
	}
	year, month, day := tick.Date()
	return time.Date(year, month, day+1, 0, 0, 0, 0, j.Day).Add(-dayLead)
}

// Run runs work for the tick of the current time, by this machine's clock: see RunTick. With Apart
// it runs work unless the job was started too recently; the tick is the time of the call.
func (j Job) Run(ctx context.Context, work func(ctx context.Context, tick time.Time) error) (Outcome, error) {
	now := time.Now()
	return j.attempt(ctx, j.start(now, j.Tick(now)), work)
}

// RunTick runs work for a tick, unless the tick or a later one is marked, or another machine runs
// it. Ticks differ by at least a millisecond, and are later than 1970. With Day, pass a tick that
// Job.Tick returned. RunTick returns ErrLate if the mark of a past tick may have expired.
//
// The context of work ends with ctx, and when the lock is lost; work must then stop. The lock is
// released when work returns or panics.
//
// With Ran, the error is the error of work. It is joined with an error that matches redlock.ErrLost
// or redlock.ErrClosed if the lock was lost, and with TakeOver with the error of raising the mark.
// With NotRun, the error is the reason, for example redlock.ErrNoQuorum or ErrLate; another machine
// may still run the tick. When in doubt, RunTick skips a run, because a second run would do more
// harm.
func (j Job) RunTick(ctx context.Context, tick time.Time, work func(ctx context.Context, tick time.Time) error) (Outcome, error) {
	switch {
	case j.Apart != 0:
		return NotRun, fmt.Errorf("once: %q: a Job with Apart has no ticks: call Run", j.Name)
	case j.Day != nil && !tick.Equal(tick.Truncate(24*time.Hour)):
		return NotRun, fmt.Errorf("once: %q: %v is not a tick of a Job with Day: call Job.Tick to get the tick of a time", j.Name, tick)
	}
	at := time.Now()
	if ago := at.Sub(j.over(tick)); ago > 0 { // from now on the monotonic clock counts, which cannot be set
		at = at.Add(-ago)
	}
	return j.attempt(ctx, j.start(at, tick), work)
}

// attempt runs work if this machine is the first of its tick.
func (j Job) attempt(ctx context.Context, s start, work func(context.Context, time.Time) error) (Outcome, error) {
	switch err := j.check(); {
	case err != nil:
		return NotRun, err
	case ctx == nil:
		return NotRun, fmt.Errorf("once: %q: the context is nil: pass context.Background() if it never ends", j.Name)
	case work == nil:
		return NotRun, fmt.Errorf("once: %q: the function is nil", j.Name)
	}
	if err := s.check(j.Name); err != nil {
		return NotRun, err
	}
	lock, outcome, err := j.acquire(ctx, s.tick)
	if err != nil || lock == nil {
		return outcome, err
	}
	if outcome, err = j.claim(ctx, lock, s); outcome != Ran {
		lock.Release(ctx)
		return outcome, err
	}
	return Ran, j.run(ctx, lock, s, work)
}

// check returns an error for an invalid Job.
func (j Job) check() error {
	if j.Locker == nil {
		return fmt.Errorf("once: %q: the Locker is nil", j.Name)
	}
	return j.checkTicks()
}

// checkTicks returns an error unless the Job has valid ticks.
func (j Job) checkTicks() error {
	const year = 365 * 24 * time.Hour
	set := 0
	for _, is := range []bool{j.Every != 0, j.Day != nil, j.Apart != 0} {
		if is {
			set++
		}
	}
	switch wrong := slots.Wrong(j.Every, slots.Text); {
	case set > 1:
		return fmt.Errorf("once: %q: Every, Day and Apart exclude each other: set one", j.Name)
	case j.Apart != 0 && (j.Apart < time.Second || j.Apart > year):
		return fmt.Errorf("once: %q: Apart is %v, must be between %v and %v", j.Name, j.Apart, time.Second, year)
	case j.Apart != 0 && j.TakeOver:
		return fmt.Errorf("once: %q: Apart excludes TakeOver: a failed job counts as started", j.Name)
	case j.Day != nil || j.Apart != 0:
		return nil
	case j.Every < time.Second:
		return fmt.Errorf("once: %q: Every is %v, must be at least %v", j.Name, j.Every, time.Second)
	case wrong != "":
		return fmt.Errorf("once: %q: Every is %s, which %s", j.Name, slots.Text(j.Every), wrong)
	}
	return nil
}

// tries is the number of tries for a lock without waiting, within a quarter of a second. All
// machines try at the same moment, so without repeats a short outage of the servers would cost the
// tick.
const tries = 5

// acquire returns the lock, or the outcome of the tick without it.
func (j Job) acquire(ctx context.Context, tick time.Time) (*redlock.Lock, Outcome, error) {
	opts := append(slices.Clone(j.Options), redlock.Exclusive())
	waiting := ctx
	if left := time.Until(j.over(tick)); j.TakeOver && left > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, left)
		defer cancel()
	} else {
		opts = slices.Insert(opts, 0, redlock.Retries(tries))
	}
	ask := func() (*redlock.Lock, error) { return j.Locker.Acquire(waiting, j.Name, opts...) }
	lock, err := slots.Acquire(waiting, j.Locker, []string{j.Name}, ask)
	switch {
	case err == nil:
		return lock, Ran, nil
	case ctx.Err() == nil && waiting.Err() != nil: // the tick ended, but not the caller's context
		err = cause(err)
	}
	if errors.Is(err, redlock.ErrHeld) {
		return nil, Busy, nil
	}
	return nil, NotRun, err
}

// cause returns the reason the lock was not acquired before the end of the tick. The result matches
// redlock.ErrHeld only if the last attempt was refused.
func cause(ended error) error {
	var vote *redlock.QuorumError
	if !errors.As(ended, &vote) {
		return fmt.Errorf("%w: %w", redlock.ErrNoQuorum, ended)
	}
	of := *vote
	if of.Err = redlock.ErrNoQuorum; errors.Is(vote.Kind(), redlock.ErrHeld) {
		of.Err = redlock.ErrHeld
	}
	return &of
}

// claim returns Ran if the holder of the lock may run the tick.
func (j Job) claim(ctx context.Context, lock *redlock.Lock, s start) (Outcome, error) {
	claim := s.claim
	if j.TakeOver {
		claim = s.isFirst
	}
	switch first, err := claim(ctx, lock); {
	case err != nil:
		return NotRun, err
	case !first:
		return Done, nil
	}
	return Ran, nil
}

// Claim marks the tick of a start for the holder of the lock, and reports whether the holder is the
// first. If it is, it may run the job, and no other machine may run it in that tick; with Apart, no
// other machine may run it for the time Apart. started is the time at which the machine was told to
// run the job, before it waited for the lock, or the scheduled time of the job. The Job needs only
// Every, Day or Apart. Claim is for programs that manage the lock themselves, as redlock run does.
//
// The error is ErrLate if more than half of the life of a mark has passed since started and no mark
// was found. It is redlock.ErrMarked if a Job with Apart finds the mark of a tick. Other errors
// come from redlock.Lock.Mark and RaiseMark; after these the tick may be marked although no machine
// runs it.
func (j Job) Claim(ctx context.Context, lock *redlock.Lock, started time.Time) (first bool, err error) {
	if err := j.checkTicks(); err != nil {
		return false, err
	}
	s := j.start(started, j.Tick(started))
	if err := s.check(lock.Name()); err != nil {
		return false, err
	}
	return s.claim(ctx, lock)
}

// A start is one machine's attempt at a tick.
type start struct {
	at   time.Time // when the machine was told to run the job, or when the tick ended
	tick time.Time
	mark int64 // number of the raised mark
	life time.Duration
}

// apartMark is the mark of each start with Apart. A mark cannot be raised to the same number while
// it lives, so at most one start is granted during that time, even if the lock fails. The servers
// measure the time: the machines' clocks do not matter.
const apartMark = 1

// start returns an attempt at a tick.
func (j Job) start(at, tick time.Time) start {
	if j.Apart != 0 {
		return start{at: at, tick: tick, mark: apartMark, life: j.Apart}
	}
	return start{at: at, tick: tick, mark: tick.UnixMilli(), life: life(j.length())}
}

// check returns an error for a tick that cannot be marked. Such a tick would seem to be marked
// already.
func (s start) check(name string) error {
	last := time.UnixMilli(1<<53 - 1).UTC()
	if s.tick.UnixMilli() <= apartMark || s.tick.After(last) {
		return fmt.Errorf("once: %q: the tick %v must be between 1970 and %v", name, s.tick.UTC(), last.Year())
	}
	return nil
}

// isFirst reports whether no holder of the lock has marked the tick or a later one.
func (s start) isFirst(ctx context.Context, lock *redlock.Lock) (bool, error) {
	mark, err := read(ctx, lock)
	switch {
	case err != nil:
		return false, err
	case s.mark == apartMark && mark > apartMark:
		return false, fmt.Errorf("once: %q has the mark of a tick, from a Job with Every or Day: take another name, or wait until it has expired: %w", lock.Name(), redlock.ErrMarked)
	case mark >= s.mark:
		return false, nil
	case s.mark != apartMark && s.isLate(): // isLate is checked now, after the mark was read
		return false, ErrLate
	}
	return true, nil
}

// isLate reports whether a mark of the tick may have expired. Another machine raised the mark
// before s.at by at most a tick and the difference of the clocks, and half of the life of a mark
// covers both. isLate uses the clock that has advanced further, because one clock stands still
// while the machine sleeps, and the other can be set back.
func (s start) isLate() bool { return max(time.Since(s.at), time.Since(s.at.Round(0))) > s.life/2 }

// claim does the same as isFirst, and marks the tick.
func (s start) claim(ctx context.Context, lock *redlock.Lock) (bool, error) {
	if first, err := s.isFirst(ctx, lock); !first {
		return false, err
	}
	err := lock.RaiseMark(ctx, s.mark, s.life)
	if errors.Is(err, redlock.ErrMarked) {
		return false, nil
	}
	return err == nil, err
}

// read reads the mark, and tries again if too few servers answered. A raise cannot be repeated like
// this, because servers that have raised the mark refuse the same raise again.
func read(ctx context.Context, lock *redlock.Lock) (mark int64, err error) {
	const most = 3
	for try := 1; ; try++ {
		mark, err = lock.Mark(ctx)
		if try == most || !errors.Is(err, redlock.ErrNoQuorum) {
			return mark, err
		}
	}
}

// life returns the life of a mark.
func life(every time.Duration) time.Duration { return max(4*every, time.Minute) }

// run runs work under the lock, and releases the lock.
func (j Job) run(ctx context.Context, lock *redlock.Lock, s start, work func(context.Context, time.Time) error) (err error) {
	inner, cancel := lock.Bind(ctx)
	defer func() {
		cancel()
		ended := lock.Release(context.WithoutCancel(ctx))
		if errors.Is(ended, redlock.ErrLost) || errors.Is(ended, redlock.ErrClosed) {
			err = errors.Join(err, ended)
		}
	}()
	if err = work(inner, s.tick); err != nil || !j.TakeOver {
		return err
	}
	// A successful job is marked even if ctx has ended.
	err = lock.RaiseMark(context.WithoutCancel(ctx), s.mark, s.life)
	if errors.Is(err, redlock.ErrMarked) {
		err = nil
	}
	return err
}
