package redlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Waits between tries grow from firstWait to maxWait. Without word of a
// release, which other libraries never send, maxWait is how late one is
// noticed.
const (
	firstWait = 8 * time.Millisecond
	maxWait   = 200 * time.Millisecond
)

// delay is how long to wait after a failed try, counted from zero, where the
// caller has not set an interval.
//
// Half of it is drawn by lot, so that contenders who split the nodes among
// them do not collide again in step. The holder's remaining TTL bounds it: at
// that moment a crashed holder's lock is free.
func (s *settings) delay(try int, remaining time.Duration) time.Duration {
	limit := min(firstWait<<min(try, 10), maxWait)
	d := limit/2 + s.jitter(limit/2)
	if remaining > 0 && remaining < d {
		// Redis expires with a resolution of a millisecond.
		d = remaining + time.Millisecond + s.jitter(firstWait/2)
	}
	return d
}

// again says whether to try again after a failed try, counted from zero.
func (s *settings) again(try int, failure *QuorumError) bool {
	if s.retries != Forever {
		return try < s.retries
	}
	return errors.Is(failure, ErrHeld) || failure.Err == errStale
}

// pause sleeps for d, or shorter if the key is released in this process, the
// Locker is closed or ctx ends. A fixed interval is kept to.
func (l *Locker) pause(ctx context.Context, s *settings, p *parker, d time.Duration) {
	end := s.clock.Now().Add(d)
	p.timer.Reset(d)
	for {
		p.sleep(ctx, l.closed)
		if ctx.Err() != nil || isDone(l.closed) || s.interval == 0 || s.clock.Now() >= end {
			return
		}
	}
}

// A queue lines up the waiters of one process, by key. Only the first of a
// line competes on Redis.
type queue struct {
	mu    sync.Mutex
	lines map[string]*line
	spare []*line // emptied lines, to be used again
}

type line struct{ waiters []*parker }

// maxSpare is how many emptied lines are kept: as many as callers are likely to
// acquire at the same moment.
const maxSpare = 256

// enter returns when all that came before p in the key's line have left, or
// with false when ctx or the Locker ended first.
func (q *queue) enter(ctx context.Context, key string, p *parker, closed <-chan struct{}) bool {
	q.mu.Lock()
	ln := q.lines[key]
	if ln == nil {
		ln = q.newLine()
		q.lines[key] = ln
	}
	ln.waiters = append(ln.waiters, p)
	first := ln.waiters[0] == p
	q.mu.Unlock()

	for !first {
		p.sleep(ctx, closed)
		if ctx.Err() != nil || isDone(closed) {
			q.leave(key, p)
			return false
		}
		q.mu.Lock()
		first = ln.waiters[0] == p
		q.mu.Unlock()
	}
	return true
}

func (q *queue) newLine() *line {
	if q.lines == nil {
		q.lines = map[string]*line{}
	}
	n := len(q.spare)
	if n == 0 {
		return &line{}
	}
	ln := q.spare[n-1]
	q.spare = q.spare[:n-1]
	return ln
}

// leave takes p out of the key's line, wherever it stands, and wakes the next
// if p was the first.
func (q *queue) leave(key string, p *parker) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln := q.lines[key]
	i := slices.Index(ln.waiters, p)
	ln.waiters = slices.Delete(ln.waiters, i, i+1)
	switch {
	case len(ln.waiters) == 0:
		delete(q.lines, key)
		if len(q.spare) < maxSpare {
			q.spare = append(q.spare, ln)
		}
	case i == 0:
		ln.waiters[0].wake()
	}
}

// wake tells the first of the key's line that the key was released.
func (q *queue) wake(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if ln := q.lines[key]; ln != nil {
		ln.waiters[0].wake()
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
