package redlock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
)

// A Lock is held from the moment Acquire returns it until it is released or
// lost, whichever is first. It is safe for concurrent use.
type Lock struct {
	claim
	locker   *Locker
	settings *settings
	start    clock.Instant // of the try that got it, or when it was handed over
	endBy    clock.Instant // MaxHold after it was granted; zero for no limit
	turn     clock.Instant // since when callers of this process have had it without a rest (see turnLength); guarded by the queue
	cost     time.Duration // of acquiring it from the nodes
	ctx      context.Context
	cancel   context.CancelCauseFunc

	mu      sync.Mutex
	phase   phase
	cause   error         // why it is not held any more
	until   clock.Instant // no longer held from here on
	votes   nodeSet       // nodes that granted in round proof
	proof   int           // seq of the round that until is counted from
	maybe   nodeSet       // nodes that may hold the value
	repairs nodeSet       // nodes that are being asked to hold it again
	seq     int           // of the last round
	renewal *round        // under way, or nil
	renewAt clock.Instant

	at    clock.Instant // the agenda's: when to look at the lock
	index int           // the agenda's: where it stands, -1 if it does not
}

// phase is a lock's state. It changes once.
type phase uint8

const (
	held phase = iota
	released
	lost
)

// newLock makes the lock of a round that was won by now. The round must be
// locked.
func newLock(ctx context.Context, s *settings, c claim, r *round, now clock.Instant) *Lock {
	k := &Lock{
		claim: c, locker: r.locker, settings: s, start: r.start,
		votes: r.nodes(Granted), maybe: r.nodes(Granted, Unknown, 0),
		renewAt: r.start.Add(s.ttl / 3), index: -1,
	}
	if s.maxHold > 0 {
		k.endBy = now.Add(s.maxHold)
	}
	k.until = k.deadline(r)
	k.turn, k.cost = now, now.Sub(r.start)
	k.open(ctx)
	return k
}

// open makes the holder's context. It has the values of the caller's, but not
// its end: a context that bounded the waiting must not take the lock away.
func (k *Lock) open(ctx context.Context) {
	if ctx != context.Background() {
		ctx = context.WithoutCancel(ctx)
	}
	k.ctx, k.cancel = context.WithCancelCause(ctx)
}

// deadline is when the lock ends if r was its last round that was won.
func (k *Lock) deadline(r *round) clock.Instant {
	until := deadline(r.start, k.settings.ttl)
	if k.endBy > 0 {
		until = min(until, k.endBy)
	}
	return until
}

// Name returns the name that the lock was acquired by.
func (k *Lock) Name() string { return k.name }

// Value returns what the lock's key holds on the nodes. It is no secret, but
// whoever knows it can release the lock. No two processes ever have the same;
// callers of one process that hand a lock over to each other share it.
func (k *Lock) Value() string { return k.value }

// Context ends when the lock does: with cause ErrLost at its deadline at the
// latest, or as soon as a majority of nodes says that the lock is gone; with
// ErrReleased when it is released; with ErrClosed when the Locker is closed. On
// a machine that slept past the deadline it ends within a quarter of a second
// after the machine woke; Valid knows at once. context.Cause tells which, with
// details. It carries the values of the context given to Acquire, but does not
// end with it.
//
// Work that needs the lock must run under this context and stop when it ends.
func (k *Lock) Context() context.Context { return k.ctx }

// Remaining returns for how long the lock is certainly held, if nothing
// renews it; zero once it is lost or released.
func (k *Lock) Remaining() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.phase != held {
		return 0
	}
	return max(0, k.until.Sub(k.settings.clock.Now()))
}

// Valid reports whether the lock is held at this moment.
func (k *Lock) Valid() bool { return k.Remaining() > 0 }

// Until returns when the lock ends, if nothing renews it, by this machine's
// wall clock: for people and logs. Decide by Valid, Remaining or Context, which
// nobody can set back. The zero time is returned once the lock is lost or
// released.
func (k *Lock) Until() time.Time {
	left := k.Remaining()
	if left == 0 {
		return time.Time{}
	}
	return time.Now().Add(left)
}

// Votes returns how many nodes hold the lock: those that granted it or its last
// extension, and those that were given it again since. Votes that arrive after
// the quorum was reached are counted as they come. What is above the quorum is
// the lock's margin: so many nodes can forget it without anybody else getting
// it. Zero once the lock is lost or released.
func (k *Lock) Votes() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.votes.size()
}

// end takes the lock out of its phase held and gives it back on all nodes. If
// it was not held any more, the error says why.
func (k *Lock) end(p phase, cause error, now clock.Instant) (*round, error) {
	k.mu.Lock()
	if k.phase != held {
		defer k.mu.Unlock()
		return nil, k.ended()
	}
	k.phase, k.cause = p, cause
	k.votes, k.renewal = 0, nil
	maybe := k.maybe
	k.mu.Unlock()

	k.locker.agenda.remove(k)
	k.cancel(cause)
	// Lost too: a minority of nodes may still hold the value, or an extension
	// may have reached it, and would keep others out for a TTL.
	r := k.locker.release(k.ctx, now, k.settings, k.claim, maybe)
	// The release is on its way on every connection that a local waiter's next
	// request would take, so the waiter need not wait for the answers.
	k.locker.queue.ended(k, now)
	if p == lost {
		k.locker.tell(Event{Kind: EventLost, Context: k.ctx, Name: k.name, Err: cause}, k.start, nil)
	}
	return r, nil
}

// ended returns the error of a lock that is not held, or nil. It must be
// locked.
func (k *Lock) ended() error {
	switch k.phase {
	case released:
		return fmt.Errorf("redlock: %q: %w", k.name, k.cause)
	case lost:
		return k.cause
	}
	return nil
}

// expire loses the lock if its deadline has passed by now.
func (k *Lock) expire(now clock.Instant) {
	k.mu.Lock()
	over := k.phase == held && now >= k.until
	k.mu.Unlock()
	if !over {
		return
	}
	why := "not extended before its deadline"
	if k.endBy > 0 && now >= k.endBy {
		why = fmt.Sprintf("held for its MaxHold of %v", k.settings.maxHold)
	}
	k.end(lost, fmt.Errorf("redlock: %q: %w: %s", k.name, ErrLost, why), now)
}
