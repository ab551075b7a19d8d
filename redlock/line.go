package redlock

import (
	"context"
	"slices"
	"sync"

	"github.com/redquorum/redquorum/clock"
)

// A queue lines up the callers of one process that wait for a lock, by key. Only
// the first of a line competes with other processes, and only while none of
// its own holds the lock.
type queue struct {
	mu    sync.Mutex
	lines map[string]*line
	spare []*line // emptied lines, to be used again
}

// A line is what this process knows of one key. All of it is guarded by the queue.
type line struct {
	key     string
	waiters []waiter
	holder  *Lock         // of this process, which has not ended; the line stays for it
	gift    *estate       // for the first waiter, from the holder before
	news    bool          // for the first waiter: the key was released in this process
	turn    clock.Instant // see turnLength: when the present turn of this process began; zero: with the next lock
	rest    clock.Instant // until then the first waiter leaves the field to other processes
}

type waiter struct {
	parker   *parker
	settings *settings
}

// maxSpare is how many emptied lines are kept: as many as callers are likely to
// acquire at the same moment.
const maxSpare = 256

// enter puts a caller at the end of the key's line.
func (q *queue) enter(key string, p *parker, s *settings) *line {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln := q.line(key)
	ln.waiters = append(ln.waiters, waiter{p, s})
	return ln
}

// line returns the key's line, a new one if there is none. The queue must be
// locked.
func (q *queue) line(key string) *line {
	if ln := q.lines[key]; ln != nil {
		return ln
	}
	if q.lines == nil {
		q.lines = map[string]*line{}
	}
	var ln *line
	if n := len(q.spare); n > 0 {
		ln, q.spare = q.spare[n-1], q.spare[:n-1]
	} else {
		ln = &line{}
	}
	ln.key = key
	q.lines[key] = ln
	return ln
}

// await returns when p is the first and no holder is in this process: with what
// the holder has left to it, or with the moment until which it should not compete.
// One who wants to be fair has a place to take while the holder is there. It returns early
// when ctx or the Locker ends.
func (q *queue) await(ctx context.Context, ln *line, p *parker, closed <-chan struct{}) (gift *estate, rest clock.Instant) {
	for {
		q.mu.Lock()
		if w := ln.waiters[0]; w.parker == p && (ln.holder == nil || ln.gift != nil || w.settings.fair) {
			gift, rest = ln.gift, ln.rest
			ln.gift, ln.news, ln.rest = nil, false, 0
			q.mu.Unlock()
			return gift, rest
		}
		q.mu.Unlock()
		p.sleep(ctx, closed)
		if ctx.Err() != nil || isDone(closed) {
			return nil, 0
		}
	}
}

// leave takes p out of its line, wherever it stands. lock is what it has got, or
// nil. A gift that came too late for p is returned, and must be given back.
func (q *queue) leave(ln *line, p *parker, lock *Lock) (gift *estate) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.IndexFunc(ln.waiters, func(w waiter) bool { return w.parker == p })
	if i == 0 {
		gift, ln.gift = ln.gift, nil
	}
	ln.waiters = slices.Delete(ln.waiters, i, i+1)
	if lock != nil {
		ln.enterHolder(lock)
	}
	if i == 0 && len(ln.waiters) > 0 && (ln.holder == nil || ln.waiters[0].settings.fair) {
		ln.waiters[0].parker.wake()
	}
	q.tidy(ln)
	return gift
}

// hold enters a lock that was not waited for.
func (q *queue) hold(k *Lock) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln := q.line(k.key)
	ln.enterHolder(k)
	q.tidy(ln)
}

// enterHolder makes k the holder, unless it has ended by now: nobody would tell the
// waiters again. The queue must be locked.
func (ln *line) enterHolder(k *Lock) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.phase == held {
		ln.holder = k
	}
}

// ended is called when a lock has ended and its release is on its way.
func (q *queue) ended(k *Lock, now clock.Instant) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln := q.lines[k.key]
	if ln == nil {
		return
	}
	if ln.holder == k {
		ln.holder = nil
	}
	if len(ln.waiters) > 0 {
		ln.endTurn(k, now)
		ln.news = true
		ln.waiters[0].parker.wake()
	}
	q.tidy(ln)
}

// hasNews reports, once, whether the key was released in this process or handed
// over to the first of the line.
func (q *queue) hasNews(ln *line) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	news := ln.news || ln.gift != nil
	ln.news = false
	return news
}

// tidy puts a line aside that nobody needs any more. The queue must be locked.
func (q *queue) tidy(ln *line) {
	if len(ln.waiters) > 0 || ln.holder != nil {
		return
	}
	delete(q.lines, ln.key)
	waiters := ln.waiters
	*ln = line{waiters: waiters}
	if len(q.spare) < maxSpare {
		q.spare = append(q.spare, ln)
	}
}
