package redlock

import (
	"time"

	"github.com/redquorum/redquorum/redlock/internal/park"
	"github.com/redquorum/redquorum/redlock/internal/wait"
)

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
	if failure.Err == errForgetful && remaining > wait.Longest {
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
