package redlock

import (
	"context"
	"time"
)

// Waits between tries grow from firstWait to maxWait. Without word of a
// release, which other libraries never send, maxWait is how late one is
// noticed.
const (
	firstWait = 8 * time.Millisecond
	maxWait   = 200 * time.Millisecond

	maxQuarantineWait = time.Second
)

// delay is how long to wait after a failed try, counted from zero, where the
// caller has not set an interval.
//
// Half of it is drawn by lot, so that contenders who split the nodes among
// them do not collide again in step. The holder's remaining TTL bounds it: at
// that moment a crashed holder's lock is free.
func (s *settings) delay(try int, failure *QuorumError) time.Duration {
	remaining := failure.Remaining
	if failure.Err == errForgetful && remaining > maxWait {
		// No release brings it forward, only a node that could not be reached.
		d := min(remaining, maxQuarantineWait)
		return d + s.jitter(d/8)
	}
	limit := min(firstWait<<min(try, 10), maxWait)
	d := limit/2 + s.jitter(limit/2)
	if remaining > 0 && remaining < d {
		d = s.beyond(remaining)
	}
	return d
}

// beyond is a moment after a key has expired. Redis expires with a resolution of
// a millisecond.
func (s *settings) beyond(left time.Duration) time.Duration {
	return left + time.Millisecond + s.jitter(firstWait/2)
}

// again says whether to try again after a failed try, counted from zero.
func (s *settings) again(try int, failure *QuorumError) bool {
	if s.retries != Forever {
		return try < s.retries
	}
	switch failure.Err {
	case ErrHeld, errStale, errNoToken, errForgetful:
		return true
	}
	return false
}

// pause sleeps for d, or shorter if the Locker is closed or ctx ends.
func (l *Locker) pause(ctx context.Context, p *parker, d time.Duration) {
	end := l.settings.clock.Now().Add(d)
	p.timer.Reset(d)
	for ctx.Err() == nil && !isDone(l.closed) && l.settings.clock.Now() < end {
		p.sleep(ctx, l.closed)
	}
}

func isDone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
