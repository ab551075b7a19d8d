package redlock

import (
	"context"
	"errors"
)

// TryAcquire asks for the lock name once and does not wait for a holder. It
// returns within the node timeout, or twice that where a second round trip is
// needed: for a fencing token (see Fenced), or to learn whether a node can have
// forgotten locks (see MemoryGuard).
//
// Where it fails, a *QuorumError tells contention (ErrHeld) from an outage
// (ErrNoQuorum) and from the end of ctx (its error); whatever single nodes had
// granted is being released on all of them. ErrClosed follows a Close.
func (l *Locker) TryAcquire(ctx context.Context, name string, opts ...Option) (*Lock, error) {
	s, key, err := l.prepare(name, opts)
	if err != nil {
		return nil, err
	}
	told := l.begin(ctx, name)
	lock, err := l.acquireOnce(ctx, told.ctx, s, name, key)
	l.conclude(told, name, lock, err)
	return lock, err
}

// Acquire waits for the lock name. Callers of this Locker who wait for one
// name are served in order; among several processes the order is by chance,
// without Fair. A holder's Release hands the lock over to the next caller of
// the same Locker for some milliseconds, and then to whoever comes first. Other
// processes are told by the nodes when a lock may be free, where these can
// (Watchable), and else look every 200 ms at most.
//
// It waits for as long as ctx allows, unless Retries sets a limit, and its
// error is the last try's, as for TryAcquire. Contention is waited out; an
// outage (ErrNoQuorum) is returned at once, unless Retries says otherwise.
// Callers with Retries or RetryInterval do not queue: they try on a schedule of
// their own.
//
// The end of ctx ends the waiting, not the lock: see Lock.Context.
func (l *Locker) Acquire(ctx context.Context, name string, opts ...Option) (*Lock, error) {
	s, key, err := l.prepare(name, opts)
	if err != nil {
		return nil, err
	}
	told := l.begin(ctx, name)
	lock, err := l.acquire(ctx, told.ctx, s, name, key)
	l.conclude(told, name, lock, err)
	return lock, err
}

// prepare checks the arguments of an acquisition.
func (l *Locker) prepare(name string, opts []Option) (*settings, string, error) {
	s, err := l.settings.with(opts, false)
	if err != nil {
		return nil, "", err
	}
	key, err := s.key(name)
	if err != nil {
		return nil, "", err
	}
	return s, key, nil
}

// interrupted returns the error of an acquisition that the Locker's or the
// context's end keeps from asking any node, or nil.
func (l *Locker) interrupted(ctx context.Context, name string) error {
	if isDone(l.closed) {
		return closedError(OpAcquire, name)
	}
	if err := ctx.Err(); err != nil {
		t := tally{n: len(l.nodes)}
		return &QuorumError{Op: OpAcquire.String(), Name: name, Err: err, Nodes: t.n, Quorum: t.quorum()}
	}
	return nil
}

// Where there are two contexts, ctx is the caller's, and events carry told.

func (l *Locker) acquireOnce(ctx, told context.Context, s *settings, name, key string) (*Lock, error) {
	if err := l.interrupted(ctx, name); err != nil {
		return nil, err
	}
	lock, err := l.attempt(ctx, told, s, name, key, everyNode)
	if err != nil {
		return nil, err
	}
	l.queue.hold(lock)
	return lock, nil
}

func (l *Locker) acquire(ctx, told context.Context, s *settings, name, key string) (*Lock, error) {
	if err := l.interrupted(ctx, name); err != nil {
		return nil, err
	}
	p := l.parkers.get()
	defer l.parkers.put(p)
	if s.retries == Forever && s.interval == 0 {
		return l.acquireInLine(ctx, told, s, p, name, key)
	}
	return l.acquireBySchedule(ctx, told, s, p, name, key)
}

// acquireBySchedule tries so many times, or at such an interval, whatever others
// of this process do.
func (l *Locker) acquireBySchedule(ctx, told context.Context, s *settings, p *parker, name, key string) (*Lock, error) {
	for try := 0; ; try++ {
		began := s.clock.Now()
		lock, err := l.attempt(ctx, told, s, name, key, everyNode)
		if err == nil {
			l.queue.hold(lock)
			return lock, nil
		}
		var failure *QuorumError
		if !errors.As(err, &failure) || !s.again(try, failure) {
			return nil, err
		}
		switch {
		case s.interval > 0: // from start to start, so that slow tries do not shift the rest
			l.pause(ctx, p, s.interval-s.clock.Now().Sub(began))
		case failure.Err != errStale:
			l.pause(ctx, p, s.delay(try, failure))
		}
		if err := l.interrupted(ctx, name); err != nil {
			return nil, because(ctx, err, failure)
		}
	}
}

// because is the error of an acquisition whose waiting has ended, after a try
// that failed.
func because(ctx context.Context, err error, failure *QuorumError) error {
	if ctx.Err() == nil || failure == nil {
		return err
	}
	ended := *failure // which has been shown to the observer
	ended.Err = ctx.Err()
	return &ended // its causes still say who was in the way
}

// everyNode: an attempt that asks all nodes at the same time.
const everyNode = -1

// attempt is one vote: all nodes are asked, and either a quorum makes a lock
// or all of them are asked to forget it. The node first, if it is one, is asked
// alone, and the others only if it grants.
func (l *Locker) attempt(ctx, told context.Context, s *settings, name, key string, first int) (*Lock, error) {
	if !l.inflight.begin() {
		return nil, closedError(OpAcquire, name)
	}
	defer l.inflight.done()
	c := l.newClaim(s, name, key)
	r := l.newRound(told, name, l.request(s, OpAcquire, c))
	limit := s.timeout()
	if first == everyNode {
		r.ask()
	} else {
		if !r.askInTurn(ctx, s, first) {
			r.mu.Lock()
			err := r.fail(ErrHeld)
			r.mu.Unlock()
			l.tell(Event{Kind: EventAttempt, Context: told, Name: name, Err: err}, r.start, nil)
			return nil, err
		}
		limit *= 2
	}
	r.wait(ctx, limit, decided)
	if r.parked.Load() > 0 {
		r.wait(ctx, limit+s.timeout(), decided) // the nodes have answered, and are being asked for their records
	}
	var untold *round
	if c.counter != "" {
		untold = l.raise(ctx, s, r, &c)
	}
	var lock *Lock
	if untold == nil {
		lock = l.win(ctx, s, c, r)
	}
	if lock == nil {
		err := l.lose(ctx, s, c, r, untold)
		if isDone(l.closed) {
			return nil, closedError(OpAcquire, name)
		}
		l.tell(Event{Kind: EventAttempt, Context: told, Name: name, Votes: err.Votes, Err: err}, r.start, nil)
		return nil, err
	}
	l.tell(Event{Kind: EventAttempt, Context: told, Name: name}, r.start, lock)
	if !lock.watch() {
		lock.end(released, ErrClosed, s.clock.Now())
		return nil, closedError(OpAcquire, name)
	}
	return lock, nil
}

// win makes a lock of a round that was won in time, or returns nil. Replies
// that are still to come count for the lock.
func (l *Locker) win(ctx context.Context, s *settings, c claim, r *round) *Lock {
	r.mu.Lock()
	defer r.mu.Unlock()
	// The votes may have come in time and this goroutine too late: a process
	// that was paused or a machine that slept must not believe them.
	now := s.clock.Now()
	if r.tally.verdict() != voteWon || now >= deadline(r.start, s.ttl) {
		return nil
	}
	// So may votes that have come since raise looked, without the token.
	if c.counter != "" && c.token == r.req.Token && r.accepted() < r.tally.quorum() {
		return nil
	}
	if l.guard != nil {
		l.guard.known(s.ttl)
	}
	r.lock = newLock(ctx, s, c, r, now)
	return r.lock
}
