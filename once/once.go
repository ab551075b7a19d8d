package once

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// A Job is to run once per tick, on any one of the machines that try. All machines give it the same
// Name and Every. It is safe for concurrent use; its fields must not change then.
type Job struct {
	Locker *redlock.Locker
	Name   string        // of the lock that is held while the job runs
	Every  time.Duration // the length of a tick: a second at least, a year at most

	// TakeOver lets a job that failed, or whose machine died or lost its lock, be run again within
	// its tick: a tick is marked when the job has succeeded. Run then waits for a machine that is at
	// it until the tick is over, and runs the job if that came to nothing. Default: a tick is marked
	// before the job runs, and Run does not wait.
	TakeOver bool

	// Options are for the lock, behind those of this package, but for Exclusive, which is set in any
	// case.
	Options []redlock.Option
}

// An Outcome is what has become of a tick on one machine.
type Outcome uint8

// The outcomes.
const (
	NotRun Outcome = iota // for the error that is returned with it
	Ran                   // here; the error is the job's
	Done                  // it is marked: a machine has run it, or has begun to
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

// Tick returns the tick at a time: the multiple of every that is nearest.
func Tick(at time.Time, every time.Duration) time.Time { return at.Round(every) }

// Run runs work for the tick that it is, by this machine's clock: see RunTick.
func (j Job) Run(ctx context.Context, work func(ctx context.Context, tick time.Time) error) (Outcome, error) {
	if err := j.check(); err != nil {
		return NotRun, err
	}
	return j.RunTick(ctx, Tick(time.Now(), j.Every), work)
}

// RunTick runs work for a tick, unless the tick or a later one is marked or another machine is at
// it. Ticks are told apart by the millisecond.
//
// The context of work ends with ctx, and when the lock is lost; work must stop then. The lock is
// released when work returns or panics.
//
// With Ran the error is that of work, joined with one that matches redlock.ErrLost or
// redlock.ErrClosed if the lock was lost meanwhile, and with TakeOver with that of the mark if it
// could not be raised. With NotRun it says why: redlock.ErrNoQuorum above all. Whether another
// machine is at it is not known then, and a missing run is taken for less harm than a second.
func (j Job) RunTick(ctx context.Context, tick time.Time, work func(ctx context.Context, tick time.Time) error) (Outcome, error) {
	switch err := j.check(); {
	case err != nil:
		return NotRun, err
	case ctx == nil:
		return NotRun, fmt.Errorf("once: %q: the context is nil; context.Background() is the one that never ends", j.Name)
	case work == nil:
		return NotRun, fmt.Errorf("once: %q: the function is nil", j.Name)
	}
	lock, outcome, err := j.acquire(ctx, tick)
	if err != nil || lock == nil {
		return outcome, err
	}
	if outcome, err = j.claim(ctx, lock, tick); outcome != Ran {
		lock.Release(ctx)
		return outcome, err
	}
	return Ran, j.run(ctx, lock, tick, work)
}

// check refuses what is no job.
func (j Job) check() error {
	const year = 365 * 24 * time.Hour
	switch {
	case j.Locker == nil:
		return fmt.Errorf("once: %q: there is no Locker", j.Name)
	case j.Every < time.Second || j.Every > year:
		return fmt.Errorf("once: %q: Every is %v, must be between %v and %v", j.Name, j.Every, time.Second, year)
	}
	return nil
}

// tries is how often a machine asks again for a lock that it does not wait for, after random waits, a
// quarter of a second in all: all machines ask at the same moment, and a hiccup of the servers would
// cost the tick.
const tries = 5

// acquire returns the lock, or what has become of the tick without it.
func (j Job) acquire(ctx context.Context, tick time.Time) (*redlock.Lock, Outcome, error) {
	opts := append(slices.Clone(j.Options), redlock.Exclusive())
	waiting := ctx
	if left := time.Until(tick.Add(j.Every / 2)); j.TakeOver && left > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, left)
		defer cancel()
	} else {
		opts = slices.Insert(opts, 0, redlock.Retries(tries))
	}
	lock, err := j.Locker.Acquire(waiting, j.Name, opts...)
	switch {
	case err == nil:
		return lock, Ran, nil
	case errors.Is(err, redlock.ErrHeld), ctx.Err() == nil && waiting.Err() != nil:
		return nil, Busy, nil
	}
	return nil, NotRun, err
}

// claim reports by Ran that the holder of the lock is to run the tick.
func (j Job) claim(ctx context.Context, lock *redlock.Lock, tick time.Time) (Outcome, error) {
	first := true
	var err error
	if j.TakeOver {
		var mark int64
		mark, err = read(ctx, lock)
		first = mark < tick.UnixMilli()
	} else {
		first, err = Claim(ctx, lock, tick, j.Every)
	}
	switch {
	case err != nil:
		return NotRun, err
	case !first:
		return Done, nil
	}
	return Ran, nil
}

// Claim marks a tick of every for the holder of the lock, and reports whether the holder is the
// first to do so: then it may run the tick's job, and nobody else may. The errors are those of
// redlock.Lock.Mark and RaiseMark; after one the tick may be marked all the same, and so be nobody's.
//
// It is for programs that hold the lock in a way of their own, as redlock run does. The reading
// asks all servers, so that a minority that has forgotten the mark does no harm.
func Claim(ctx context.Context, lock *redlock.Lock, tick time.Time, every time.Duration) (first bool, err error) {
	mark, err := read(ctx, lock)
	if err != nil || mark >= tick.UnixMilli() {
		return false, err
	}
	err = lock.RaiseMark(ctx, tick.UnixMilli(), life(every))
	if errors.Is(err, redlock.ErrMarked) {
		return false, nil
	}
	return err == nil, err
}

// read reads the mark, and again if too few servers answered: no other machine is at it meanwhile. A
// raise is not repeated, because the servers that have made it refuse the same again.
func read(ctx context.Context, lock *redlock.Lock) (mark int64, err error) {
	const most = 3
	for try := 1; ; try++ {
		mark, err = lock.Mark(ctx)
		if try == most || !errors.Is(err, redlock.ErrNoQuorum) {
			return mark, err
		}
	}
}

// life is how long a mark lives: for as long as a machine may be late.
func life(every time.Duration) time.Duration { return max(4*every, time.Minute) }

// run runs work under the lock, and releases it.
func (j Job) run(ctx context.Context, lock *redlock.Lock, tick time.Time, work func(context.Context, time.Time) error) (err error) {
	inner, cancel := lock.Bind(ctx)
	defer func() {
		cancel()
		ended := lock.Release(context.WithoutCancel(ctx))
		if errors.Is(ended, redlock.ErrLost) || errors.Is(ended, redlock.ErrClosed) {
			err = errors.Join(err, ended)
		}
	}()
	if err = work(inner, tick); err != nil || !j.TakeOver {
		return err
	}
	// What was done is marked even if ctx has ended meanwhile.
	err = lock.RaiseMark(context.WithoutCancel(ctx), tick.UnixMilli(), life(j.Every))
	if errors.Is(err, redlock.ErrMarked) {
		err = nil
	}
	return err
}
