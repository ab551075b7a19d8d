package redlockcertmagic

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/redquorum/redquorum/redlock"
)

// Prefix begins the name of each lock, behind that of the Locker (redlock.Prefix).
const Prefix = "certmagic:"

// A Storage stores as the one that it was made of, and has the locks of a redlock.Locker. It is safe
// for concurrent use.
type Storage struct {
	certmagic.Storage
	locker *redlock.Locker
	opts   []redlock.Option

	mu  sync.Mutex
	ops map[string]*operation // of this process, by the name that certmagic gave
}

var (
	_ certmagic.Storage          = (*Storage)(nil)
	_ certmagic.TryLocker        = (*Storage)(nil)
	_ certmagic.LockLeaseRenewer = (*Storage)(nil)
)

// An operation is what certmagic does under a lock, from Lock to Unlock.
type operation struct {
	over chan struct{}
	lock *redlock.Lock // guarded by Storage.mu; nil until there is one
}

// New returns a Storage that stores in inner. The options are for the locks; Exclusive is set in any
// case. Errors: what is wrong with the arguments. No server is asked. The Locker stays the caller's,
// to be closed when certmagic has stopped.
func New(inner certmagic.Storage, locker *redlock.Locker, opts ...redlock.Option) (*Storage, error) {
	switch {
	case inner == nil:
		return nil, errors.New("redlockcertmagic: the storage is nil: pass the storage of the certificates")
	case locker == nil:
		return nil, errors.New("redlockcertmagic: the redlock.Locker is nil: make one with redlock.New")
	}
	s := &Storage{Storage: inner, locker: locker, ops: map[string]*operation{}}
	s.opts = append(append(s.opts, opts...), redlock.Exclusive())
	if err := locker.Check(s.opts...); err != nil {
		return nil, fmt.Errorf("redlockcertmagic: %w", err)
	}
	return s, nil
}

// String names the storage in certmagic's log.
func (s *Storage) String() string { return fmt.Sprintf("redquorum:%v", s.Storage) }

// Lock implements certmagic.Locker: it waits for the lock as redlock.Locker.Acquire does, and for an
// operation of this process under the same name. Errors: redlock.ErrNoQuorum in an outage that is
// longer than redlock.Patience, redlock.ErrClosed, or that of ctx.
func (s *Storage) Lock(ctx context.Context, name string) error {
	op := &operation{over: make(chan struct{})}
	for {
		before := s.begin(name, op)
		if before == nil {
			break
		}
		select {
		case <-before.over:
		case <-ctx.Done():
			return fmt.Errorf("redlockcertmagic: lock %q: %w", name, ctx.Err())
		}
	}
	return s.acquire(ctx, name, op, s.locker.Acquire)
}

// TryLock implements certmagic.TryLocker: it asks once, and returns false without an error if another
// holds the lock. Errors are those of Lock.
func (s *Storage) TryLock(ctx context.Context, name string) (bool, error) {
	op := &operation{over: make(chan struct{})}
	if s.begin(name, op) != nil {
		return false, nil
	}
	err := s.acquire(ctx, name, op, s.locker.TryAcquire)
	if errors.Is(err, redlock.ErrHeld) {
		return false, nil
	}
	return err == nil, err
}

// begin makes op the operation of the process under its name, or returns the one that is. A lock that
// was lost does not end its operation, and the next must not have that one's Unlock.
func (s *Storage) begin(name string, op *operation) *operation {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.ops[name]; before != nil {
		return before
	}
	s.ops[name] = op
	return nil
}

type acquisition func(context.Context, string, ...redlock.Option) (*redlock.Lock, error)

// acquire gives op its lock, or ends it.
func (s *Storage) acquire(ctx context.Context, name string, op *operation, ask acquisition) error {
	lock, err := ask(ctx, Prefix+name, s.opts...)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		delete(s.ops, name)
		close(op.over)
		return fmt.Errorf("redlockcertmagic: %w", err)
	}
	op.lock = lock
	return nil
}

// Unlock implements certmagic.Locker. It releases the lock though ctx has ended, which bounds the
// waiting only, and does nothing if the name is not locked.
//
// Errors: redlock.ErrLost or redlock.ErrClosed if the lock ended before, so that another instance may
// have been at work, too; redlock.ErrNoQuorum or that of ctx if too few servers have confirmed the
// release, which goes on in the background. The contract of certmagic.Locker has an error only for a
// lock that could not be released, and none for one that was lost; certmagic logs both.
func (s *Storage) Unlock(ctx context.Context, name string) error {
	op, lock := s.locked(name, true)
	if lock == nil {
		return nil
	}
	defer close(op.over)
	if err := lock.Release(ctx); err != nil {
		return fmt.Errorf("redlockcertmagic: %w", err)
	}
	return nil
}

// locked returns the operation under a name and its lock, or nil if there is none. With end it is that
// no more.
func (s *Storage) locked(name string, end bool) (*operation, *redlock.Lock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	op := s.ops[name]
	if op == nil || op.lock == nil {
		return nil, nil
	}
	if end {
		delete(s.ops, name)
	}
	return op, op.lock
}

// RenewLockLease implements certmagic.LockLeaseRenewer: after nil the lock is held at this moment, and
// is renewed until Unlock, whatever the duration is. A lock that was lost is asked for anew, once.
// Errors: redlock.ErrReleased if the name is not locked here; redlock.ErrHeld if another instance has
// the lock by now; the others of Lock.
func (s *Storage) RenewLockLease(ctx context.Context, name string, _ time.Duration) error {
	op, lock := s.locked(name, false)
	switch {
	case lock == nil:
		return fmt.Errorf("redlockcertmagic: renew %q: %w", name, redlock.ErrReleased)
	case lock.Valid():
		return nil
	}
	lock, err := s.locker.TryAcquire(ctx, Prefix+name, s.opts...)
	if err != nil {
		return fmt.Errorf("redlockcertmagic: renew %q, which was lost: %w", name, err)
	}
	s.mu.Lock()
	if s.ops[name] == op && !op.lock.Valid() {
		op.lock, lock = lock, nil
	}
	s.mu.Unlock()
	if lock != nil { // it was unlocked meanwhile
		lock.Release(ctx)
		return fmt.Errorf("redlockcertmagic: renew %q: %w", name, redlock.ErrReleased)
	}
	return nil
}
