package redlock

import (
	"errors"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/redlock/internal/ballot"
	"github.com/redquorum/redquorum/redlock/internal/park"
	"github.com/redquorum/redquorum/redlock/internal/wait"
)

// A strategy says when an acquisition tries, and how: by a schedule of its own (schedule), in the line
// of its process and the order of all (queued), or for one of many slots (search).
type strategy interface {
	// next returns the plan when it is time for a try, counted from zero, or what ends the acquisition: a
	// lock that was handed over in the process, or why there is none.
	next(try int) (ballot.Plan, *Lock, error)
	try(ballot.Plan) (*Lock, error)
	// lost is told of a try that is to be followed by another.
	lost(try int, failed *QuorumError)
}

// retry tries until there is a lock, or no reason to try again.
func (a *acquisition) retry(s strategy) (*Lock, error) {
	for try := 0; ; try++ {
		plan, lock, err := s.next(try)
		if lock != nil || err != nil {
			return lock, err
		}
		if lock, err = s.try(plan); err == nil {
			return lock, nil
		}
		failed, over := a.judge(try, err)
		if over != nil {
			return nil, over
		}
		if !plan.IsProbe() {
			a.remember(failed) // the other kind knows of one node only
		}
		s.lost(try, failed)
	}
}

// A schedule tries so many times, or at such an interval. It takes no place in any line, but the attempt
// may: see inLines.
type schedule struct {
	*acquisition
	attempt func() (*Lock, error)
	began   clock.Instant // the last try
	pause   time.Duration // after it
}

// bySchedule is the strategy of callers that set retries or an interval. One who comes again without end
// gives up a vote that is split, or callers with short intervals would keep single nodes from all others
// for as long as some node hangs. To one whose tries are numbered each vote is worth waiting for.
func (a *acquisition) bySchedule() *schedule {
	attempt := func() (*Lock, error) { return a.tryOnce(wholeVote) }
	switch a.settings.retries {
	case 0:
		attempt = a.settle
	case Forever:
		attempt = func() (*Lock, error) { return a.tryOnce(everyNode) }
	}
	return &schedule{acquisition: a, attempt: attempt}
}

func (s *schedule) next(try int) (plan ballot.Plan, lock *Lock, err error) {
	if try > 0 {
		s.acquisition.pause(s.pause)
		if err := s.interrupted(); err != nil {
			return plan, nil, s.endedAfter(s.failure, err)
		}
	}
	s.began = s.settings.clock.Now()
	return plan, nil, nil
}

func (s *schedule) try(ballot.Plan) (*Lock, error) { return s.attempt() }

func (s *schedule) lost(try int, failed *QuorumError) {
	switch s.pause = 0; {
	case s.settings.interval > 0: // from start to start, so that slow tries do not shift the rest
		s.pause = s.settings.interval - s.settings.clock.Now().Sub(s.began)
	case failed.Err != errStale:
		s.pause = s.settings.delay(try, failed)
	}
}

// judge says what follows a try, counted from zero, that ended with err: another one after failed,
// or the end of the acquisition with the error over.
func (a *acquisition) judge(try int, err error) (failed *QuorumError, over error) {
	isVote := errors.As(err, &failed)
	if isVote && failed.Err == ErrNoQuorum {
		failed = a.noteOutage(failed)
		err = failed
	} else {
		a.outage = nil
	}
	if a.line != nil {
		a.group.queue.loseTurn(a.line, a.outage)
	}
	if !isVote || !a.settings.again(try, failed) && !a.hasPatience() {
		return nil, a.endedAfter(a.failure, err) // a try that was cut short knows less
	}
	return failed, nil
}

// again says whether to try again after a failed try, counted from zero, unless that has found an
// outage.
func (s *settings) again(try int, failure *QuorumError) bool {
	if s.retries != Forever {
		return try < s.retries
	}
	switch failure.Err {
	case ErrHeld, errStale, errNoToken, errForgetful, errBehind, errPartLost, errMapHeld:
		return true
	}
	return false
}

// remember keeps the error of a try that asked all nodes, and was over just now.
func (a *acquisition) remember(failure *QuorumError) {
	a.failure, a.failedAt = failure, a.settings.clock.Now()
}

// endedAfter is the error of an acquisition whose waiting was interrupted after a try that
// failed: if it was the context's end, with what was in the way. A caller that has only waited behind
// others of its process has them in its way, or the outage that they have found.
func (a *acquisition) endedAfter(failure *QuorumError, interrupted error) error {
	var ended *QuorumError
	if a.ctx.Err() == nil || !errors.As(interrupted, &ended) {
		return interrupted
	}
	of, now := *ended, a.settings.clock.Now()
	switch {
	case failure != nil:
		of = *failure // which has been shown to the observers
		of.before = failure.Kind()
		if of.Remaining > 0 {
			of.Remaining = max(of.Remaining-now.Sub(a.failedAt), time.Millisecond)
		}
	case a.line != nil && a.askedAt == 0:
		of.Remaining, of.before = a.group.queue.inTheWay(a, now)
	case ended.Err != a.ctx.Err():
		of.before = ended.Kind()
	}
	of.Err = a.ctx.Err()
	return &of
}

// maxQuarantineWait is how long a caller rests at most where no release brings the end of a wait forward,
// only a node that could not be reached.
const maxQuarantineWait = time.Second

// delay is how long to wait after a failed try, counted from zero, where the
// caller has not set an interval.
//
// Half of it is drawn by lot, so that contenders who split the nodes among
// them do not collide again in step. The holder's remaining TTL bounds it: at
// that moment a crashed holder's lock is free.
func (s *settings) delay(try int, failure *QuorumError) time.Duration {
	remaining := failure.Remaining
	if (failure.Err == errForgetful || failure.Err == errBehind) && remaining > wait.Longest {
		d := min(remaining, maxQuarantineWait)
		return d + s.jitter(d/8)
	}
	limit := min(wait.FirstWait<<min(try, 10), wait.Longest)
	d := limit/2 + s.jitter(limit/2)
	if remaining > 0 && remaining < d {
		d = s.beyond(remaining)
	}
	return d
}

// beyond is a moment after a key has expired. Redis expires with a resolution of
// a millisecond.
func (s *settings) beyond(left time.Duration) time.Duration {
	return left + time.Millisecond + s.jitter(wait.FirstWait/2)
}

// pause sleeps for d, or shorter if the Locker is closed or the caller's context ends.
func (a *acquisition) pause(d time.Duration) { a.pauseOn(a.parker, d) }

// pauseOn is pause for a caller that has no parker of its own.
func (a *acquisition) pauseOn(p *park.Parker, d time.Duration) {
	end := a.settings.clock.Now().Add(d)
	p.WakeAfter(d)
	for !a.isOver() && a.settings.clock.Now() < end {
		p.Sleep(a.ctx, a.group.closed)
	}
}

// sleep returns when the acquisition is woken, or over.
func (a *acquisition) sleep() { a.parker.Sleep(a.ctx, a.group.closed) }

func isDone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
