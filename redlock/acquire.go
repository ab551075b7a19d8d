package redlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
)

// TryAcquire asks for the lock name once and does not wait for a holder. It
// returns within the node timeout.
//
// Where it fails, a *QuorumError tells contention (ErrHeld) from an outage
// (ErrNoQuorum) and from the end of ctx (its error); whatever single nodes had
// granted is being released on all of them. ErrClosed follows a Close.
func (l *Locker) TryAcquire(ctx context.Context, name string, opts ...Option) (*Lock, error) {
	s, key, err := l.prepare(ctx, name, opts)
	if err != nil {
		return nil, err
	}
	began := l.now()
	lock, err := l.attempt(ctx, s, name, key)
	if err != nil {
		return nil, err
	}
	l.tell(Event{Kind: EventAcquired, Name: name}, began, lock)
	return lock, nil
}

// Acquire waits for the lock name. Callers of this Locker who wait for one
// name are served in order; among several processes the order is by chance.
//
// It waits for as long as ctx allows, unless Retries sets a limit, and its
// error is the last try's, as for TryAcquire. Contention is waited out; an
// outage (ErrNoQuorum) is returned at once, unless Retries says otherwise.
// Callers with Retries or RetryInterval do not queue: they try on a schedule of
// their own.
//
// The end of ctx ends the waiting, not the lock: see Lock.Context.
func (l *Locker) Acquire(ctx context.Context, name string, opts ...Option) (*Lock, error) {
	s, key, err := l.prepare(ctx, name, opts)
	if err != nil {
		return nil, err
	}
	began := l.now()
	lock, err := l.acquire(ctx, s, name, key)
	if err != nil {
		l.tell(Event{Kind: EventWaited, Name: name, Err: err}, began, nil)
		return nil, err
	}
	l.tell(Event{Kind: EventAcquired, Name: name}, began, lock)
	return lock, nil
}

// prepare checks the arguments of an acquisition.
func (l *Locker) prepare(ctx context.Context, name string, opts []Option) (*settings, string, error) {
	s, err := l.settings.with(opts, false)
	if err != nil {
		return nil, "", err
	}
	key, err := s.key(name)
	if err != nil {
		return nil, "", err
	}
	return s, key, l.interrupted(ctx, name)
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

func (l *Locker) acquire(ctx context.Context, s *settings, name, key string) (*Lock, error) {
	p := l.parkers.get()
	defer l.parkers.put(p)
	if s.retries == Forever && s.interval == 0 {
		if !l.queue.enter(ctx, key, p, l.closed) {
			return nil, l.interrupted(ctx, name)
		}
		defer l.queue.leave(key, p)
	}
	var began clock.Instant
	for try := 0; ; try++ {
		if s.interval > 0 {
			began = s.clock.Now()
		}
		lock, err := l.attempt(ctx, s, name, key)
		if err == nil {
			return lock, nil
		}
		var failure *QuorumError
		if !errors.As(err, &failure) || !s.again(try, failure) {
			return nil, err
		}
		switch {
		case s.interval > 0: // from start to start, so that slow tries do not shift the rest
			l.pause(ctx, s, p, s.interval-s.clock.Now().Sub(began))
		case failure.Err != errStale:
			l.pause(ctx, s, p, s.delay(try, failure.Remaining))
		}
		if err := l.interrupted(ctx, name); err != nil {
			if ctx.Err() != nil {
				ended := *failure // which has been shown to the observer
				ended.Err = ctx.Err()
				err = &ended // its causes still say who was in the way
			}
			return nil, err
		}
	}
}

// attempt is one vote: all nodes are asked, and either a quorum makes a lock
// or all of them are asked to forget it.
func (l *Locker) attempt(ctx context.Context, s *settings, name, key string) (*Lock, error) {
	if !l.inflight.begin() {
		return nil, closedError(OpAcquire, name)
	}
	defer l.inflight.done()
	r := l.newRound(name, Request{Op: OpAcquire, Key: key, Value: newValue(), TTL: s.ttl, Timeout: s.timeout()})
	r.ask()
	r.wait(ctx, s.timeout(), decided)
	lock := l.win(ctx, s, r)
	if lock == nil {
		err := l.lose(ctx, s, r)
		if isDone(l.closed) {
			return nil, closedError(OpAcquire, name)
		}
		l.tell(Event{Kind: EventAttempt, Name: name, Votes: err.Votes, Err: err}, r.start, nil)
		return nil, err
	}
	l.tell(Event{Kind: EventAttempt, Name: name}, r.start, lock)
	if !lock.watch() {
		lock.end(released, ErrClosed)
		return nil, closedError(OpAcquire, name)
	}
	return lock, nil
}

// win makes a lock of a round that was won in time, or returns nil. Replies
// that are still to come count for the lock.
func (l *Locker) win(ctx context.Context, s *settings, r *round) *Lock {
	r.mu.Lock()
	defer r.mu.Unlock()
	// The votes may have come in time and this goroutine too late: a process
	// that was paused or a machine that slept must not believe them.
	now := s.clock.Now()
	if r.tally.verdict() != voteWon || now >= deadline(r.start, s.ttl) {
		return nil
	}
	r.lock = newLock(ctx, s, r, now)
	return r.lock
}

// lose gives back what a round that was not won may have taken, and explains.
func (l *Locker) lose(ctx context.Context, s *settings, r *round) *QuorumError {
	r.mu.Lock()
	maybe := r.nodes(Granted, Unknown, 0)
	refused := r.nodes(Refused)
	r.mu.Unlock()

	undo := l.release(s, r.name, r.req.Key, r.req.Value, maybe)
	// The nodes that refused have just shown that they answer: their replies
	// to the release tell how long the holder has left, and what to wait for.
	undo.need = refused
	if ctx.Err() == nil {
		undo.wait(ctx, r.start.Add(s.timeout()).Sub(undo.start), repliedNeeded)
	}

	undo.mu.Lock()
	defer undo.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tally
	for i := range undo.slots {
		if !refused.has(i) {
			continue
		}
		switch reply := undo.slots[i].reply; reply.Outcome {
		case Refused:
			r.slots[i].reply.TTL = reply.TTL
		case Failed:
			if errors.Is(reply.Err, ErrWrongType) { // which SET NX cannot tell from a lock
				r.slots[i].reply = reply
				t.refused--
				t.faults++
			}
		}
	}
	if t.verdict() == votePending {
		t.faults += t.pending() // time is up for the others
	}
	kind := ErrHeld
	switch {
	case ctx.Err() != nil:
		kind = ctx.Err()
	case t.verdict() == voteWon:
		kind = errStale
	case t.outage():
		kind = ErrNoQuorum
	}
	err := r.fail(kind)
	err.Remaining = freeIn(r, undo)
	return err
}

// freeIn returns how long it takes until a quorum of nodes is free, if no
// holder renews: NoTTL for never, zero for unknown. Nodes that did not refuse
// are taken for free, since what they may have granted is being released; of
// the others, and of those that failed, only the replies to the release tell.
// Both rounds must be locked.
func freeIn(r, undo *round) time.Duration {
	const never = time.Duration(1<<63 - 1)
	var left []time.Duration
	for i, slot := range r.slots {
		switch undone := undo.slots[i].reply; {
		case slot.reply.Outcome == Granted || slot.reply.Outcome == 0:
			left = append(left, 0)
		case undone.Outcome == Refused && undone.TTL == NoTTL:
			left = append(left, never)
		case undone.Outcome == Refused:
			left = append(left, undone.TTL)
		}
	}
	slices.Sort(left)
	switch q := r.tally.quorum(); {
	case len(left) < q:
		return 0
	case left[q-1] == never:
		return NoTTL
	default:
		return left[q-1]
	}
}
