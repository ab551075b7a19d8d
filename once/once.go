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

// A Job runs once per tick, on any one of the machines that try. All machines give it the same
// Name, and the same Every, Day or Apart. It is safe for concurrent use if its fields do not change.
type Job struct {
	Locker *redlock.Locker
	Name   string // of the lock that is held while the job runs

	// Every is the length of a tick: a second at least, and a day must be a multiple of it.
	Every time.Duration

	// Day makes each day of this time zone a tick, in place of Every. It is for jobs that start at
	// a time of day.
	Day *time.Location

	// Apart lets the job run at any time, but never sooner than this after its last start on any
	// machine, in place of Every: a second at least, a year at most. It is for jobs that run when a
	// program starts. For a schedule use Every or Day: of two starts that are a little closer than
	// Apart the second is refused. Excludes TakeOver.
	Apart time.Duration

	// TakeOver lets another machine run a job again within its tick if it failed, or if its machine
	// died or lost the lock. The tick is marked when the job has succeeded, and Run waits for the
	// machine that runs it, until the tick is over. Default: the tick is marked before the job
	// runs, and Run does not wait.
	TakeOver bool

	// Options are for the lock. They override those of this package, except Exclusive.
	Options []redlock.Option
}

// An Outcome is what became of a tick on one machine.
type Outcome uint8

// The outcomes.
const (
	NotRun Outcome = iota // for the error that is returned with it
	Ran                   // here; the error is the job's
	Done                  // it is marked: a machine has run it, or has begun to; with Apart, too recently
	Busy                  // another machine holds the lock: it runs this tick or an earlier one
)

var outcomeNames = [...]string{NotRun: "not run", Ran: "ran", Done: "done", Busy: "busy"}

// String returns a word for the outcome, such as "done".
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

// ErrLate says that the lock came so late that the mark of the tick may have expired. So it is not
// known whether the tick was run, and it is not run. A new start has a new tick.
var ErrLate = errors.New("once: the lock came too late: the mark of its tick may have expired, so whether it was run is not known")

// Tick returns the tick at a time: the multiple of every that is nearest.
func Tick(at time.Time, every time.Duration) time.Time { return at.Round(every) }

// dayLead is how long before midnight a day begins. It is half of a crontab's minute, so the jobs
// of 23:59 and of midnight are as far from it as can be.
const dayLead = 30 * time.Second

// Tick returns the tick of a start. With Day it is midnight in UTC of the date in the zone, so all
// machines have the same tick, even if they disagree on when clocks change. With Apart it is the start.
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

// length returns how long a tick is.
func (j Job) length() time.Duration {
	if j.Day != nil {
		return 24 * time.Hour
	}
	return j.Every
}

// over returns when a tick is over.
func (j Job) over(tick time.Time) time.Time {
	if j.Day == nil {
		return tick.Add(j.Every / 2)
	}
	year, month, day := tick.Date()
	return time.Date(year, month, day+1, 0, 0, 0, 0, j.Day).Add(-dayLead)
}

// Run runs work for the tick of its call, by this machine's clock: see RunTick. With Apart it runs
// work unless the job was started too recently; the tick is the time of the call.
func (j Job) Run(ctx context.Context, work func(ctx context.Context, tick time.Time) error) (Outcome, error) {
	now := time.Now()
	return j.attempt(ctx, j.start(now, j.Tick(now)), work)
}

// RunTick runs work for a tick, unless the tick or a later one is marked, or another machine runs
// it. Ticks differ by at least a millisecond, and are later than 1970. With Day, pass a tick that
// Job.Tick returned. A tick that ended so long ago that its mark may have expired is ErrLate.
//
// The context of work ends with ctx, and when the lock is lost; work must then stop. The lock is
// released when work returns or panics.
//
// With Ran the error is work's, joined with one that matches redlock.ErrLost or redlock.ErrClosed
// if the lock was lost meanwhile, and with TakeOver with the error of raising the mark. With NotRun
// the error says why, for example redlock.ErrNoQuorum or ErrLate; another machine may still run the
// tick. A missing run is taken for less harm than a second one.
func (j Job) RunTick(ctx context.Context, tick time.Time, work func(ctx context.Context, tick time.Time) error) (Outcome, error) {
	switch {
	case j.Apart != 0:
		return NotRun, fmt.Errorf("once: %q: a Job with Apart has no ticks: call Run", j.Name)
	case j.Day != nil && !tick.Equal(tick.Truncate(24*time.Hour)):
		return NotRun, fmt.Errorf("once: %q: %v is no tick of a Job with Day; Job.Tick returns the one of a time", j.Name, tick)
	}
	at := time.Now()
	if ago := at.Sub(j.over(tick)); ago > 0 { // by the clock that cannot be set, from now on
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
		return NotRun, fmt.Errorf("once: %q: the context is nil; context.Background() is the one that never ends", j.Name)
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

// check refuses what is no job.
func (j Job) check() error {
	if j.Locker == nil {
		return fmt.Errorf("once: %q: there is no Locker", j.Name)
	}
	return j.checkTicks()
}

// checkTicks refuses what has no ticks.
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

// tries is how often a machine asks again for a lock that it does not wait for, within a quarter of
// a second: all machines ask at the same moment, and a hiccup of the servers would cost the tick.
const tries = 5

// acquire returns the lock, or what became of the tick without it.
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
	lock, err := Acquire(waiting, j.Locker, []string{j.Name}, ask)
	switch {
	case err == nil:
		return lock, Ran, nil
	case ctx.Err() == nil && waiting.Err() != nil: // the tick ended, not the caller's context
		err = cause(err)
	}
	if errors.Is(err, redlock.ErrHeld) {
		return nil, Busy, nil
	}
	return nil, NotRun, err
}

// cause returns why the lock was not acquired before the end of the tick. The result matches
// redlock.ErrHeld only if the last vote was refused.
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

// claim returns Ran if the holder of the lock is to run the tick.
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
// first. If so it may run the job, and no other may in that tick; with Apart, no other may until then.
// started is when the machine was told to run the job, before it waited for the lock, or a time for
// which the job was scheduled. The Job needs only Every, Day or Apart. Claim is for programs that hold
// the lock in their own way, as redlock run does.
//
// Errors: ErrLate if more than half of a mark's life has passed since started and no mark was
// found; redlock.ErrMarked if a Job with Apart finds the mark of a tick; those of redlock.Lock.Mark and
// RaiseMark, after which the tick may be marked, and so run by none.
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

// Claim is Job.Claim for a tick of every that the caller names. It does not know when the caller
// began to wait, so it never returns ErrLate: a caller that may wait for two ticks uses Job.Claim.
func Claim(ctx context.Context, lock *redlock.Lock, tick time.Time, every time.Duration) (first bool, err error) {
	s := start{at: time.Now(), tick: tick, mark: tick.UnixMilli(), life: life(every)}
	if err := s.check(lock.Name()); err != nil {
		return false, err
	}
	return s.claim(ctx, lock)
}

// A start is one machine's attempt at a tick.
type start struct {
	at   time.Time // when the machine was told to run the job, or when the tick ended
	tick time.Time
	mark int64 // the number to which the mark is raised
	life time.Duration
}

// apartMark is the mark of each start with Apart. A mark of the same number cannot be raised while it
// lives, so at most one start is granted in its life, even if the lock fails. Its life is measured by the
// servers: the machines' clocks do not matter.
const apartMark = 1

// start returns an attempt at a tick.
func (j Job) start(at, tick time.Time) start {
	if j.Apart != 0 {
		return start{at: at, tick: tick, mark: apartMark, life: j.Apart}
	}
	return start{at: at, tick: tick, mark: tick.UnixMilli(), life: life(j.length())}
}

// check refuses a tick that no mark can have: it would be taken for one that is marked.
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
	case s.mark != apartMark && s.isLate(): // by now, which is after the mark was read
		return false, ErrLate
	}
	return true, nil
}

// isLate reports whether a mark of the tick may have expired. Another machine raised it at most a
// tick and the difference of the clocks before s.at, and half of its life covers both. It uses the
// clock that has counted more, because one stands still while the machine sleeps, and the other can
// be set back.
func (s start) isLate() bool { return max(time.Since(s.at), time.Since(s.at.Round(0))) > s.life/2 }

// claim is isFirst, and marks the tick.
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

// read reads the mark, and again if too few servers answered. A raise is not repeated, because
// servers that have made it refuse the same again.
func read(ctx context.Context, lock *redlock.Lock) (mark int64, err error) {
	const most = 3
	for try := 1; ; try++ {
		mark, err = lock.Mark(ctx)
		if try == most || !errors.Is(err, redlock.ErrNoQuorum) {
			return mark, err
		}
	}
}

// life is how long a mark lives.
func life(every time.Duration) time.Duration { return max(4*every, time.Minute) }

// run runs work under the lock, and releases it.
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
	// What was done is marked even if ctx has ended meanwhile.
	err = lock.RaiseMark(context.WithoutCancel(ctx), s.mark, s.life)
	if errors.Is(err, redlock.ErrMarked) {
		err = nil
	}
	return err
}
